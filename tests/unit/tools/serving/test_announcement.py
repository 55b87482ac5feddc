"""The examples are commands that a shell and a Python would accept, at the addresses in use."""

from __future__ import annotations

import ast
import json
import shlex
import subprocess
from dataclasses import replace

from tools.serving.announcement import Addresses, announcement, examples

AT = Addresses(
    "http://127.0.0.1:8000", "127.0.0.1:8001", "http://127.0.0.1:8002/metrics", "http://127.0.0.1:8003"
)
PROMPT = 'it\'s "said" $HOME'


def test_there_is_a_whole_answer_a_stream_a_grpc_stream_and_a_chat() -> None:
    commands = [command for _, command in examples(AT, PROMPT, ".venv/bin/python")]
    assert "http://127.0.0.1:8000/v2/models/token_router/generate " in commands[0]
    assert "http://127.0.0.1:8000/v2/models/ensemble/generate_stream " in commands[1]
    assert 'InferenceServerClient("127.0.0.1:8001")' in commands[2]
    assert "http://127.0.0.1:8003/v1/chat/completions " in commands[3]


def test_what_is_not_served_is_not_announced() -> None:
    alone = replace(AT, openai="")
    assert len(examples(alone, PROMPT, "python")) == 3
    assert "OpenAI" not in announcement(alone, [], "the.log")


def test_a_prompt_survives_the_shell() -> None:
    for _, command in examples(AT, PROMPT, "python")[:2]:
        words = shlex.split(command)
        assert words[0] == "curl"
        assert json.loads(words[-1])["text_input"] == PROMPT


def test_the_stream_asks_for_a_stream_and_the_answer_does_not() -> None:
    bodies = [json.loads(shlex.split(command)[-1]) for _, command in examples(AT, PROMPT, "python")[:2]]
    assert [body.get("stream", False) for body in bodies] == [False, True]


def test_the_python_example_compiles_and_holds_the_prompt() -> None:
    (_, command) = examples(AT, PROMPT, "cat")[2]
    script = subprocess.run(["sh", "-c", command], capture_output=True, check=True, text=True).stdout
    constants = [node.value for node in ast.walk(ast.parse(script)) if isinstance(node, ast.Constant)]
    assert PROMPT in constants


def test_the_announcement_names_every_address_and_every_example() -> None:
    text = announcement(AT, [("first", "run this")], "the.log")
    assert text.splitlines() == [
        "",
        "Ready.",
        "  HTTP     http://127.0.0.1:8000",
        "  gRPC     127.0.0.1:8001",
        "  metrics  http://127.0.0.1:8002/metrics",
        "  OpenAI   http://127.0.0.1:8003/v1",
        "  try it   http://127.0.0.1:8003/",
        "  log      the.log",
        "",
        "# first",
        "run this",
        "",
        "Ctrl-C stops the server.",
    ]
