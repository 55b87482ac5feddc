"""`python -m tools.serve` as a person uses it: ready, the printed examples work, Ctrl-C leaves nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.processes import is_running
from tests.source_tree import ROOT
from tools.serving.words import said_until
from tools.triton_server import SHM, children
from tools.try_routing import load_questions
from tools.try_routing import main as try_routing

pytestmark = pytest.mark.server

QUESTION = load_questions(ROOT / "model_repository" / "demo_prompts.json", 1)[0]


@dataclass
class Serving:
    """The running command and what it said."""

    process: subprocess.Popen[str]
    said: str

    @property
    def url(self) -> str:
        found = re.search(r"HTTP +(\S+)", self.said)
        assert found, self.said
        return found[1]

    def example(self, number: int) -> str:
        """The command under the `number`-th title."""
        part = self.said.split("\n# ")[number].split("\nCtrl-C stops")[0]
        return part.split("\n", 1)[1]

    def wait_for(self, words: str) -> str:
        """Read on until a line holds `words`; pytest's own limit bounds the wait."""
        assert self.process.stdout is not None
        return said_until(words, self.process.stdout)


@pytest.fixture(scope="module")
def serving() -> Iterator[Serving]:
    ports = ["--http-port", "0", "--grpc-port", "0", "--metrics-port", "0", "--openai-port", "0"]
    with subprocess.Popen(
        [sys.executable, "-m", "tools.serve", *ports], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        found = Serving(process, "")
        try:
            found.said = found.wait_for("Ctrl-C stops")
            yield found
        finally:
            process.terminate()
            process.communicate(timeout=90)


def run(command: str) -> str:
    return subprocess.run(
        ["bash", "-c", command], cwd=ROOT, capture_output=True, check=True, text=True, timeout=60
    ).stdout


def test_the_curl_example_gives_the_right_answer_and_says_who_wrote_it(serving: Serving) -> None:
    reply = run(serving.example(1))
    assert f'"text_output":"{QUESTION.answer}"' in reply
    assert '"token_source":[' in reply


def test_the_stream_example_gives_the_same_text_in_pieces(serving: Serving) -> None:
    pieces = re.findall(r'"text_output":"([^"]*)"', run(serving.example(2)))
    assert len(pieces) > 1
    assert "".join(pieces) == QUESTION.answer


def test_the_grpc_example_gives_the_same_text(serving: Serving) -> None:
    assert run(serving.example(3)).strip() == QUESTION.answer


def test_the_openai_example_is_answered_at_the_port_of_the_banner(serving: Serving) -> None:
    reply = json.loads(run(serving.example(4)))
    assert reply["choices"][0]["message"]["content"] == QUESTION.answer
    found = re.search(r"try it +(\S+)", serving.said)
    assert found
    with urllib.request.urlopen(found[1], timeout=20) as page:
        assert page.headers["content-type"].startswith("text/html")


def test_routing_is_as_right_as_the_large_model_at_a_fraction_of_its_tokens(
    serving: Serving, capsys: pytest.CaptureFixture[str]
) -> None:
    assert try_routing(["--url", serving.url, "--limit", "24", "--cutoffs", "0.2"]) == 0
    small, large, routed = (line.split() for line in capsys.readouterr().out.splitlines()[1:])
    assert float(small[2].rstrip("%")) < 60 <= 95 <= float(routed[2].rstrip("%"))
    assert float(routed[3].rstrip("%")) < 40 < 100 == float(large[3].rstrip("%"))


def stub_of(model: str, command: int) -> int:
    """The process of `model` under the serve command `command`."""
    for server in children(command):
        for pid in children(server):
            if f"/{model}/1/" in Path(f"/proc/{pid}/cmdline").read_bytes().decode():
                return pid
    raise AssertionError(f"{model} has no process")


def test_a_killed_model_is_taken_out_and_comes_back(serving: Serving) -> None:
    os.kill(stub_of("large", serving.process.pid), signal.SIGKILL)
    serving.wait_for("large: its process is gone")
    serving.wait_for("large: back")
    with urllib.request.urlopen(f"{serving.url}/v2/models/large/ready", timeout=10) as reply:
        assert reply.status == 200
    assert f'"text_output":"{QUESTION.answer}"' in run(serving.example(1))


def openai_of(command: int) -> int:
    """The process of the OpenAI server under the serve command `command`."""
    words = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children(command)}
    return next(pid for pid, line in words.items() if b"tools.openai_server" in line)


def test_a_killed_openai_server_comes_back_at_its_port(serving: Serving) -> None:
    os.kill(openai_of(serving.process.pid), signal.SIGKILL)
    serving.wait_for("The OpenAI server ended by itself")
    serving.wait_for("The OpenAI server is back at")
    reply = json.loads(run(serving.example(4)))
    assert reply["choices"][0]["message"]["content"] == QUESTION.answer


def test_an_interrupt_ends_everything_it_started(serving: Serving) -> None:
    servers = children(serving.process.pid)
    started = [*servers, *(pid for server in servers for pid in children(server))]
    assert len(started) >= 8
    prefix = f"token_router_{serving.process.pid}_"
    serving.process.send_signal(signal.SIGINT)
    assert serving.process.wait(timeout=60) == 0
    assert [pid for pid in started if is_running(pid)] == []
    assert list(SHM.glob(f"{prefix}*")) == []
    assert not (ROOT / ".run" / f"serve-{serving.process.pid}").exists()
