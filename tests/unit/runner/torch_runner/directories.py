"""Copies of tiny model directories that a test may spoil, and plans that feed one runner."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from router_backend.core.request import RequestId, Sampling
from router_backend.scheduler.batch import BatchPlan, LaunchReason, Needs, Row
from tests.tiny_models import TinyModel, tiny_model_dir

ALL_NEEDS = Needs(entropy=True, max_prob=True, topk=5, hidden=True)


def copied(model: TinyModel, target: Path) -> Path:
    shutil.copytree(tiny_model_dir(model), target, dirs_exist_ok=True)
    return target


def edit_json(path: Path, **fields: Any) -> None:
    """Set fields of a JSON object; None removes one."""
    content = json.loads(path.read_text()) | fields
    path.write_text(json.dumps({name: value for name, value in content.items() if value is not None}))


def row(token_ids: Sequence[int], start: int = 0, blocks: Sequence[int] = (0,), **fields: Any) -> Row:
    defaults = {"request_id": RequestId("r"), "is_sampling": True, "sampling": Sampling(), "attempt": 0}
    return Row(token_ids=list(token_ids), start=start, blocks=list(blocks), **(defaults | fields))


def plan(*rows: Row, needs: Needs | None = None) -> BatchPlan:
    return BatchPlan(0, rows, needs or Needs(), LaunchReason.ALONE)
