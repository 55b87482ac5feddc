"""Each policy on hand-written numbers: who leaves, who stays, what is kept."""

from __future__ import annotations

import math

import numpy as np
import pytest

from router_backend.core.errors import ConfigError
from router_backend.core.request import ModelIndex, PolicySpec
from router_backend.core.sequence import Sequence
from router_backend.policies.base import BaseRouter, Place, Router
from router_backend.policies.options import Options
from router_backend.policies.r_stitch import cutoff_in_nats
from router_backend.policies.registry import PolicyBook, build
from router_backend.scheduler.batch import Needs, StepBatch, StepOutput
from tests.builders import NAMES, VOCAB, request

SMALL, LARGE = ModelIndex(0), ModelIndex(1)
NAN, INF = float("nan"), float("inf")


def place(model: int, models: int = 2) -> Place:
    return Place(ModelIndex(model), NAMES[:models], SMALL, VOCAB)


def policy(name: str, model: int, models: int = 2, **params: object) -> Router:
    return build(PolicySpec(name, tuple(params.items())), place(model, models))


def sequence(out_step: int = 0, model: int = 0) -> Sequence:
    tokens = [1, 2, 3, *range(out_step)]
    return Sequence(request(), ModelIndex(model), 1, tokens, [len(tokens), 0, 0])


def batch(entropy: list[float] | None = None, steps: list[int] | None = None) -> StepBatch:
    rows = [sequence(out_step) for out_step in steps or [0] * len(entropy or [0])]
    signal = None if entropy is None else np.array(entropy, dtype=np.float32)
    return StepBatch(SMALL, rows, StepOutput(np.zeros(len(rows), dtype=np.int64), entropy=signal))


def test_the_small_model_leaves_above_the_cutoff_and_the_large_one_at_or_below_it():
    step = batch([0.0, 0.5 * math.log(VOCAB), 0.6 * math.log(VOCAB), 4.6])

    assert policy("r_stitch", 0, cutoff=0.55).route(step).tolist() == [0, 0, 1, 1]
    assert policy("r_stitch", 1, cutoff=0.55).route(step).tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize(("cutoff", "leaves"), [(-1.0, [1, 1]), (1.1, [0, 0]), (INF, [0, 0])])
def test_an_extreme_cutoff_always_or_never_routes(cutoff, leaves):
    assert policy("r_stitch", 0, cutoff=cutoff).route(batch([0.0, 4.6])).tolist() == leaves
    assert policy("r_stitch", 1, cutoff=cutoff).route(batch([0.0, 4.6])).tolist() == [1 - x for x in leaves]


def test_a_sick_row_stays_small_and_returns_from_large():
    assert policy("r_stitch", 0, cutoff=0.1).route(batch([NAN])).tolist() == [0]
    assert policy("r_stitch", 1, cutoff=0.1).route(batch([NAN])).tolist() == [1]


def test_the_small_model_discards_and_the_large_one_keeps():
    assert policy("r_stitch", 0).send(sequence(1), LARGE).loc == 3
    assert policy("r_stitch", 1).send(sequence(1, model=1), SMALL).loc == 4


@pytest.mark.parametrize(
    ("unit", "nats"), [("normalized", 0.03 * math.log(151936)), ("nats", 0.03), ("bits", 0.03 * math.log(2))]
)
def test_a_cutoff_states_its_unit(unit, nats):
    assert cutoff_in_nats(0.03, unit, 151936) == pytest.approx(nats)


def test_r_stitch_asks_for_entropy_and_for_two_models():
    assert policy("r_stitch", 0).needs == Needs(entropy=True)
    with pytest.raises(ConfigError, match="needs exactly 2 models, this deployment has 3"):
        policy("r_stitch", 0, models=3)


def test_never_stays_on_the_entry_model():
    alone = policy("fixed", 0, mode="never", entry="large")

    assert alone.entry(request()) == LARGE
    assert policy("fixed", 0).entry(request()) == SMALL
    assert policy("fixed", 1, mode="never", entry="large").route(batch(steps=[0, 1])).tolist() == [0, 0]


def test_always_sends_every_token_away_without_the_entry_models_own():
    small, large = policy("fixed", 0, mode="always"), policy("fixed", 1, mode="always")

    assert small.route(batch(steps=[0, 1])).tolist() == [1, 1]
    assert large.route(batch(steps=[0, 1])).tolist() == [1, 1]
    assert (small.send(sequence(1), LARGE).loc, large.send(sequence(1, 1), SMALL).loc) == (3, 4)


def test_every_k_sends_the_kth_token_away():
    assert policy("fixed", 0, mode="every", k=3).route(batch(steps=[0, 1, 2, 5])).tolist() == [0, 0, 1, 1]


def test_fixed_can_name_its_target_among_three_models():
    assert policy("fixed", 0, 3, mode="always", to="large").route(batch(steps=[0])).tolist() == [1]
    assert policy("fixed", 1, 3, mode="always", entry="huge", to="large").route(
        batch(steps=[0])
    ).tolist() == [2]


@pytest.mark.parametrize(
    ("name", "params", "complaint"),
    [
        ("r_stich", {}, "policy: 'r_stich' is unknown; known are bild, cascade, .*, r_stitch"),
        ("r_stitch", {"cutof": 1}, "r_stitch.cutof: unknown parameter; known are cutoff, unit"),
        ("r_stitch", {"cutoff": NAN}, "r_stitch.cutoff: nan is not a number"),
        ("r_stitch", {"cutoff": "low"}, "r_stitch.cutoff: 'low' is not a number"),
        ("r_stitch", {"cutoff": True}, "r_stitch.cutoff: True is not a number"),
        ("r_stitch", {"unit": "dB"}, "r_stitch.unit: 'dB' is not one of bits, nats, normalized"),
        ("fixed", {"mode": "often"}, "fixed.mode: 'often' is not one of always, every, never"),
        ("fixed", {"mode": "every", "k": 0}, "fixed.k: 0 is not a whole number of at least 1"),
        ("fixed", {"entry": "huge"}, "fixed.entry: 'huge' is not one of large, small"),
    ],
)
def test_a_parameter_that_makes_no_sense_is_refused_by_name(name, params, complaint):
    with pytest.raises(ConfigError, match=complaint):
        policy(name, 0, **params)


def test_the_default_policy_starts_at_the_entry_stays_keeps_and_accepts():
    base = BaseRouter(place(0))

    assert (base.entry(request()), base.needs) == (SMALL, Needs())
    assert base.route(batch(steps=[0, 0])).tolist() == [0, 0]
    assert base.send(sequence(1), LARGE).loc == 4
    assert base.receive(sequence(), base.send(sequence(), LARGE)) is None


def test_destinations_count_the_other_models_in_order():
    middle = place(1, 3)

    assert middle.peers == (0, 2)
    assert [middle.destination(ModelIndex(model)) for model in range(3)] == [1, 0, 2]


def test_equal_specs_share_one_instance_and_old_ones_are_forgotten():
    book = PolicyBook(place(0), size_max=2)
    specs = [PolicySpec("fixed", (("mode", "every"), ("k", k))) for k in (2, 3, 4)]
    first = book.router(specs[0])

    assert book.router(specs[0]) is first
    book.router(specs[1]), book.router(specs[2])
    assert book.router(specs[0]) is not first


def test_reading_a_signal_that_was_not_asked_for_is_the_policys_mistake():
    for name in ("entropy", "max_prob", "topk_ids", "topk_logits", "hidden"):
        with pytest.raises(AssertionError, match=f"reads {name} but its needs do not ask"):
            getattr(batch(steps=[0]), name)


def test_a_step_shows_positions_and_draws_that_do_not_depend_on_the_batch():
    both = batch(steps=[0, 5])

    assert (both.position.tolist(), both.out_step.tolist()) == ([3, 8], [0, 5])
    assert (both.stay.tolist(), both.attempt.tolist(), len(both)) == ([0, 0], [0, 0], 2)
    assert both.uniform(1)[1] == batch(steps=[5]).uniform(1)[0] != both.uniform(2)[1]


def test_needs_unite():
    assert Needs(entropy=True, topk=5).union(Needs(hidden=True, topk=100)) == Needs(True, False, 100, True)


def test_options_read_numbers_counts_and_choices():
    options = Options(PolicySpec("p", (("a", 1), ("b", 2), ("c", "x"))), ("a", "b", "c", "d"))

    assert (options.number("a", 0.0), options.count("b", 1), options.choice("c", "y", "xy")) == (1.0, 2, "x")
    assert (options.number("d", 0.5), options.count("d", 7)) == (0.5, 7)
