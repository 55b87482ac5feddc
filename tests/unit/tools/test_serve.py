"""Serving ends with a named reason, or when someone asks for the end; nothing stays behind."""

from __future__ import annotations

import signal
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import tools.serve as serve_tool
from tools.serve import main, progress, run_folders, wait_until_heard, watch
from tools.serving.admin import AdminError
from tools.serving.interrupts import Interrupts
from tools.triton_server import ServerError


@dataclass
class FakeServer:
    """A server that is alive for `turns` looks."""

    turns: int
    log_tail_text: str = "last words"

    @property
    def is_alive(self) -> bool:
        self.turns -= 1
        return self.turns >= 0

    def log_tail(self) -> str:
        return self.log_tail_text


@dataclass
class FakeSupervisor:
    """Asks for the end after so many turns."""

    interrupts: Interrupts
    turns: list[float] = field(default_factory=list)
    turns_max: int = 3

    def turn(self, now: float) -> None:
        self.turns.append(now)
        if len(self.turns) == self.turns_max:
            self.interrupts.handle(signal.SIGTERM, None)


@pytest.fixture
def interrupts(monkeypatch: pytest.MonkeyPatch) -> Interrupts:
    monkeypatch.setattr(serve_tool, "LOOK_S", 0.0)
    found = Interrupts()
    found.is_starting = False
    return found


def watched(server: Any, supervisor: Any, interrupts: Interrupts) -> int:
    return watch(server, [supervisor], interrupts)


def test_the_server_is_watched_until_someone_wants_the_end(
    interrupts: Interrupts, capsys: pytest.CaptureFixture[str]
) -> None:
    supervisor = FakeSupervisor(interrupts)
    assert watched(FakeServer(100), supervisor, interrupts) == 0
    assert len(supervisor.turns) == 3
    assert "Stopping" in capsys.readouterr().out


def test_a_server_that_ends_by_itself_is_an_error_with_its_last_words(interrupts: Interrupts) -> None:
    with pytest.raises(ServerError, match="ended by itself\nlast words"):
        watched(FakeServer(1), FakeSupervisor(interrupts), interrupts)


@dataclass
class FakeAdmin:
    """What the doors hear, look by look; the last answer stays."""

    answers: list[dict[str, bool] | AdminError]
    looks: int = 0

    def peers_up(self) -> dict[str, bool]:
        self.looks += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, AdminError):
            raise answer
        return answer

    def load(self, model: str) -> None: ...

    def unload(self, model: str) -> None: ...


def test_it_is_ready_when_the_doors_hear_every_model(interrupts: Interrupts) -> None:
    admin = FakeAdmin([AdminError("not yet"), {"small": True}, {"small": True, "large": True}])
    wait_until_heard(admin, ("small", "large"), interrupts)
    assert len(admin.answers) == 1


def test_a_model_that_nobody_hears_is_named(interrupts: Interrupts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_tool, "HEARD_S_MAX", 0.1)
    with pytest.raises(ServerError, match=r"not heard within 0\.1 s: large"):
        wait_until_heard(FakeAdmin([{"small": True}]), ("small", "large"), interrupts)


def test_an_interrupt_ends_the_wait_for_the_models(interrupts: Interrupts) -> None:
    admin = FakeAdmin([{}])
    interrupts.handle(signal.SIGINT, None)
    wait_until_heard(admin, ("small",), interrupts)
    assert admin.looks == 1


def test_run_folders_are_gone_afterwards_and_the_log_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve_tool, "RUNS", tmp_path)
    with run_folders() as (folder, sockets):
        (folder / "tritonserver.log").write_text("said")
        assert sockets.stat().st_mode & 0o077 == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["serve.log"]
    assert not sockets.exists()


def test_progress_says_each_loaded_model_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log"
    with progress(log):
        log.write_text("I1 successfully loaded 'small'\nI2 successfully loaded 'large'\n")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["small", "large"]


@pytest.fixture
def quiet_main(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Interrupts, "install", lambda self: None)
    monkeypatch.setattr(serve_tool, "RUNS", tmp_path)


@pytest.mark.usefixtures("quiet_main")
def test_a_busy_port_is_named_with_its_cure(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        for name in ("http", "openai"):
            free = [f"--{other}-port=0" for other in ("http", "grpc", "metrics", "openai") if other != name]
            assert main([f"--{name}-port={port}", *free]) == 1
            error = capsys.readouterr().err
            assert f"{name} port {port} cannot be used" in error
            assert f"{name.upper()}_PORT" in error


@pytest.mark.usefixtures("quiet_main")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--policy", "odd"], "'odd' is unknown"),
        (["--policy", "fixed", "--cutoff", "0.1"], "cutoff"),
        (["--small", "nowhere"], "SMALL: nowhere is not a Hugging Face directory"),
    ],
)
def test_a_wish_that_cannot_be_met_is_named(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    assert words in capsys.readouterr().err


@pytest.mark.usefixtures("quiet_main")
def test_what_the_machine_lacks_is_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        serve_tool, "problems", lambda needs: ["libx is missing: apt-get install x", "no room"]
    )
    assert main([]) == 1
    assert capsys.readouterr().err == (
        "serve: this machine cannot serve yet:\n  - libx is missing: apt-get install x\n  - no room\n"
    )
