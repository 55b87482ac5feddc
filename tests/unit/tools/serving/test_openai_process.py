"""The OpenAI server as a child: it starts, ends with an orderly status, and says why it cannot start."""

from __future__ import annotations

import os
import urllib.request
from pathlib import Path

import pytest

from tools.serving import openai_process
from tools.serving.openai_process import OpenAIOptions, OpenAIProcess, must_be_free
from tools.triton_server import ServerError

NOWHERE = "127.0.0.1:1"


def test_it_answers_before_triton_does_and_ends_when_told(tmp_path: Path) -> None:
    process = OpenAIProcess(OpenAIOptions(port=0), tmp_path / "log")
    process.start(NOWHERE)
    try:
        with urllib.request.urlopen(f"{process.url}/health", timeout=20) as reply:
            assert reply.status == 200
        assert process.is_alive
    finally:
        process.stop()
    process.stop()
    assert (process.is_alive, (tmp_path / "log").read_text()) == (False, "")


def test_a_killed_one_starts_again_at_the_port_of_the_first(tmp_path: Path) -> None:
    process = OpenAIProcess(OpenAIOptions(port=0), tmp_path / "log")
    process.start(NOWHERE)
    first = process.url
    try:
        process.kill()
        process.stop()
        process.start(NOWHERE)
        with urllib.request.urlopen(f"{first}/health", timeout=20) as reply:
            assert reply.status == 200
    finally:
        process.stop()
    assert process.url == first


def test_one_that_says_nothing_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_process, "START_S_MAX", 0.0)
    process = OpenAIProcess(OpenAIOptions(port=0), tmp_path / "log")
    with pytest.raises(ServerError, match="did not start: it said nothing within 0 s"):
        process.start(NOWHERE)
    assert not process.is_alive


def test_what_keeps_it_from_starting_is_said(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    process = OpenAIProcess(OpenAIOptions(port=0, api_keys=keys), tmp_path / "log")
    with pytest.raises(ServerError, match=r"did not start: openai_server: --api-keys .*No such file"):
        process.start(NOWHERE)
    assert not process.is_alive


def test_a_port_that_is_taken_is_named_before_anything_starts() -> None:
    must_be_free("127.0.0.1", 0)
    with pytest.raises(ServerError, match="openai port 1 cannot be used"):
        must_be_free("203.0.113.1", 1)


def test_it_is_told_where_triton_is_and_whose_child_it_is() -> None:
    assert OpenAIOptions(port=7, drain_s=3).arguments("here:1") == [
        *("--triton", "here:1", "--host", "127.0.0.1", "--port", "7"),
        *("--drain-s", "3", "--parent-pid", str(os.getpid())),
    ]
