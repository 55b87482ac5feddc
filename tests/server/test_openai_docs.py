"""The commands of docs/openai.md do what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.server.test_doors import DEMO
from tests.source_tree import ROOT
from tools.triton_server import TritonServer

pytestmark = pytest.mark.server

PAGE = (ROOT / "docs" / "openai.md").read_text()
ANSWER = DEMO[0]["answer"]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def run(server: TritonServer, openai_url: str, program: list[str], text: str) -> str:
    """Its output, at the addresses of this server."""
    here = text.replace("http://127.0.0.1:8003", openai_url).replace("127.0.0.1:8001", server.grpc_address)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*program, here], cwd=ROOT, env=environment, capture_output=True, check=True, text=True, timeout=120
    ).stdout


def test_curl_gets_the_answer_whole_and_in_pieces(server: TritonServer, openai_url: str) -> None:
    whole, stream = (run(server, openai_url, ["bash", "-c"], block) for block in blocks("bash"))
    assert f'"content": "{ANSWER}"' in whole
    assert "".join(re.findall(r'"text":"([^"]*)"', stream)) == ANSWER
    assert '"usage":{"prompt_tokens":14' in stream
    assert stream.endswith("data: [DONE]\n\n")


def test_the_python_examples_run(server: TritonServer, openai_url: str) -> None:
    openai, own = (run(server, openai_url, [sys.executable, "-c"], block) for block in blocks("python"))
    assert "".join(re.findall(r"^(.*) \[", openai, re.MULTILINE)).split() == ANSWER.split()
    assert own.startswith("('small', 'large')\n" + ANSWER)
