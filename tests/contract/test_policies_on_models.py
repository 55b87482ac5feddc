"""Every algorithm over real subservers answers what its sequential definition answers on transformers.

500 random requests of each, a quarter in each scheduling mode: ragged prompts, 1 to 64 tokens, an end by
either model, stop strings, 1 to 16 at once. Requests of all algorithms share batches, and the pools are
so small that parked caches are evicted.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from python_backend.loops.base import Ask
from tests.contract import heads
from tests.contract.algorithms import ENDS, PAIR, SMALL, THREE, Case, deployment, writers
from tests.contract.readings import ModelWriter
from tests.contract.routed_system import Client, RoutedSystem
from tests.oracle import Answer
from tests.published_routers import VOCAB
from tests.tiny_models import tiny_model_dir

REQUESTS = 126
"""Of each algorithm in each mode: 125, and some to spare for scores that are too close to a cutoff."""
CLOSE = 2e-6
"""What float32 may make of a head's score."""
MODES = [*((2, mode) for mode in ("delayed", "eager_async", "step_sync", "model_sync")), (3, "delayed")]
AT_ONCE = ((0.02, 1), (0.1, 5), (1.0, 16))
"""(share of the requests, how many of them are open at once)."""
TOGETHER = 64
"""Texts that are read in one pass of the reference."""

Job = tuple[str, Case, Ask]


def asked(case: Case, rng: random.Random) -> Ask:
    """Half stream, one in eight has stop strings; most answers are short."""
    prompt = tuple(rng.choices(range(9, VOCAB), k=rng.randint(1, 40)))
    most = rng.choice((1, 64, *[1 + int(rng.expovariate(1 / 6))] * 8))
    stop = (f"w{rng.randint(9, VOCAB - 1)}", f"{rng.randint(0, 9)} w1") if rng.random() < 0.125 else ()
    return Ask(
        input_ids=prompt,
        max_tokens=min(most, 64),
        seed=rng.randrange(2**40),
        stop=stop,
        is_streaming=rng.random() < 0.5,
        policy=case.policy,
        policy_params=case.params,
    )


def drawn(models: int) -> list[Job]:
    rng = random.Random(models)
    cases = PAIR if models == 2 else THREE
    return [(name, case, asked(case, rng)) for _ in range(REQUESTS) for name, case in cases.items()]


def answered(system: RoutedSystem, jobs: Sequence[Job]) -> list[Client]:
    """One client per job; few at once in the beginning, then many."""
    clients: list[Client] = []
    for share, at_once in AT_ONCE:
        part = jobs[len(clients) : round(share * len(jobs))]
        clients += system.answers([ask for _, _, ask in part], at_once)
    return clients


def stopped_at(ask: Ask, tokens: Sequence[int], tokenizer: Tokenizer) -> int | None:
    """The number of tokens that first completes a stop string, if one is completed."""
    for length in range(1, len(tokens) + 1 if ask.stop else 1):
        text = tokenizer.decode(tokens[:length], skip_special_tokens=True)
        if any(stop in text for stop in ask.stop):
            return length
    return None


class Referee:
    """Judges answers by the definitions; what depends on a hair is not judged, and counted."""

    def __init__(self, models: int) -> None:
        self.judged: dict[str, int] = {}
        self.stopped = 0
        self.enders: set[int] = set()
        self.authors: set[int] = set()
        self.discarded = 0
        self._writers = writers(models)
        self._tokenizer = Tokenizer.from_file(str(tiny_model_dir(SMALL) / "tokenizer.json"))

    def judge(self, jobs: Sequence[Job], clients: Sequence[Client]) -> None:
        for start in range(0, len(jobs), TOGETHER):
            part = list(zip(jobs[start : start + TOGETHER], clients[start : start + TOGETHER], strict=True))
            prompts = [ask.input_ids or () for (_, _, ask), _ in part]
            pairs = zip(prompts, part, strict=True)
            texts = [(len(prompt), [*prompt, *client.tokens]) for prompt, (_, client) in pairs]
            for writer in self._writers:
                writer.guess(texts)
            for (name, case, ask), client in part:
                self._judge(name, case, ask, client)

    def _judge(self, name: str, case: Case, ask: Ask, client: Client) -> None:
        answer = Answer(ask.input_ids or (), ask.max_tokens or 0, ask.seed or 0, ends=ENDS)
        small = self._writers[0]
        small.closest = 1.0
        case.rule(self._writers, answer)  # type: ignore[arg-type]
        if small.closest < CLOSE:
            return
        self.judged[name] = self.judged.get(name, 0) + 1
        length, end = stopped_at(ask, answer.tokens, self._tokenizer), client.finish
        expected = answer.tokens[:length], answer.authors[:length], "stop" if length else answer.reason
        assert (client.tokens, client.authors, end.reason.value) == expected, (name, ask)
        # What a stop string cut short may have cost more by the time the models heard of it.
        assert length or end.discarded_tokens == answer.discarded, (name, ask, end)
        self.stopped += length is not None
        self.enders |= {answer.authors[-1]} if answer.reason == "stop" else set()
        self.authors |= set(answer.authors)
        self.discarded += answer.discarded


@pytest.mark.parametrize(("models", "mode"), MODES)
def test_every_algorithm_in_shared_batches_answers_as_its_definition_says(
    models: int, mode: str, tmp_path: Path
) -> None:
    jobs, referee = drawn(models), Referee(models)
    loaded = heads.write_heads(tmp_path, SMALL)
    with RoutedSystem(deployment(models, loaded, mode=mode), tmp_path) as system:
        torch.set_num_threads(1)
        clients = answered(system, jobs)
        figures = system.settled_figures()

    referee.judge(jobs, clients)
    cases = PAIR if models == 2 else THREE
    assert {name for name in cases if referee.judged[name] >= REQUESTS - 1} == set(cases), referee.judged
    assert referee.authors == referee.enders == set(range(models))
    assert referee.stopped > 10 and referee.discarded > 0
    assert all(one["sampled"] == one["committed"] + one["discarded"] for one in figures)
    assert all(one["held"] == 0 for one in figures), "nothing is left undecided"
    assert sum(one["committed"] for one in figures) >= sum(len(client.tokens) for client in clients)
    evicted = [sum(one[name] for one in figures) for name in ("parked_evictions", "recomputes")]
    assert min(evicted) > 0, evicted


def test_what_is_read_along_is_read_as_by_itself() -> None:
    """Reading many texts at once makes the reference fast, and must not make it another one."""
    rng = random.Random(7)
    texts = [(1, rng.choices(range(9, VOCAB), k=rng.randint(1, 60))) for _ in range(30)]
    for along in writers(2):
        apart = ModelWriter(along.model, along.source, VOCAB, along.cutoffs)
        along.guess(texts)
        for _, text in texts:
            length = rng.randint(1, len(text))
            ours, theirs = along.read(text[:length]), apart.read(text[:length])
            assert (ours.token, ours.scores.keys()) == (theirs.token, theirs.scores.keys())
            assert ours[1:3] == pytest.approx(theirs[1:3], abs=CLOSE)
            assert list(ours.scores.values()) == pytest.approx(list(theirs.scores.values()), abs=CLOSE)
            assert along.nll(text[:length], 9) == pytest.approx(apart.nll(text[:length], 9), abs=CLOSE)
