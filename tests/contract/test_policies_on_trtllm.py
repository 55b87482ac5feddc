"""The whole system over emulated TensorRT-LLM engines: every policy answers as its definition says.

As `test_policies_on_models`, in float32: hand-off, parking, delayed batches, caches evicted from pools that
are too small, and each way of feeding what a returning sequence has not seen.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from python_backend.config import Deployment
from tests import oracle
from tests.contract.emulated import Build, lay_out, use_emulator
from tests.contract.routed_system import RoutedSystem
from tests.contract.test_policies_on_models import END, MODELS, NAMES, PAIR, ModelWriter, asked, check
from tests.source_tree import ROOT
from tests.tiny_models import tiny_model_dir

REQUESTS = 6
"""Of each policy."""
BUILD = Build(max_batch_size=8, max_num_tokens=64, max_seq_len=128)


@pytest.fixture(autouse=True)
def emulator(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(oracle, "END", END)
    with use_emulator():
        yield


def deployment(folder: Path, resumes: tuple[str, str]) -> Deployment:
    dirs = [
        lay_out(folder / name, tiny_model_dir(model), BUILD)
        for name, model in zip(NAMES[:2], MODELS, strict=False)
    ]
    models = [
        {
            "name": name,
            "engine": "trtllm",
            "model_dir": str(model_dir),
            "resume": resume,
            "kv_tokens": 320,
            "batch_tokens_max": 24,
            "batch_max": 8,
            "threshold": threshold,
        }
        for name, model_dir, resume, threshold in zip(NAMES[:2], dirs, resumes, (3, 2), strict=True)
    ]
    front = {"heartbeat_ms": 50, "peer_timeout_s": 20}
    return Deployment.model_validate({"models": models, "deadline_ms": 5, "front": front})


@pytest.mark.parametrize("resumes", [("mid_block", "mid_block"), ("align", "one_by_one")], ids="-".join)
def test_all_policies_in_shared_batches_answer_as_their_definitions_say(
    resumes: tuple[str, str], tmp_path: Path
) -> None:
    rng = random.Random(len(resumes[0]))
    jobs = [(case, asked(case, rng)) for _ in range(REQUESTS) for case in PAIR.values()]
    writers = [ModelWriter(model) for model in range(2)]

    with RoutedSystem(deployment(tmp_path, resumes), ROOT) as system:
        clients = system.answers([ask for _, ask in jobs], at_once=16)
        figures = system.settled_figures()

    answers = [
        check(ask, case[2], client, writers) for (case, ask), client in zip(jobs, clients, strict=True)
    ]
    assert sum(one["discarded"] for one in figures) == sum(answer.discarded for answer in answers) > 0
    assert sum(one["parked_evictions"] for one in figures) > 0
    assert sum(one["direct_resumes"] for one in figures) > 0
    assert not any(one["runner_errors"] for one in figures)
