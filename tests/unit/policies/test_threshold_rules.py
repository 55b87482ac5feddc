"""Rules on one number: operators, units, windows per request, and what is no number."""

from __future__ import annotations

import math

import numpy as np
import pytest

from router_backend.core.errors import ConfigError
from router_backend.core.request import ModelIndex
from router_backend.policies.base import Router
from router_backend.scheduler.batch import Needs, StepBatch, StepOutput
from tests.builders import VOCAB
from tests.unit.policies.steps import LARGE, NAN, SMALL, Rows, policy, sequence


def test_max_prob_leaves_below_its_cutoff_and_returns_at_or_above_it():
    step = Rows(max_prob=[0.25, 0.5, 0.75]).batch()

    assert policy("max_prob", 0, cutoff=0.5).route(step).tolist() == [1, 0, 0]
    assert policy("max_prob", 1, cutoff=0.5).route(step).tolist() == [0, 1, 1]
    assert policy("max_prob", 0).needs == policy("max_prob", 1).needs == Needs(max_prob=True)


@pytest.mark.parametrize(
    ("unit", "cutoff"), [("nats", 2.0), ("bits", 2.0 / math.log(2)), ("normalized", 2.0 / math.log(VOCAB))]
)
def test_entropy_leaves_at_or_above_its_cutoff_in_any_unit(unit, cutoff):
    step = Rows(entropy=[1.99, 2.01]).batch()

    assert policy("entropy", 0, cutoff=cutoff, unit=unit).route(step).tolist() == [0, 1]


def test_entropy_at_its_cutoff_leaves_and_returns_after_k_tokens():
    assert policy("entropy", 0, cutoff=2.0).route(Rows(entropy=[2.0]).batch()).tolist() == [1]
    assert policy("entropy", 1, k=2).route(Rows(stay=[1, 2], model=1).batch()).tolist() == [0, 1]
    assert (policy("entropy", 0).needs, policy("entropy", 1).needs) == (Needs(entropy=True), Needs())


def test_random_leaves_a_share_p_and_never_asks_the_batch():
    seeds = list(range(4000))
    step = Rows(seeds=seeds).batch()
    answer = policy("random", 0, p=0.3).route(step)
    alone = [policy("random", 0, p=0.3).route(Rows(seeds=[seed]).batch())[0] for seed in seeds[:50]]

    # Three standard deviations of 4,000 draws are 0.022.
    assert abs(answer.mean() - 0.3) < 0.022
    assert answer[:50].tolist() == alone
    assert policy("random", 0).needs == Needs()


@pytest.mark.parametrize(
    ("name", "signal"), [("max_prob", "max_prob"), ("entropy", "entropy"), ("rolling_entropy", "entropy")]
)
def test_a_signal_that_is_no_number_stays_small_returns_from_large_and_is_counted(name, signal):
    small = Rows(**{signal: [NAN, NAN]}).batch()
    large = Rows(**{signal: [NAN, NAN]}, model=1).batch()

    assert policy(name, 0, cutoff=0.5).route(small).tolist() == [0, 0]
    assert policy(name, 1, cutoff=0.5).route(large).tolist() == [1, 1]
    assert (small.num_unreadable, large.num_unreadable) == (2, 0 if name == "entropy" else 2)


@pytest.mark.parametrize("name", ["max_prob", "entropy", "random", "rolling_entropy"])
def test_small_discards_and_large_keeps(name):
    assert policy(name, 0).send(sequence(1), LARGE).loc == 3
    assert policy(name, 1).send(sequence(1, model=1), SMALL).loc == 4


class Stay:
    """Requests that stay on one model, in one batch, while readings come in, one a step."""

    def __init__(self, router: Router, model: int, rows: int = 1) -> None:
        self.router = router
        self.model = model
        self.sequences = [sequence(model=model) for _ in range(rows)]

    def moves(self, *readings: float) -> list[int]:
        """The only request's destinations."""
        return [self.step(reading)[0] for reading in readings]

    def step(self, *readings: float) -> list[int]:
        """Every request's destination after its reading."""
        for one in self.sequences:
            one.stay += 1
        output = StepOutput(np.zeros(len(readings), dtype=np.int64), entropy=np.array(readings, np.float32))
        return self.router.route(StepBatch(ModelIndex(self.model), self.sequences, output)).tolist()

    def come_back(self) -> None:
        self.sequences[0].stay = 0
        self.router.receive(self.sequences[0], self.router.send(sequence(1), LARGE))


def test_rolling_entropy_compares_the_mean_of_the_last_window():
    small = Stay(policy("rolling_entropy", 0, cutoff=2.0, window=3), 0)

    assert small.moves(0.0, 0.0, 5.0, 1.0, 0.5) == [0, 0, 0, 0, 1]


def test_rolling_entropy_returns_only_below_its_lower_cutoff():
    large = Stay(policy("rolling_entropy", 1, cutoff=2.0, return_cutoff=1.0, window=1), 1)

    assert large.moves(1.5, 1.0) == [0, 1]


def test_rolling_entropy_forgets_its_window_when_the_peer_has_written():
    small = Stay(policy("rolling_entropy", 0, cutoff=2.0, window=3), 0)
    small.moves(0.0, 0.0)
    small.come_back()

    assert small.moves(2.5) == [1]


def test_rolling_entropy_leaves_a_reading_that_is_no_number_out_of_the_window():
    small = Stay(policy("rolling_entropy", 0, cutoff=2.0, window=2), 0)

    assert small.moves(1.0, NAN, 3.5) == [0, 0, 1]


def test_rolling_entropy_keeps_one_window_per_request():
    both = Stay(policy("rolling_entropy", 0, cutoff=2.0, window=2), 0, rows=2)

    assert [both.step(0.0, 1.9) for _ in range(3)] == [[0, 0]] * 3
    assert both.step(3.0, 3.0) == [0, 1]


def test_min_stay_holds_both_sides_and_max_stay_ends_the_large_ones():
    small = Stay(policy("rolling_entropy", 0, cutoff=1.0, min_stay=3), 0)
    calm = Stay(policy("rolling_entropy", 1, cutoff=1.0, min_stay=3), 1)
    wild = Stay(policy("rolling_entropy", 1, cutoff=1.0, max_stay=2), 1)

    assert small.moves(9.0, 9.0, 9.0) == [0, 0, 1]
    assert calm.moves(0.0, 0.0, 0.0) == [0, 0, 1]
    assert wild.moves(9.0, 9.0) == [0, 1]


@pytest.mark.parametrize(
    ("name", "params", "complaint"),
    [
        ("random", {"p": 1.5}, "random.p: 1.5 is not a probability from 0 to 1"),
        ("entropy", {"unit": "dB"}, "entropy.unit: 'dB' is not one of bits, nats, normalized"),
        ("rolling_entropy", {"return_cutoff": 1.0}, "return_cutoff: 1.0 is above cutoff 0.45"),
        ("rolling_entropy", {"min_stay": 5, "max_stay": 4}, "min_stay: 5 is above max_stay 4"),
        ("rolling_entropy", {"window": 0}, "rolling_entropy.window: 0 is not a whole number of at least 1"),
    ],
)
def test_a_parameter_that_makes_no_sense_is_refused_by_name(name, params, complaint):
    with pytest.raises(ConfigError, match=complaint):
        policy(name, 0, **params)


def test_rolling_means_are_exact_for_a_single_reading():
    small = policy("rolling_entropy", 0, cutoff=float(np.float32(0.1)))

    assert small.route(Rows(entropy=[0.1, 0.2]).batch()).tolist() == [0, 1]
