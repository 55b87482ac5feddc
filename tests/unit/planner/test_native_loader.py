"""The choice between the compiled solver and its Python twin."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from router_backend import native
from router_backend.native import FloatArray, IntArray, OffsetArray, chain_plain, stationary_plain
from router_backend.planner.throughput import predict
from tests.unit.planner.systems import A100_PAIR


@pytest.fixture
def without_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_compiled", None)
    native._warn_once.cache_clear()


@pytest.mark.usefixtures("without_compiler")
def test_without_the_compiled_solver_the_twin_answers_with_one_warning() -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        throughputs = [predict(A100_PAIR, (1, threshold), 4).throughput for threshold in (1, 2, 3, 4)]

    assert throughputs == pytest.approx((187.189651, 195.439133, 207.954041, 190.742172), rel=1e-6)
    assert [str(one.message) for one in seen] == [
        "native chain solver is not built; the Python twin answers, about 60 times slower"
    ]
    assert not native.is_compiled()


def test_a_multinomial_leaves_out_what_cannot_happen() -> None:
    assert chain_plain.multinomial(2, (1.0, 0.0)) == [((2, 0), 1.0)]
    assert chain_plain.multinomial(0, (0.0, 1.0)) == [((0, 0), 1.0)]
    assert chain_plain.multinomial(2, (0.5, 0.5)) == [((0, 2), 0.25), ((1, 1), 0.5), ((2, 0), 0.25)]


Edges = tuple[OffsetArray, IntArray, FloatArray]


def edges(*rows: dict[int, float]) -> Edges:
    return (
        np.cumsum([0, *(len(row) for row in rows)]),
        np.array([target for row in rows for target in row], dtype=np.int32),
        np.array([probability for row in rows for probability in row.values()]),
    )


@pytest.mark.parametrize(
    ("chain", "expected"),
    [
        (edges({1: 1.0}, {0: 1.0}), (0.5, 0.5)),
        (edges({1: 1.0}, {2: 1.0}, {0: 1.0}), (1 / 3, 1 / 3, 1 / 3)),
        (edges({0: 0.9, 1: 0.1}, {0: 0.3, 1: 0.7}), (0.75, 0.25)),
        (edges({1: 0.5, 2: 0.5}, {2: 1.0}, {2: 1.0}), (0.0, 0.0, 1.0)),
    ],
    ids=["periodic", "cycle", "lazy", "absorbing"],
)
def test_small_chains_have_their_known_distribution(chain: Edges, expected: tuple[float, ...]) -> None:
    for solve in (native.stationary_distribution, stationary_plain.stationary_distribution):
        assert solve(*chain) == pytest.approx(expected, abs=1e-9)


def test_a_chain_that_is_not_solved_in_time_is_an_arithmetic_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stationary_plain, "SWEEP_LIMIT", 1)

    with pytest.raises(ArithmeticError, match="the sweeps did not converge"):
        stationary_plain.stationary_distribution(*edges({0: 0.9, 1: 0.1}, {0: 0.3, 1: 0.7}))
