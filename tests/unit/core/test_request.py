"""Requests, sequences, errors and counter-based randomness."""

from __future__ import annotations

import numpy as np
import pytest

from router_backend.core import errors
from router_backend.core.counter_rng import FEW, uniforms
from router_backend.core.request import ModelIndex, PolicySpec, Sampling
from router_backend.core.sequence import Sequence
from tests.builders import request


@pytest.mark.parametrize(
    ("temperature", "is_greedy"), [(0.0, True), (1e-12, True), (1e-6, False), (1.0, False)]
)
def test_temperatures_below_a_millionth_are_greedy(temperature, is_greedy):
    assert Sampling(temperature=temperature).is_greedy is is_greedy


def test_a_request_knows_its_longest_length_and_its_bound_on_steps():
    asked = request(prompt=(1, 2, 3), max_tokens=5)

    assert (asked.prompt_len, asked.length_max) == (3, 8)
    assert asked.raw_steps_max(2) == 2 * (5 + 8)


def test_a_policy_spec_gives_its_parameters_back_and_is_hashable():
    spec = PolicySpec("r_stitch", (("cutoff", 0.5),))

    assert spec.options() == {"cutoff": 0.5}
    assert {spec: 1}[PolicySpec("r_stitch", (("cutoff", 0.5),))] == 1


def test_a_sequence_counts_what_is_not_in_its_cache_yet():
    sequence = Sequence(request(prompt=(1, 2)), ModelIndex(0), 1, [1, 2, 7], [3, 0], num_computed=2)

    assert (sequence.request_id, sequence.num_uncomputed, sequence.out_step) == ("r", 1, 1)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigError, "TR_CONFIG"),
        (errors.RequestError, "TR_INVALID_ARGUMENT"),
        (errors.CapacityError, "TR_CAPACITY"),
        (errors.RemoteProtocolError, "TR_PROTOCOL"),
        (errors.RunnerError, "TR_RUNNER"),
        (errors.PeerLostError, "TR_PEER_LOST"),
    ],
)
def test_an_error_shows_its_stable_code_first(error, code):
    assert str(error("field: wrong")) == f"{code}: field: wrong"
    assert issubclass(error, errors.RouterError)


def test_draws_depend_on_every_key_and_on_nothing_else():
    keys = [
        (7, 3, 0, 1, 2),
        (8, 3, 0, 1, 2),
        (7, 4, 0, 1, 2),
        (7, 3, 1, 1, 2),
        (7, 3, 0, 0, 2),
        (7, 3, 0, 1, 3),
    ]
    draws = [float(uniforms(*key)[0]) for key in keys]

    assert len(set(draws)) == len(keys)
    assert uniforms([7, 8], [3, 3], 0, 1, 2).tolist() == draws[:2]


@pytest.mark.parametrize("rows", [1, FEW, FEW + 1])
def test_draws_do_not_depend_on_how_many_are_drawn_together(rows):
    seeds = [2**63 - 1 - 3 * row for row in range(4 * FEW)]
    together = uniforms(seeds, range(4 * FEW), 0, 1, 2)

    assert (uniforms(seeds[:rows], range(rows), 0, 1, 2) == together[:rows]).all()


def test_draws_are_uniform():
    draws = uniforms(1, np.arange(20_000), 0, 0)

    assert draws.min() >= 0.0 and draws.max() < 1.0
    assert abs(draws.mean() - 0.5) < 0.01
    assert np.abs(np.histogram(draws, 10, (0, 1))[0] - 2000).max() < 200
