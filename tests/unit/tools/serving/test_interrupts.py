"""A signal breaks a start off, then asks for the end, then hurries it; the exit status says which it was."""

from __future__ import annotations

import argparse
import signal

import pytest

from router_backend.core.errors import ConfigError
from tools.serving.interrupts import Interrupts, until_ended
from tools.triton_server import ServerError


def test_an_interrupt_breaks_off_a_start() -> None:
    interrupts = Interrupts()
    with pytest.raises(KeyboardInterrupt):
        interrupts.handle(signal.SIGINT, None)


def test_the_second_interrupt_hurries() -> None:
    interrupts, hurried = Interrupts(), []
    interrupts.is_starting = False
    interrupts.hurry = lambda: hurried.append(True)
    interrupts.handle(signal.SIGINT, None)
    assert (interrupts.wanted.is_set(), hurried) == (True, [])
    interrupts.handle(signal.SIGINT, None)
    assert hurried == [True]


@pytest.fixture
def is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if signals came here, which they shall not in a test."""
    monkeypatch.setattr(Interrupts, "install", lambda self: None)


def status(raised: BaseException | None = None) -> int:
    def serving(options: argparse.Namespace, interrupts: Interrupts) -> int:
        if raised is not None:
            raise raised
        return int(options.status)

    return until_ended("serve_part", serving, argparse.Namespace(status=0))


@pytest.mark.usefixtures("is_installed")
def test_an_orderly_end_has_the_status_of_what_served() -> None:
    assert status() == 0


@pytest.mark.usefixtures("is_installed")
@pytest.mark.parametrize("error", [ServerError("no room"), ConfigError("no room")], ids=["server", "config"])
def test_a_reason_not_to_serve_is_printed_with_the_tool_s_name(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(error) == 1
    assert capsys.readouterr().err == f"serve_part: {error}\n"


@pytest.mark.usefixtures("is_installed")
def test_an_interrupted_start_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert status(KeyboardInterrupt()) == 130
    assert "before it was ready" in capsys.readouterr().out
