"""A real Triton whose models are emulated TensorRT-LLM engines, the large one on two ranks.

All five policies at sixteen clients: every text and every author is the sequential reference's. The engine
in each subserver is the one that a container would load, but for the package behind its import.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tokenizers import Tokenizer

from python_backend.config import parse_deployment
from tests import oracle, reference
from tests.contract import heads
from tests.contract import test_router_heads as published
from tests.contract.emulated import EMULATOR, ENVIRONMENT, Build, lay_out
from tests.published_routers import VOCAB
from tests.reference import LARGE, SMALL, Answer, Reader, Rule
from tests.server.clients import eventually, generate, metric
from tests.server.conftest import assert_nothing_left
from tests.server.repository import options
from tests.tiny_models import tiny_model_dir
from tools.make_repository import repository_files, write
from tools.triton_layout import TOKEN_ROUTER_BACKEND
from tools.triton_server import TritonServer, children

pytestmark = pytest.mark.server

CLIENTS = 16
REQUESTS = 6
"""Of each policy."""
WEIGHTS = {"small": 0.6, "large": 0.4}
NAMES = ("small", "large")
BUILDS = (
    Build(max_batch_size=16, max_num_tokens=256, max_seq_len=128, is_tapped=True),
    Build(max_batch_size=16, max_num_tokens=256, max_seq_len=128, tp_size=2),
)


def repository(folder: Path) -> Path:
    dirs = [tiny_model_dir(model) for model in published.MODELS]
    for name, model_dir, build in zip(NAMES, dirs, BUILDS, strict=True):
        lay_out(folder / name / "1", model_dir, build)
    loaded = {name: f"heads/{place}" for name, place in write_heads(folder / "heads").items()}
    base = {"engine": "trtllm", "kv_tokens": 1024, "batch_max": 16, "batch_tokens_max": 64}
    models = [
        {**base, "name": "small", "threshold": 3, "heads": loaded},
        {**base, "name": "large", "threshold": 2, "tensor_parallel": 2, "resume": "align"},
    ]
    text = yaml.safe_dump({"models": models, "deadline_ms": 5, "policy": {"name": "r_stitch"}})
    (folder / "deployment.yaml").write_text(text)
    write(repository_files(parse_deployment(text, "test")), folder)
    return folder


def write_heads(folder: Path) -> dict[str, str]:
    folder.mkdir()
    return heads.write_heads(folder, published.MODELS[SMALL])


def backend(folder: Path) -> Path:
    """Ours with the emulated package in it: Triton's Python process reads no PYTHONPATH, its ranks do."""
    shutil.copytree(EMULATOR, folder, ignore=shutil.ignore_patterns("__pycache__", "mpirun"))
    shutil.copytree(TOKEN_ROUTER_BACKEND, folder, dirs_exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    torch.set_num_threads(1)  # the references' products are tiny
    folder = tmp_path_factory.mktemp("trtllm")
    chosen = options(
        repository(folder / "repository"),
        folder / "run",
        backends=(backend(folder / "token_router"),),
        load_models=("token_router", *NAMES),
        environment={**ENVIRONMENT, "OMP_NUM_THREADS": "1"},
    )
    started = TritonServer(chosen)
    with started:
        pids = [*started.stubs().values(), *ranks(started)]
        yield started
    assert_nothing_left(started, pids)


def ranks(server: TritonServer) -> list[int]:
    """Process ids of the large model's ranks."""
    (mpirun,) = children(server.stubs()["large"])
    assert str(EMULATOR / "mpirun") in Path(f"/proc/{mpirun}/cmdline").read_text().split("\0")
    return children(mpirun)


@dataclass(frozen=True)
class Job:
    """One request and what its sequential reference answers."""

    prompt: tuple[int, ...]
    max_tokens: int
    seed: int
    policy: str
    params: dict[str, Any]
    expected: Answer


def stitched(prompt: Sequence[int], most: int, seed: int) -> Answer:
    small, large = (Reader(model, VOCAB) for model in published.models())
    return reference.generate_routed((small, large), prompt, most, published.EOS_IDS, Rule(cutoff=0.45))


def mixed(prompt: Sequence[int], most: int, seed: int) -> Answer:
    """Who writes is drawn anew for every position."""
    answer, text = Answer(), list(prompt)
    while len(answer.tokens) < most and answer.reason != "stop":
        draw = oracle.uniform(seed, len(text), oracle.AUTHOR_TAG)
        author = SMALL if draw < WEIGHTS["small"] else LARGE
        text.append(published.read(author, text).token)
        answer.tokens.append(text[-1])
        answer.authors.append(author)
        answer.reason = "stop" if text[-1] in published.EOS_IDS else "length"
    return answer


def scored(score: published.Score, fires: Callable[[float], bool]) -> Callable[..., Answer]:
    def answer(prompt: Sequence[int], most: int, seed: int) -> Answer:
        ask = published.Ask(input_ids=tuple(prompt), max_tokens=most)
        return published.sequential(ask, lambda step: fires(score(step)))[0]

    return answer


POLICIES: dict[str, tuple[dict[str, Any], Callable[..., Answer]]] = {
    "r_stitch": ({"cutoff": 0.45}, stitched),
    "mixture": (WEIGHTS, mixed),
    "citer": ({"cutoff": 0.1}, scored(published.confidence, lambda score: score < 0.1)),
    "r2r": ({"cutoff": 0.45}, scored(published.divergence, lambda score: score >= 0.45)),
    "co_llm": ({"cutoff": 0.55}, scored(published.deferral, lambda score: score > 0.55)),
}


def jobs() -> list[Job]:
    rng, found = random.Random(12), []
    for number in range(REQUESTS * len(POLICIES)):
        policy = list(POLICIES)[number % len(POLICIES)]
        params, answer = POLICIES[policy]
        prompt = tuple(rng.choices(range(9, VOCAB), k=rng.randint(1, 24)))
        most, seed = rng.randint(2, 16), rng.randrange(2**32)
        found.append(Job(prompt, most, seed, policy, params, answer(prompt, most, seed)))
    return found


def test_every_policy_answers_on_triton_what_its_sequential_reference_answers(server: TritonServer) -> None:
    tokenizer = Tokenizer.from_file(str(tiny_model_dir(published.MODELS[SMALL]) / "tokenizer.json"))
    asked = jobs()

    def told(job: Job) -> dict[str, Any]:
        answer = generate(
            server,
            "token_router",
            text_input=tokenizer.decode(job.prompt),
            max_tokens=job.max_tokens,
            seed=job.seed,
            routing_algorithm=job.policy,
            routing_config=json.dumps(job.params),
            return_routing=True,
        )
        assert answer.status == 200, answer
        return answer.body

    with ThreadPoolExecutor(CLIENTS) as pool:
        answers = list(pool.map(told, asked))

    for job, body in zip(asked, answers, strict=True):
        tokens = [token for token in job.expected.tokens if token not in published.EOS_IDS]
        sources = body["token_source"]
        assert body["text_output"] == tokenizer.decode(tokens), job
        assert (sources if isinstance(sources, list) else [sources]) == job.expected.authors, job
    assert {author for job in asked for author in job.expected.authors} == {SMALL, LARGE}
    assert eventually(lambda: metric(server, "token_router_resume_total", model="large", kind="direct") > 0)


def test_a_lost_rank_ends_its_requests_with_an_error_and_is_seen(server: TritonServer) -> None:
    """Last in this file: the large model does not come back without a supervisor."""
    os.kill(ranks(server)[1], signal.SIGKILL)
    answer = generate(
        server,
        "token_router",
        text_input="w9 w10 w11",
        max_tokens=8,
        routing_algorithm="r_stitch",
        routing_config=json.dumps({"cutoff": -1.0}),
    )
    assert answer.error.startswith(("TR_RUNNER: ", "TR_PEER_LOST: ")), answer
    assert eventually(lambda: metric(server, "token_router_peer_up", door="token_router", model="large") == 0)
