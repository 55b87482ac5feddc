"""A server is waited for as long as it may still serve somebody; one that shall end now is not."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping

from tools.serving.ending import HOLLOW_S, TURN_S, end_now, wait_for_end

ONE = {"small": 7}


class Slow:
    """A process that ends in its turn number `ends_in`."""

    def __init__(self, ends_in: int) -> None:
        self.turns = 0
        self._ends_in = ends_in

    def wait(self, timeout: float | None = None) -> int:
        self.turns += 1
        if self.turns < self._ends_in:
            raise subprocess.TimeoutExpired("tritonserver", timeout or 0.0)
        return 0


def until(process: Slow, turn: int) -> Callable[[], Mapping[str, int]]:
    """Python processes that are there up to this turn."""
    return lambda: ONE if process.turns <= turn else {}


def test_a_server_that_ends_is_waited_for_while_its_models_drain() -> None:
    process = Slow(100)
    assert wait_for_end(process, until(process, 95), within_s=30.0)
    assert process.turns == 100


def test_one_that_stays_behind_its_models_is_given_up_soon_after_them() -> None:
    process = Slow(1000)
    assert not wait_for_end(process, until(process, 10), within_s=30.0)
    assert process.turns == 10 + round(HOLLOW_S / TURN_S)


def test_nor_is_one_waited_for_beyond_its_time() -> None:
    process = Slow(1000)
    assert not wait_for_end(process, lambda: ONE, within_s=3.0)
    assert process.turns == 30


def test_a_look_at_a_process_that_ends_meanwhile_proves_nothing() -> None:
    def vanished() -> Mapping[str, int]:
        raise FileNotFoundError

    process = Slow(60)
    assert wait_for_end(process, vanished, within_s=30.0)


class Server:
    """Notes its end."""

    def __init__(self, name: str, ended: list[str]) -> None:
        self._name, self._ended = name, ended

    def kill(self) -> None:
        self._ended.append(self._name)


def test_all_servers_are_ended_at_once_with_or_without_openai_s() -> None:
    ended: list[str] = []
    end_now(Server("triton", ended), Server("openai", ended))
    end_now(Server("triton", ended), None)
    assert ended == ["openai", "triton", "triton"]
