"""Both doors of a real server, sixteen clients at once: the reference's text, and its price on /metrics."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tests.contract.demand import CLEAR, Job, Pair, demo_pair, stitch
from tests.contract.sequential import Sequential
from tests.contract.verdict import cutoff_nats, figures_of, referred, shown_text
from tests.server.clients import eventually, generate, metric, settled, stream, text_of
from tests.server.test_doors import DEMO, DOORS
from tools.triton_server import TritonServer

pytestmark = pytest.mark.server

PAIR = demo_pair("float32")
MODELS = ("small", "large")
CLIENTS = 16
DEMOS = 40
RANDOMS = 8
COUNTED = (
    "tokens_sampled",
    "tokens_committed",
    "tokens_discarded",
    "handoffs_received",
    "handoff_tokens",
    "returns",
    "direct_resumes",
    "recomputes",
    "prefix_lookups_on_return",
)
RESUMES = {"direct_resumes": "direct", "recomputes": "recompute"}


@dataclass(frozen=True)
class Asked:
    """One request as a client writes it; `door` and whether it streams."""

    text: str
    job: Job
    door: str

    @property
    def body(self) -> dict[str, object]:
        name, params, _ = self.job.policy
        return {
            "text_input": self.text,
            "max_tokens": self.job.max_tokens,
            "routing_algorithm": name,
            "routing_config": json.dumps(params),
            "return_routing": True,
        }


def prompts(pair: Pair) -> Iterator[tuple[str, int]]:
    """(text, max_tokens): the demo's questions, then random words."""
    yield from ((demo["prompt"], 20) for demo in DEMO[:DEMOS])
    rng = random.Random(4)
    for _ in range(RANDOMS):
        ids = rng.choices(pair.words, k=round(100 ** rng.random()))
        yield pair.tokenizer.decode(ids), rng.randint(1, 64)


def asks(pair: Pair, cutoff: float) -> list[Asked]:
    """Each prompt streamed at one door and whole at the other."""
    found = []
    for number, (text, max_tokens) in enumerate(prompts(pair)):
        ids = tuple(pair.tokenizer.encode(text).ids)
        for is_streaming in (True, False):
            door = DOORS[(number + is_streaming) % 2]
            found.append(Asked(text, Job(ids, max_tokens, stitch(cutoff), is_streaming), door))
    return found


def told(server: TritonServer, asked: Asked) -> tuple[str, list[int]]:
    """The text that the client sees and who wrote its tokens."""
    if not asked.job.is_streaming:
        answer = generate(server, asked.door, **asked.body)
        assert answer.status == 200, answer
        return answer.body["text_output"], _sources(answer.body)
    events = stream(server, asked.door, **asked.body)
    assert not any("error" in event for event in events), events
    return text_of(events), [source for event in events for source in _sources(event)]


def _sources(body: dict[str, object]) -> list[int]:
    """JSON of a tensor with one element is that element."""
    found = body.get("token_source", [])
    return list(found) if isinstance(found, list) else [int(str(found))]


def referee(pair: Pair, asked: Asked, text: str) -> Sequential:
    """The reference; the text that the client saw is the guess."""
    ids = pair.tokenizer.encode(text, add_special_tokens=False).ids
    return referred(pair, asked.job, [*ids, *pair.referee.eos_ids][: asked.job.max_tokens])


def shown(server: TritonServer, name: str, model: str) -> float:
    """What the metrics page says that a model has counted."""
    kind = RESUMES.get(name)
    if kind is not None:
        return metric(server, "token_router_resume_total", model=model, kind=kind)
    return metric(server, f"token_router_{name}_total", model=model)


def counts(server: TritonServer) -> list[dict[str, float]]:
    return [
        {name: shown(server, name, model) for name in COUNTED}
        for model in MODELS
    ]


def grown(before: list[dict[str, float]], after: list[dict[str, float]]) -> list[dict[str, float]]:
    return [{name: new[name] - old[name] for name in COUNTED} for old, new in zip(before, after, strict=True)]


def expected_counts(runs: list[Sequential]) -> list[dict[str, float]]:
    figures = [figures_of(runs, model) for model in range(len(MODELS))]
    return [{name: one[name.removeprefix("tokens_")] for name in COUNTED} for one in figures]


@contextmanager
def counted(server: TritonServer, runs: list[Sequential]) -> Iterator[None]:
    """While nobody else asks: the page grows by what the `runs` that the block adds must have cost."""
    before = settled(lambda: counts(server))
    assert _live(server) == 0
    yield
    wanted = expected_counts(runs)
    assert eventually(lambda: _live(server) == 0 and grown(before, counts(server)) == wanted), (
        grown(before, counts(server)),
        wanted,
    )


def _live(server: TritonServer) -> float:
    return sum(metric(server, "token_router_live", model=model) for model in MODELS)


@pytest.mark.parametrize("cutoff", PAIR.cutoffs, ids=("low", "middle", "high"))
def test_both_doors_give_the_references_text_and_count_what_it_costs(
    server: TritonServer, cutoff: float
) -> None:
    asked = asks(PAIR, cutoff)
    runs: list[Sequential] = []
    with counted(server, runs):
        with ThreadPoolExecutor(CLIENTS) as pool:
            answers = list(pool.map(lambda one: told(server, one), asked))
        for one, (text, sources) in zip(asked, answers, strict=True):
            run = referee(PAIR, one, text)
            assert run.is_clear(CLEAR, cutoff_nats(PAIR, one.job)), f"float32 may decide otherwise: {one}"
            assert (text, sources) == (shown_text(PAIR, run), run.answer.authors), one
            runs.append(run)
    assert sum(run.answer.handoffs for run in runs) > len(runs)
