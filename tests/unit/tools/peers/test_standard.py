"""The dispatcher of standard serving calls the right server with the right text for every token."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from tools.peers.processes import family, since, usage
from tools.peers.programs.llama_server import gguf_name
from tools.peers.servers import Launch, PeerServerError, running
from tools.peers.standard import LlamaCpp, Ours, Standard, StandardError, Vllm
from tools.peers.workload import Coins, Question

QUESTION = Question(ids=(7, 8), output_tokens=30, seed=5, client=2, coins=Coins(0.35))


@dataclass
class Counting:
    """A server whose next token is the length of the text, plus `base`."""

    base: int
    url: str = ""
    asked: list[list[int]] = field(default_factory=list)

    def body(self, ids: Sequence[int], client: int) -> Mapping[str, Any]:
        return {"ids": list(ids), "base": self.base, "client": client}

    def token(self, answer: Mapping[str, Any]) -> int:
        self.asked.append(answer["ids"])
        return int(answer["token"])


async def next_token(request: web.Request) -> web.Response:
    body = await request.json()
    if body["base"] < 0:
        return web.json_response({"error": "too long"}, status=400)
    return web.json_response({**body, "token": body["base"] + len(body["ids"])})


async def answers(small: Counting, large: Counting) -> list[tuple[int, int]]:
    app = web.Application()
    app.router.add_post("/", next_token)
    async with TestServer(app) as server, ClientSession() as session:
        small.url = large.url = str(server.make_url("/"))
        return [step async for step in Standard([small, large], session, []).answer(QUESTION)]


def test_the_large_model_writes_what_the_coin_says_and_sees_the_whole_text() -> None:
    small, large = Counting(100), Counting(200)
    steps = asyncio.run(answers(small, large))

    coins = random.Random(QUESTION.seed)
    written = [coins.random() < QUESTION.coins.leave for _ in range(30)]
    assert steps == [(1, int(is_large)) for is_large in written]
    text = [7, 8]
    for length, is_large in enumerate(written, start=2):
        text.append((200 if is_large else 100) + length)
    assert small.asked == [text[:length] for length in range(2, 32)]
    assert large.asked == [text[:length] for length, is_large in enumerate(written, start=2) if is_large]


def test_a_call_that_is_refused_says_what_the_server_said() -> None:
    with pytest.raises(StandardError, match=r"answered 400: .*too long"):
        asyncio.run(answers(Counting(-1), Counting(200)))


def test_each_server_is_asked_for_one_greedy_token_in_its_own_words() -> None:
    assert Ours("u").token({"output_ids": 9}) == 9
    assert Ours("u").body([1, 2], 3)["request_output_len"] == 1
    assert Vllm("u", "m").token({"choices": [{"token_ids": [9]}]}) == 9
    assert Vllm("u", "m").body([1, 2], 3)["max_tokens"] == 1
    assert LlamaCpp("u").token({"tokens": [9]}) == 9
    assert LlamaCpp("u").body([1, 2], 3)["id_slot"] == 3


def test_a_server_that_is_gone_is_the_fault_of_its_system_only() -> None:
    async def ask() -> None:
        gone = Counting(100, "http://127.0.0.1:1/")
        async with ClientSession() as session:
            await anext(Standard([gone, gone], session, []).answer(QUESTION))

    with pytest.raises(StandardError, match=r"127\.0\.0\.1:1"):
        asyncio.run(ask())


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("model.embed_tokens.weight", "token_embd.weight"),
        ("model.norm.weight", "output_norm.weight"),
        ("model.layers.12.self_attn.q_norm.weight", "blk.12.attn_q_norm.weight"),
        ("model.layers.0.mlp.down_proj.weight", "blk.0.ffn_down.weight"),
    ],
)
def test_tensors_have_a_name_in_gguf(name: str, wanted: str) -> None:
    assert gguf_name(name) == wanted


SERVER = """
import http.server, sys
class Fine(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *ignored): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Fine).serve_forever()
"""


def test_a_server_runs_until_the_block_ends(tmp_path: Path) -> None:
    launch = Launch([sys.executable, "-c", SERVER, "{port}"], tmp_path / "log", {})
    with running(launch) as (found,):
        pid = found.pid
        assert os.path.exists(f"/proc/{pid}")

    assert not os.path.exists(f"/proc/{pid}")


def test_a_server_that_ends_at_once_is_reported_with_its_log(tmp_path: Path) -> None:
    launch = Launch([sys.executable, "-c", "raise SystemExit('no such model')"], tmp_path / "log", {})

    with pytest.raises(PeerServerError, match="no such model"), running(launch):
        raise AssertionError("it was never ready")


def test_usage_counts_the_children_of_a_process() -> None:
    before = usage([os.getpid()])
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert {os.getpid(), child.pid} <= set(family([os.getpid()]))
        used = since(before, usage([os.getpid()]))
        assert used.cpu_s >= 0
        assert used.peak_rss_mb > 1
    finally:
        child.communicate()
