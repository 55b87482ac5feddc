"""The committed dashboard is the table's, and promtool accepts configuration, alerts and their tests."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.source_tree import ROOT
from tools.draw_dashboard import PAGE, drawn, main

MONITORING = ROOT / "docker" / "monitoring"


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


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs Debian's package prometheus")
@pytest.mark.parametrize("check", ["check config prometheus.yml", "test rules alerts_test.yml"])
def test_promtool_finds_no_fault(check: str) -> None:
    """Every alert fires in the case that it is for, and none on a healthy server."""
    command = ["promtool", *check.split()]
    run = subprocess.run(command, cwd=MONITORING, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
