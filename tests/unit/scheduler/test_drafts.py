"""Tokens that are held back: what is shown, sent, verified, taken back, counted. Outputs written by hand."""

from __future__ import annotations

from collections.abc import Sequence as Sequences

import numpy as np
import pytest

from router_backend.core.effects import Close, Emit, Reason, Send
from router_backend.core.request import ModelIndex, PolicySpec, RequestId, Sampling
from router_backend.core.sequence import Sequence
from router_backend.handoff.codec import pack, unpack
from router_backend.handoff.ledger import handoff_to
from router_backend.handoff.message import Finished, Handoff
from router_backend.policies.base import BaseRouter, Place
from router_backend.policies.guard import GuardedRouter
from router_backend.scheduler.batch import DraftReading, StepOutput
from router_backend.scheduler.scheduler import Scheduler
from tests.builders import EOS, NAMES, VOCAB, closes, emitted, handoffs, key, plan, request, scheduler

SMALL, LARGE = ModelIndex(0), ModelIndex(1)
R = RequestId("r")
SPECULATIVE = PolicySpec("speculative", (("k", 3),))
CASCADE = PolicySpec("cascade", (("cutoff", 0.5),))


def step(chosen: Scheduler, token: int, own: Sequences[int] = (), probability: float = 1.0) -> list:
    """One step of a single row; `own` are the model's own tokens in place of a draft."""
    reading = DraftReading(np.array([own]), np.zeros((1, len(own)), np.float32)) if own else None
    logprobs = np.log(np.array([probability], dtype=np.float32))
    planned = plan(chosen)
    assert planned.rows[0].draft == len(own), planned
    output = StepOutput(np.array([token]), logprobs, draft=reading)
    return chosen.apply(planned, output, 0.0)


def counts(chosen: Scheduler) -> tuple[int, int, int]:
    """(committed, discarded, held) here; they add up to what was sampled."""
    chosen.check_integrity()
    return chosen.counters.committed, chosen.counters.discarded, chosen.gauges()["held"]


def drafted(tokens: Sequences[int] = (40, 41, 42), **changes: int) -> tuple[Scheduler, Scheduler, Handoff]:
    """A small model that has handed its draft over, a large one, and the message between them."""
    small, large = scheduler(0), scheduler(1, **changes)
    small.admit(request(policy=SPECULATIVE), 0.0)
    for token in tokens[:-1]:
        assert step(small, token) == [], "what is held back is shown to nobody"
    (message,) = handoffs(step(small, tokens[-1]))
    return small, large, message


def test_a_draft_travels_as_provisional_and_stays_counted_as_held():
    small, _, message = drafted()
    assert (message.token_ids, message.provisional, message.committed_len) == ((1, 2, 3, 40, 41, 42), 3, 3)
    assert (message.seen, message.attempt) == ((6, 6), 0)
    assert counts(small) == (0, 0, 3)


def test_a_draft_is_fed_whole_with_the_token_before_it_and_kept_up_to_the_first_difference():
    small, large, message = drafted()
    large.resume(message, 0.0)
    effects = step(large, 77, own=(40, 50, 42))

    assert emitted(effects) == [(0, (40,)), (1, (50,))]
    assert [effect.model for effect in effects if isinstance(effect, Emit)] == [SMALL, LARGE]
    (back,) = handoffs(effects)
    assert (back.base, back.token_ids, back.seen, back.provisional) == (4, (50,), (5, 5), 0)
    assert counts(large) == (1, 0, 0)

    small.resume(back, 0.0)
    assert counts(small) == (1, 2, 0)
    row = plan(small).rows[0]
    assert (row.token_ids, row.start) == ([50], 4), "the rest of the draft is overwritten"


def test_a_draft_that_is_kept_whole_is_followed_by_the_large_models_own_token():
    small, large, message = drafted()
    large.resume(message, 0.0)
    effects = step(large, 43, own=(40, 41, 42))
    assert emitted(effects) == [(0, (40, 41, 42)), (3, (43,))]
    small.resume(*handoffs(effects), 0.0)
    assert counts(small) == (3, 0, 0)
    assert plan(small).rows[0].token_ids == [42, 43]


def test_an_end_in_a_draft_counts_when_it_is_verified():
    small, large, message = drafted((40, EOS))
    large.resume(message, 0.0)
    effects = step(large, 43, own=(40, EOS))
    assert emitted(effects) == [(0, (40, EOS))]
    (close,) = closes(effects)
    assert (close.reason, close.length, close.usage.discarded) == (Reason.STOP, 2, 1)
    assert effects[-1] == Send(SMALL, Finished(R, 0, LARGE, kept=5))
    assert counts(large) == (0, 1, 0)
    small.on(effects[-1].message, 0.0)
    assert counts(small) == (2, 0, 0)


def test_an_end_that_is_not_verified_ends_nothing():
    _, large, message = drafted((40, EOS))
    large.resume(message, 0.0)
    effects = step(large, 43, own=(40, 44))
    assert (emitted(effects), closes(effects)) == ([(0, (40,)), (1, (44,))], [])


def test_max_tokens_is_an_end_that_is_verified():
    small, large = scheduler(0), scheduler(1)
    small.admit(request(policy=SPECULATIVE, max_tokens=2), 0.0)
    step(small, 40)
    (message,) = handoffs(step(small, 41))
    large.resume(message, 0.0)
    (close,) = closes(step(large, 43, own=(40, 41)))
    assert (close.reason, close.length) == (Reason.LENGTH, 2)


def test_a_cancelled_request_discards_what_it_held():
    small, large, message = drafted()
    assert small.abort(R) == []
    large.resume(message, 0.0)
    (close,) = closes(large.abort(R))
    assert close.length == 0
    assert (counts(small), counts(large)) == ((0, 3, 0), (0, 0, 0))


def test_an_evicted_draft_comes_back_by_recomputing():
    small, large, message = drafted()
    large.resume(message, 0.0)
    (back,) = handoffs(step(large, 77, own=(40, 50, 42)))
    parked = small.roster.queues.parked[key()]
    small.roster.kv.release(parked)
    small.resume(back, 0.0)
    row = plan(small).rows[0]
    assert (row.token_ids, row.start, row.history) == ([1, 2, 3, 40, 50], 0, [1, 2, 3, 40, 50])


def test_no_block_with_a_token_of_a_draft_is_offered_to_others():
    _, large, message = drafted()
    large.resume(message, 0.0)
    planned = plan(large)
    reading = DraftReading(np.array([[50, 0, 0]]), np.zeros((1, 3), np.float32))
    large.apply(planned, StepOutput(np.array([77]), draft=reading), 0.0)
    assert large.roster.kv.pool.num_cached == 0
    large.admit(request("other", prompt=(1, 2, 3, 40, 41, 42)), 0.0)
    assert plan(large).rows[0].start == 0


def test_a_long_prompt_comes_in_chunks_that_end_before_the_draft():
    large = scheduler(1, batch_tokens_max=8)
    asked = request(prompt=tuple(range(1, 12)), policy=SPECULATIVE)
    text = (*asked.prompt, 40, 41, 42)
    there = Handoff(R, 0, SMALL, LARGE, 0, 0, text, (14, 14), 0, 3, asked, provisional=3)
    large.resume(there, 0.0)
    fed = []
    while True:
        planned = plan(large)
        fed.append((planned.rows[0].start, planned.rows[0].end, planned.rows[0].is_sampling))
        if planned.rows[0].is_sampling:
            break
        large.apply(planned, StepOutput(np.zeros(0, np.int64)), 0.0)
    assert fed == [(0, 8, False), (8, 14, True)]
    assert planned.rows[0].draft == 3


def test_a_draft_takes_its_tokens_from_the_rows_behind_it():
    large = scheduler(1, batch_tokens_max=4, batch_max=4)
    asked = request(policy=SPECULATIVE)
    text = (1, 2, 3, 40, 41)
    large.resume(Handoff(R, 0, SMALL, LARGE, 0, 0, text, (5, 5), 0, 2, asked, provisional=2), 0.0)
    for name in "abc":
        large.admit(request(name, prompt=(9,)), 0.0)
    first = plan(large)
    assert [(row.request_id, row.start, row.end) for row in first.rows] == [("r", 0, 2)] + [
        (name, 0, 1) for name in "ab"
    ]


@pytest.mark.parametrize(
    ("limits", "cure"),
    [
        ({"batch_tokens_max": 3, "batch_max": 3}, "can verify 2 in a step: lower the policy's k or raise"),
        ({"draft_max": 0}, "can verify 0 in a step: choose another policy"),
    ],
)
def test_a_draft_that_no_step_can_verify_ends_its_request_with_a_cure(limits: dict[str, int], cure: str):
    large = scheduler(1, **limits)
    asked = request(policy=SPECULATIVE)
    there = Handoff(R, 0, SMALL, LARGE, 0, 0, (1, 2, 3, 40, 41, 42), (6, 6), 0, 3, asked, provisional=3)
    (close,) = closes(large.resume(there, 0.0))
    assert close.message.startswith("TR_CAPACITY: a draft of 3 tokens, this model") and cure in close.message
    assert len(large.roster.queues) == 0


def test_an_accepted_level_is_shown_at_its_end_all_at_once():
    small = scheduler(0)
    small.admit(request(policy=CASCADE, max_tokens=2), 0.0)
    assert step(small, 40, probability=0.9) == []
    effects = step(small, 41, probability=0.9)
    assert emitted(effects) == [(0, (40, 41))]
    assert isinstance(effects[1], Close) and effects[1].usage.discarded == 0
    assert counts(small) == (2, 0, 0)


def test_a_refused_level_leaves_no_trace_in_the_next_one():
    small, large = scheduler(0), scheduler(1)
    small.admit(request(policy=CASCADE, max_tokens=2), 0.0)
    step(small, 40, probability=0.1)
    (message,) = handoffs(step(small, 41, probability=0.1))
    assert (message.token_ids, message.provisional) == ((1, 2, 3), 0)
    assert counts(small) == (0, 2, 0)
    large.resume(message, 0.0)
    assert emitted(step(large, 50)) == [(0, (50,))], "the last level streams"
    (close,) = closes(step(large, 51))
    assert (close.length, close.usage.discarded) == (2, 2)


def test_a_draft_for_a_policy_that_verifies_none_is_that_policys_fault():
    large = scheduler(1)
    there = Handoff(R, 0, SMALL, LARGE, 0, 0, (1, 2, 3, 40), (4, 4), 0, 1, request(), provisional=1)
    large.resume(there, 0.0)
    (close,) = closes(step(large, 9, own=(40,)))
    assert close.message.startswith("TR_POLICY: fixed.verify")
    assert counts(large) == (0, 1, 0)


class Holding(BaseRouter):
    """Holds everything back; subclasses answer nonsense."""

    holds_back = True

    def at_end(self, sequence: Sequence) -> ModelIndex | None:
        return None


class Raising(Holding):
    def at_end(self, sequence: Sequence) -> ModelIndex | None:
        raise RuntimeError("no")


class Itself(Holding):
    def at_end(self, sequence: Sequence) -> ModelIndex | None:
        return self.place.model


class Committing(Holding):
    """Hands over as if what it held were committed."""

    def at_end(self, sequence: Sequence) -> ModelIndex | None:
        return LARGE

    def send(self, sequence: Sequence, target: ModelIndex) -> Handoff:
        return handoff_to(sequence, target).replaced(provisional=0)


class Spinning(Committing):
    """Throws everything away for ever."""

    def send(self, sequence: Sequence, target: ModelIndex) -> Handoff:
        sequence.raw_steps = 10**6
        return handoff_to(sequence, target, drop=sequence.held)


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (Raising, "TR_POLICY: mine.at_end: RuntimeError: no"),
        (Itself, "TR_POLICY: fixed.at_end: answered 0, which is no peer"),
        (Committing, "TR_POLICY: fixed.send: made a message for model 1 that ends at 4 with a draft of 0"),
        (Spinning, "TR_LIVELOCK: 1000000 tokens sampled for 0 kept"),
    ],
)
def test_a_policy_that_holds_back_wrongly_costs_its_own_request(kind: type[Holding], complaint: str):
    small = scheduler(0)
    small.admit(request(max_tokens=1), 0.0)
    small.roster.queues.ready[key()].router = GuardedRouter("mine", kind(Place(SMALL, NAMES, SMALL, VOCAB)))
    (close,) = closes(step(small, 40))
    assert close.message == complaint
    assert counts(small) == (0, 1, 0)


def test_a_peer_that_dies_with_a_draft_costs_the_draft():
    small, _, _ = drafted()
    (close,) = closes(small.lose_peer(LARGE))
    assert (close.length, counts(small)) == (0, (0, 3, 0))


def test_the_author_of_each_token_tells_how_likely_it_found_it():
    asked = request(policy=SPECULATIVE, sampling=Sampling(logprobs=0))
    small, large = scheduler(0), scheduler(1)
    small.admit(asked, 0.0)
    for token, probability in ((40, 0.5), (41, 0.25)):
        step(small, token, probability=probability)
    (message,) = handoffs(step(small, 42, probability=0.5))
    large.resume(unpack(pack(message)), 0.0)
    reading = DraftReading(
        np.array([[40, 50, 42]]), np.zeros((1, 3), np.float32), np.array([[-1, -2, -3]], np.float32)
    )
    effects = large.apply(plan(large), StepOutput(np.array([77]), np.array([-9.0]), draft=reading), 0.0)
    told = [[one.own for one in effect.logprobs] for effect in effects if isinstance(effect, Emit)]
    assert told == [[pytest.approx(np.log(0.5))], [-2.0]]


def test_an_accepted_level_tells_the_same_of_all_its_tokens():
    small = scheduler(0)
    small.admit(request(policy=CASCADE, max_tokens=2, sampling=Sampling(logprobs=0)), 0.0)
    step(small, 40, probability=0.5)
    (emit, *_) = step(small, 41, probability=1.0)
    assert [one.own for one in emit.logprobs] == [pytest.approx(np.log(0.5)), 0.0]
