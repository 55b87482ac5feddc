"""What the supervisor sees decides what it asks of the server, and it says so."""

from __future__ import annotations

from dataclasses import dataclass, field

from tools.serving.admin import AdminError
from tools.serving.supervisor import Supervisor


@dataclass
class FakeServer:
    """Server and administrator in one: processes by model, what peers hear, what loading does."""

    processes: dict[str, int] = field(default_factory=lambda: {"small": 1, "large": 2})
    heard: dict[str, bool] = field(default_factory=dict)
    is_vanishing: bool = False
    load_error: str = ""
    unload_error: str = ""
    asked: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def stubs(self) -> dict[str, int]:
        if self.is_vanishing:
            raise FileNotFoundError("/proc/2/cmdline")
        return self.processes

    def peers_up(self) -> dict[str, bool]:
        return self.heard

    def unload(self, model: str) -> None:
        self.asked.append(f"unload {model}")
        if self.unload_error:
            raise AdminError(self.unload_error)

    def load(self, model: str) -> None:
        self.asked.append(f"load {model}")
        if self.load_error:
            raise AdminError(self.load_error)
        self.processes[model] = 3


def watched(server: FakeServer) -> Supervisor:
    return Supervisor(server, server, ["small", "large"], server.said.append)


def test_a_healthy_server_is_left_alone() -> None:
    server = FakeServer(heard={"small": True, "large": True})
    watched(server).turn(0.0)
    assert (server.asked, server.said) == ([], [])


def test_a_model_whose_process_died_is_taken_out_and_brought_back() -> None:
    server = FakeServer({"small": 1})
    supervisor = watched(server)
    for now in (0.0, 1.0, 2.0, 3.0):
        supervisor.turn(now)
    assert server.asked == ["unload large", "load large"]
    assert server.said == ["large: its process is gone or silent; taking the model out", "large: back"]


def test_a_loaded_model_is_back_only_when_its_peers_hear_it() -> None:
    server = FakeServer({"small": 1}, heard={"large": False})
    supervisor = watched(server)
    for now in (0.0, 1.0, 2.0):
        supervisor.turn(now)
    assert "large: back" not in server.said
    server.heard["large"] = True
    supervisor.turn(3.0)
    assert server.said[-1] == "large: back"


def test_a_model_that_its_peers_do_not_hear_is_revived_after_a_while() -> None:
    server = FakeServer(heard={"large": False})
    supervisor = watched(server)
    for now in range(12):
        supervisor.turn(float(now))
    assert server.asked == ["unload large", "load large"]


def test_a_load_that_fails_is_said_and_tried_again() -> None:
    server = FakeServer({"small": 1}, load_error="out of memory")
    supervisor = watched(server)
    for now in range(5):
        supervisor.turn(float(now))
    assert server.asked == ["unload large", "load large", "load large"]
    assert server.said[-1] == "large: could not be loaded, trying again later: out of memory"


def test_an_unload_that_fails_does_not_keep_the_model_from_being_loaded() -> None:
    server = FakeServer({"small": 1}, unload_error="busy")
    supervisor = watched(server)
    supervisor.turn(0.0)
    supervisor.turn(1.0)
    assert server.asked == ["unload large", "load large"]
    assert "large: could not be unloaded: busy" in server.said


def test_a_process_that_vanishes_during_the_look_is_seen_next_time() -> None:
    server = FakeServer({"small": 1}, is_vanishing=True)
    supervisor = watched(server)
    supervisor.turn(0.0)
    assert server.asked == []
    server.is_vanishing = False
    supervisor.turn(1.0)
    assert server.asked == ["unload large"]


def test_of_two_replicas_only_the_one_that_died_is_taken_out() -> None:
    server = FakeServer({"small": 1, "large": 2}, heard={"small": True, "large": True, "large_2": False})
    supervisor = Supervisor(server, server, ["small", "large", "large_2"], server.said.append)
    for now in (0.0, 1.0):
        supervisor.turn(now)
    assert server.asked == ["unload large_2", "load large_2"]
