"""The committed dashboard is the table's, and promtool accepts configuration, alerts and their tests."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.source_tree import ROOT
from tools.draw_dashboard import PAGE, drawn, main

MONITORING = ROOT / "docker" / "monitoring"
ABSENT = object()


def test_the_committed_dashboard_is_current() -> None:
    assert PAGE.read_text() == drawn(), "run python -m tools.draw_dashboard"


def test_an_old_dashboard_is_noticed_and_drawn_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "board.json"
    assert main(["--page", str(page), "--check"]) == 1
    assert "out of date" in capsys.readouterr().err
    assert main(["--page", str(page)]) == 0
    assert main(["--page", str(page), "--check"]) == 0


def test_every_field_of_the_dashboard_is_one_that_grafana_knows() -> None:
    """Grafana's own model reads it, and writes it again with defaults added, and nothing lost or changed."""
    models = pytest.importorskip("grafana_foundation_sdk.models.dashboard", reason="carries Grafana's schema")
    plugins = pytest.importorskip("grafana_foundation_sdk.cog.plugins")
    encoder = pytest.importorskip("grafana_foundation_sdk.cog.encoder")
    plugins.register_default_plugins()
    board = json.loads(PAGE.read_text())
    again = json.dumps(models.Dashboard.from_json(board), cls=encoder.JSONEncoder)
    assert lost(board, json.loads(again), "") == []


def lost(given: Any, found: Any, where: str) -> list[str]:
    """Places of what was `given` that `found` has not, or has otherwise."""
    if isinstance(given, dict) and isinstance(found, dict):
        return [
            place for key in given for place in lost(given[key], found.get(key, ABSENT), f"{where}.{key}")
        ]
    if isinstance(given, list) and isinstance(found, list) and len(given) == len(found):
        pairs = enumerate(zip(given, found, strict=True))
        return [place for number, pair in pairs for place in lost(*pair, f"{where}[{number}]")]
    return [] if given == found else [where]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs Debian's package prometheus")
@pytest.mark.parametrize("check", ["check config prometheus.yml", "test rules alerts_test.yml"])
def test_promtool_finds_no_fault(check: str) -> None:
    """Every alert fires in the case that it is for, and none on a healthy server."""
    command = ["promtool", *check.split()]
    run = subprocess.run(command, cwd=MONITORING, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
