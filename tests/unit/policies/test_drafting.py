"""BiLD and speculative decoding: who drafts, what is kept, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from router_backend.core.errors import ConfigError
from router_backend.policies.base import HoldingRouter
from router_backend.policies.drafting import Bild, Speculative, leading
from router_backend.scheduler.batch import DraftReading, Needs, StepBatch, StepOutput
from tests.builders import request
from tests.unit.policies.steps import INF, LARGE, NAN, SMALL, Rows, policy, sequence


def drafting(name: str, model: int, **params: float) -> Bild | Speculative:
    made = policy(name, model, **params)
    assert isinstance(made, Bild | Speculative)
    return made


def drafts(*rows: list[tuple[int, int, float]]) -> StepBatch:
    """One row per list of (drafted token, the model's own, -ln p)."""
    sequences = []
    shape = (len(rows), max(map(len, rows)))
    own, nll = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.float32)
    for line, row in enumerate(rows):
        made = sequence()
        made.tokens += [drafted for drafted, _, _ in row]
        made.draft = len(row)
        sequences.append(made)
        own[line, : len(row)] = [token for _, token, _ in row]
        nll[line, : len(row)] = [value for _, _, value in row]
    output = StepOutput(np.zeros(len(rows), dtype=np.int64), draft=DraftReading(own, nll))
    return StepBatch(LARGE, sequences, output)


def test_what_leads_is_counted_up_to_the_first_that_is_not_kept():
    assert leading(np.array([[True, True], [True, False], [False, True]])).tolist() == [2, 1, 0]


def test_only_the_small_side_holds_back_and_only_bild_starts_on_the_large_one():
    for name, entry in (("bild", LARGE), ("speculative", SMALL)):
        sides: list[HoldingRouter] = [drafting(name, model) for model in (SMALL, LARGE)]
        assert [side.holds_back for side in sides] == [True, False]
        assert [side.entry(request()) for side in sides] == [entry, entry]
    assert drafting("bild", SMALL).needs == Needs(max_prob=True)
    assert drafting("bild", LARGE).needs == drafting("speculative", SMALL).needs == Needs()


def test_a_draft_goes_after_k_tokens_and_an_end_is_verified_too():
    small = drafting("speculative", SMALL, k=3)
    assert small.route(Rows(stay=[1, 2, 3]).batch()).tolist() == [0, 0, 1]
    assert small.at_end(sequence()) == LARGE


def test_the_large_side_hands_back_after_every_step():
    assert drafting("bild", LARGE).route(Rows(stay=[1, 2]).batch()).tolist() == [1, 1]


def test_bild_falls_back_where_it_is_unsure_and_drops_that_token_only():
    small = drafting("bild", SMALL, k=2, cutoff=0.5)
    step = Rows(max_prob=[0.4, 0.5, NAN, 0.9], stay=[1, 1, 1, 2]).batch()
    assert (small.route(step).tolist(), step.num_unreadable) == ([1, 0, 0, 1], 1)
    unsure, _, _, full = step.sequences
    for row in (unsure, full):
        row.tokens += [50, 51]
        row.held = 2
    first, last = small.send(unsure, LARGE), small.send(full, LARGE)
    assert (first.provisional, first.token_ids[-1]) == (1, 50)
    assert (last.provisional, last.token_ids[-1]) == (2, 51)
    assert small.send(unsure, LARGE).provisional == 2, "the reason to drop was used once"


def test_speculative_keeps_what_the_large_model_would_have_written():
    step = drafts([(5, 5, 9.0), (6, 7, 0.1), (8, 8, 0.1)], [(5, 5, 0.0)], [(5, 6, 0.0), (5, 5, 0.0)])
    assert drafting("speculative", LARGE).verify(step).tolist() == [1, 1, 0]


def test_bild_rolls_back_to_the_first_unlikely_token():
    step = drafts([(5, 0, 5.0), (6, 0, 5.5), (8, 0, 0.1)], [(5, 0, INF)], [(5, 0, 0.1), (5, 0, 0.1)])
    assert drafting("bild", LARGE).verify(step).tolist() == [1, 0, 2]
    assert drafting("bild", LARGE, rollback_cutoff=INF).verify(step).tolist() == [3, 1, 2]


def test_a_probability_that_is_no_number_keeps_its_token_and_is_counted_once_per_row():
    step = drafts([(5, 0, NAN), (6, 0, NAN), (7, 0, 9.0)], [(5, 0, 0.0)])
    assert drafting("bild", LARGE).verify(step).tolist() == [2, 1]
    assert step.num_unreadable == 1


@pytest.mark.parametrize("name", ["bild", "speculative"])
def test_a_draft_that_could_not_travel_is_refused(name):
    with pytest.raises(ConfigError, match=f"{name}.k: 33 is above 32"):
        policy(name, SMALL, k=33)
