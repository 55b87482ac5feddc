"""The deployment under test is the committed one but for what a soak needs; its log is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from python_backend.config import load_deployment
from tools.soaking import deployment
from tools.soaking.deployment import REPOSITORY, RETRY_S, Served, _keep, _placed
from tools.triton_server import ServerOptions, TritonServer


@pytest.mark.parametrize("on_peer_loss", ["fail", "retry"])
def test_policy_limits_and_models_are_placed(tmp_path: Path, on_peer_loss: str) -> None:
    found = _placed(tmp_path, on_peer_loss)

    committed = load_deployment(REPOSITORY / "deployment.yaml")
    assert (found.on_peer_loss.value, found.retry_s) == (on_peer_loss, RETRY_S)
    assert (found.policy, found.models) == (committed.policy, committed.models)
    assert RETRY_S < found.front.request_timeout_s < 75.0
    server = TritonServer(ServerOptions(tmp_path / "repository", tmp_path / "run"))
    assert Served(server, found).blocks() == {"small": 65536 // 16, "large": 65536 // 16}


def test_the_log_is_kept_and_may_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployment, "LOG", tmp_path / ".run" / "soak.log")
    _keep(tmp_path / "none.log")
    (tmp_path / "tritonserver.log").write_text("I am Triton")
    _keep(tmp_path / "tritonserver.log")

    assert (tmp_path / ".run" / "soak.log").read_text() == "I am Triton"
