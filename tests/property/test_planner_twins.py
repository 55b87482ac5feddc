"""The compiled chain solver equals its Python twin on arbitrary systems."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router_backend import native
from router_backend.native import ChainSpec, FloatArray, chain_plain, stationary_plain

pytestmark = pytest.mark.filterwarnings("ignore:native chain solver is not built:RuntimeWarning")


@st.composite
def routing_rows(draw: st.DrawFn, models: int) -> FloatArray:
    """Rows that sum to 1, with zeros; everyone may return to the entry, so that one class is closed."""
    weights = draw(st.lists(st.integers(0, 5), min_size=models * models, max_size=models * models))
    rows = np.array(weights, dtype=np.float64).reshape(models, models)
    rows[:, 0] += 1.0
    return np.asarray(rows / rows.sum(axis=1, keepdims=True))


@st.composite
def thresholds_below(draw: st.DrawFn, models: int, concurrency: int) -> tuple[int, ...]:
    """Thresholds with sum(threshold - 1) < concurrency."""
    spare = concurrency - 1
    thresholds = []
    for _ in range(models):
        extra = draw(st.integers(0, spare))
        spare -= extra
        thresholds.append(1 + extra)
    return tuple(draw(st.permutations(thresholds)))


@st.composite
def specs(draw: st.DrawFn) -> ChainSpec:
    models = draw(st.integers(1, 3))
    concurrency = draw(st.integers(1, 5 if models < 3 else 3))
    shape = (models, concurrency)
    thresholds = draw(thresholds_below(models, concurrency))
    count = models * concurrency
    shares = st.sampled_from([0.0, 0.25, 0.9])
    return ChainSpec(
        floor_ticks=np.array(
            draw(st.lists(st.integers(1, 7), min_size=count, max_size=count)), np.int32
        ).reshape(shape),
        ceil_probability=np.array(draw(st.lists(shares, min_size=count, max_size=count))).reshape(shape),
        routing=draw(routing_rows(models)),
        thresholds=thresholds,
        caps=tuple(draw(st.integers(threshold, concurrency)) for threshold in thresholds),
        stride_ticks=draw(st.sampled_from([1, 3, 1_000])),
        state_limit=20_000,
    )


@settings(max_examples=60, deadline=None)
@given(specs())
def test_both_twins_find_the_same_states_edges_and_distribution(spec: ChainSpec) -> None:
    plain, compiled = chain_plain.enumerate_chain(spec), native.enumerate_chain(spec)

    assert np.array_equal(plain.states, compiled.states)
    assert np.array_equal(plain.row_start, compiled.row_start)
    assert np.array_equal(plain.successor, compiled.successor)
    assert compiled.probability == pytest.approx(plain.probability, rel=1e-12)
    expected = stationary_plain.stationary_distribution(*plain[1:])
    assert native.stationary_distribution(*compiled[1:]) == pytest.approx(expected, abs=1e-7)


@settings(max_examples=30, deadline=None)
@given(specs())
def test_the_distribution_is_stationary_and_the_rows_are_probabilities(spec: ChainSpec) -> None:
    graph = native.enumerate_chain(spec)
    count = len(graph.states)
    matrix = np.zeros((count, count))
    for state in range(count):
        row = slice(graph.row_start[state], graph.row_start[state + 1])
        matrix[state, graph.successor[row]] = graph.probability[row]

    distribution = native.stationary_distribution(*graph[1:])

    assert matrix.sum(axis=1) == pytest.approx(np.ones(count))
    assert distribution @ matrix == pytest.approx(distribution, abs=1e-8)
    assert distribution.sum() == pytest.approx(1.0)


@settings(max_examples=10, deadline=None)
@given(specs())
def test_both_twins_refuse_a_chain_beyond_the_limit(spec: ChainSpec) -> None:
    size = len(chain_plain.enumerate_chain(spec).states)
    limited = ChainSpec(
        spec.floor_ticks,
        spec.ceil_probability,
        spec.routing,
        spec.thresholds,
        spec.caps,
        spec.stride_ticks,
        size - 1,
    )

    for enumerate_chain in (chain_plain.enumerate_chain, native.enumerate_chain):
        with pytest.raises(OverflowError, match=f"more than {size - 1} states"):
            enumerate_chain(limited)
