"""Wherever the right to append wanders: each model gets each token once, and nobody else's message counts."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from router_backend.core.request import ModelIndex
from router_backend.core.sequence import Sequence
from router_backend.handoff.ledger import Arrival, classify, handoff_to
from router_backend.handoff.message import Handoff
from tests.builders import request

PROMPT = (1, 2, 3)
MOVES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.booleans()), max_size=20)
"""Target, tokens committed before the move, and whether one more was sampled and is dropped."""


@dataclass
class Wandering:
    """The copies of one request on `models` models; only what hand-offs say moves tokens between them."""

    models: int
    here: int = 0
    copies: list[Sequence] = field(init=False)
    received: list[list[int]] = field(init=False)
    committed: list[int] = field(default_factory=lambda: list(PROMPT))
    sent: list[Handoff] = field(default_factory=list)

    def __post_init__(self) -> None:
        asked = request("r", PROMPT, max_tokens=100)
        self.copies = [Sequence(asked, ModelIndex(m), 0, [], [0] * self.models) for m in range(self.models)]
        self.copies[0].tokens = list(PROMPT)
        self.copies[0].seen[0] = len(PROMPT)
        self.received = [[] for _ in range(self.models)]

    def write(self, count: int) -> None:
        owner = self.copies[self.here]
        for _ in range(count):
            owner.tokens.append(len(self.committed) + 100)
            self.committed.append(owner.tokens[-1])
        owner.seen[self.here] = len(owner.tokens)

    def move(self, target: int, is_dropping: bool) -> Handoff:
        owner, taker = self.copies[self.here], self.copies[target]
        if is_dropping:
            owner.tokens.append(-1)
        handoff = handoff_to(owner, ModelIndex(target), drop=int(is_dropping))
        del owner.tokens[handoff.loc :]
        owner.last_seq, owner.seen = handoff.seq, list(handoff.seen)
        assert classify(handoff, taker.last_seq, len(taker.tokens)) is Arrival.NEXT
        self.received[target] += handoff.token_ids
        taker.tokens += handoff.token_ids
        taker.last_seq, taker.seen, taker.attempt = handoff.seq, list(handoff.seen), handoff.attempt
        self.here = target
        self.sent.append(handoff)
        return handoff


@given(models=st.integers(2, 4), moves=MOVES)
def test_a_hand_off_is_exactly_what_its_target_has_not_seen(
    models: int, moves: list[tuple[int, int, bool]]
) -> None:
    wandering = Wandering(models)
    wrote: list[list[int]] = [[] for _ in range(models)]
    for target, count, is_dropping in moves:
        before = len(wandering.committed)
        wandering.write(count)
        wrote[wandering.here] += wandering.committed[before:]
        if target % models == wandering.here:
            continue
        held = len(wandering.copies[target % models].tokens)
        handoff = wandering.move(target % models, is_dropping)
        assert handoff.base == held
        assert list(handoff.token_ids) == wandering.committed[held:]
        assert (handoff.request is None) == (held > 0)
        assert [len(copy.tokens) for copy in wandering.copies] == list(handoff.seen)
    for copy, received, written in zip(wandering.copies, wandering.received, wrote, strict=True):
        assert copy.tokens == wandering.committed[: len(copy.tokens)]
        told = [*received, *written]
        assert len(told) == len(set(told)), "a token was told twice"


@given(models=st.integers(2, 4), moves=MOVES)
def test_what_was_received_before_is_a_duplicate_ever_after(
    models: int, moves: list[tuple[int, int, bool]]
) -> None:
    wandering = Wandering(models)
    for target, count, is_dropping in moves:
        wandering.write(count)
        if target % models != wandering.here:
            wandering.move(target % models, is_dropping)
    for handoff in wandering.sent:
        copy = wandering.copies[handoff.target]
        assert classify(handoff, copy.last_seq, len(copy.tokens)) is Arrival.DUPLICATE


@given(held=st.integers(0, 5), base=st.integers(0, 10), last_seq=st.integers(-1, 5))
def test_a_gap_is_a_new_message_that_starts_beyond_what_is_held(held: int, base: int, last_seq: int) -> None:
    sequence = Sequence(request("r", PROMPT), ModelIndex(0), 0, list(range(12)), [12, base])
    sequence.last_seq = 2
    handoff = handoff_to(sequence, ModelIndex(1))
    expected = Arrival.DUPLICATE if last_seq >= 3 else Arrival.GAP if base > held else Arrival.NEXT
    assert classify(handoff, last_seq, held) is expected
