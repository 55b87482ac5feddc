"""The guard acts only when its launcher went without a word."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.source_tree import ROOT
from tools.triton_guard import DONE


@pytest.mark.parametrize(("word", "is_spared"), [(DONE, True), (b"", False)])
def test_a_server_dies_with_its_launcher_and_leaves_nothing(
    tmp_path: Path, word: bytes, is_spared: bool
) -> None:
    sockets = tmp_path / "sockets"
    sockets.mkdir()
    for name in ("mine_1", "mine_2", "other_1"):
        (tmp_path / name).touch()
    server = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        command = [
            sys.executable,
            "-m",
            "tools.triton_guard",
            str(server.pid),
            str(tmp_path),
            "mine_",
            str(sockets),
        ]
        guard = subprocess.run(command, input=word, cwd=ROOT, check=False)
        assert guard.returncode == (0 if is_spared else 1)
        if not is_spared:
            server.wait(5)
        assert (server.poll() is None, sockets.exists()) == (is_spared, is_spared)
        left = sorted(path.name for path in tmp_path.iterdir() if path.is_file())
        assert left == (["mine_1", "mine_2", "other_1"] if is_spared else ["other_1"])
    finally:
        server.kill()
        server.wait()
