"""The compiled loops against the plain ones that define them, on every instruction set of this machine."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router_backend.native import kernels, kernels_plain

native: Any = kernels._compiled
SETS = native.instruction_sets() if native else []
needs_native = pytest.mark.skipif(native is None, reason="the native kernels are not built")
on_every_set = pytest.mark.parametrize("name", SETS or ["none"])
shapes = st.tuples(st.integers(1, 9) | st.just(70), st.integers(1, 140) | st.just(401), st.integers(1, 70))
"""Rows, inputs and outputs: of one tile, block and group, and of several."""
seeds = st.integers(0, 2**32 - 1)


@pytest.fixture(autouse=True)
def widest_again() -> Iterator[None]:
    yield
    if native:
        native.use(SETS[-1])


def halves(weights):
    """Packed float16 weights as the compiled product takes them."""
    return kernels_plain.interleaved(weights.astype(np.float16)).view(np.uint16)


def packed_levels(weights):
    return weights._replace(levels=kernels_plain.interleaved(weights.levels, kernels_plain.INT8_DEPTH))


def drawn(seed: int, *shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


@needs_native
@on_every_set
@given(shapes, seeds, st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_float_products_are_the_plain_ones_up_to_rounding(name, shape, seed, threads):
    rows, inputs, outputs = shape
    x, weights = drawn(seed, rows, inputs) * np.float32(inputs**-0.5), drawn(seed + 1, outputs, inputs)
    half, single = (np.empty((rows, outputs), np.float32) for _ in range(2))
    native.use(name)

    native.linear_half(halves(weights), x, half, threads)
    native.linear_single(kernels_plain.interleaved(weights), x, single, threads)

    np.testing.assert_allclose(half, kernels_plain.linear_half(weights.astype(np.float16), x), atol=1e-4)
    np.testing.assert_allclose(single, x @ weights.T, atol=1e-4)


@needs_native
@on_every_set
@given(shapes, seeds)
@settings(max_examples=40, deadline=None)
def test_int8_products_are_the_plain_ones_exactly(name, shape, seed):
    rows, inputs, outputs = shape
    x, weights = (
        drawn(seed, rows, inputs) * 30,
        kernels_plain.rounded_weights(drawn(seed + 1, outputs, inputs)),
    )
    answer = np.empty((rows, outputs), np.float32)
    native.use(name)

    native.linear_int8(*packed_levels(weights), x, (answer, 2))

    np.testing.assert_array_equal(answer, kernels_plain.linear_int8(weights, x))


@needs_native
@on_every_set
def test_every_finite_half_is_widened_exactly(name):
    """Subnormals included."""
    every = np.arange(65536, dtype=np.uint16).view(np.float16)
    finite = every[np.isfinite(every)].reshape(-1, 64)
    answer = np.empty((64, len(finite)), np.float32)
    native.use(name)

    native.linear_half(halves(finite), np.eye(64, dtype=np.float32), answer, 2)

    np.testing.assert_array_equal(answer, finite.T.astype(np.float32))


@needs_native
@on_every_set
def test_halves_that_are_no_numbers_stay_none(name):
    weights = np.array([[np.inf], [-np.inf], [np.nan], [1.0]], dtype=np.float16)
    answer = np.empty((1, 4), np.float32)
    native.use(name)

    native.linear_half(halves(weights), np.ones((1, 1), np.float32), answer, 1)

    np.testing.assert_array_equal(answer[0], [np.inf, -np.inf, np.nan, 1.0])


@st.composite
def attentions(draw):
    """Queries, pools and the three arrays that say who reads where."""
    kv_heads, shared = draw(st.sampled_from([(1, 1), (2, 3), (3, 2), (1, 4), (1, 7)]))
    dim, size, rows = (
        draw(st.sampled_from([4, 20, 32, 64, 128])),
        draw(st.sampled_from([1, 4, 16, 100])),
        draw(st.integers(1, 3)),
    )
    columns, tokens, seed = draw(st.integers(1, 6)), draw(st.integers(1, 5)), draw(seeds)
    rng = np.random.default_rng(seed)
    tables = rng.permutation(rows * columns).reshape(rows, columns).astype(np.int64)
    where = (tables, rng.integers(0, rows, tokens), rng.integers(1, columns * size + 1, tokens))
    queries = drawn(seed, tokens, kv_heads * shared, dim)
    cache = draw(st.sampled_from([np.float32, np.float16]))
    keys, values = (drawn(seed + k, rows * columns, size, kv_heads, dim).astype(cache) for k in (1, 2))
    return queries, keys, values, where


@needs_native
@on_every_set
@given(attentions(), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_attention_is_the_plain_one_up_to_rounding(name, attention, threads):
    queries, *_ = attention
    answer = np.empty((queries.shape[0], queries.shape[1] * queries.shape[2]), np.float32)
    native.use(name)

    native.paged_attention(*attention, (answer, threads))

    np.testing.assert_allclose(answer, kernels_plain.paged_attention(*attention), atol=2e-5)


@needs_native
@on_every_set
@pytest.mark.parametrize("cache", [np.float32, np.float16])
def test_attention_over_many_spans_is_the_same_alone_in_company_and_on_any_threads(name, cache):
    lengths, owners = np.array([700, 1, 128, 129, 383, 384, 385]), np.array([0, 1, 2, 2, 3, 3, 3])
    keys, values = (drawn(k, 4 * 44, 16, 2, 64).astype(cache) for k in (1, 2))
    tables, queries = np.random.default_rng(3).permutation(4 * 44).reshape(4, 44), drawn(4, 7, 6, 64)
    native.use(name)

    def answers(tokens, threads):
        answer = np.empty((len(tokens), 6 * 64), np.float32)
        where = (tables, owners[tokens], lengths[tokens])
        native.paged_attention(queries[tokens], keys, values, where, (answer, threads))
        return answer

    together = answers(np.arange(7), 2)
    np.testing.assert_array_equal(together, answers(np.arange(7), 1))
    np.testing.assert_array_equal(together, np.concatenate([answers(np.array([t]), 3) for t in range(7)]))
    plain = kernels_plain.paged_attention(queries, keys, values, (tables, owners, lengths))
    np.testing.assert_allclose(together, plain, atol=2e-5)


@needs_native
@on_every_set
@pytest.mark.parametrize("peak", [0, 130, 260])
def test_a_key_that_outweighs_all_others_decides_from_any_span(name, peak):
    """Scores of hundreds: weights of the other spans vanish, and nothing overflows."""
    keys, values = np.zeros((20, 16, 1, 32), np.float32), drawn(1, 20, 16, 1, 32)
    keys.reshape(320, 32)[peak] = 100.0
    queries, where = (
        np.full((1, 2, 32), 2.0, np.float32),
        (np.arange(20)[None], np.array([0]), np.array([300])),
    )
    answer = np.empty((1, 64), np.float32)
    native.use(name)

    native.paged_attention(queries, keys, values, where, (answer, 2))

    np.testing.assert_allclose(
        answer.reshape(2, 32), np.tile(values.reshape(320, 32)[peak], (2, 1)), rtol=1e-6
    )


@needs_native
@on_every_set
def test_what_a_token_may_not_see_is_never_read(name):
    queries, pool = drawn(1, 2, 2, 64), drawn(2, 4, 4, 1, 64)
    where = (np.array([[2, 0]]), np.array([0, 0]), np.array([3, 6]))
    answers = [np.empty((2, 128), np.float32) for _ in range(2)]
    native.use(name)
    native.paged_attention(queries, pool, pool, where, (answers[0], 1))
    pool[[1, 3]], pool[0, 2:] = np.nan, np.nan

    native.paged_attention(queries, pool, pool, where, (answers[1], 1))

    np.testing.assert_array_equal(*answers)


@needs_native
@on_every_set
def test_a_row_is_the_same_alone_and_in_company(name):
    x, weights = drawn(1, 13, 401), drawn(2, 50, 401)
    rounded = kernels_plain.rounded_weights(weights)
    native.use(name)

    def answers(rows):
        half, single, int8 = (np.empty((len(rows), 50), np.float32) for _ in range(3))
        native.linear_half(halves(weights), rows, half, 2)
        native.linear_single(kernels_plain.interleaved(weights), rows, single, 1)
        native.linear_int8(*packed_levels(rounded), rows, (int8, 2))
        return np.concatenate([half, single, int8], axis=1)

    together = answers(x)
    np.testing.assert_array_equal(together, np.concatenate([answers(x[k : k + 1]) for k in range(13)]))


@needs_native
@pytest.mark.parametrize(
    ("rows", "lengths", "message"),
    [
        ([2], [1], "out of range"),
        ([-1], [1], "out of range"),
        ([0], [9], "exceeds"),
        ([0], [0], "out of range"),
    ],
)
def test_a_place_outside_the_tables_is_refused(rows, lengths, message):
    pool = drawn(0, 4, 4, 1, 8)
    where = (np.array([[0, 1], [2, 3]]), np.array(rows), np.array(lengths))

    with pytest.raises(ValueError, match=message):
        native.paged_attention(drawn(0, 1, 1, 8), pool, pool, where, (np.empty((1, 8), np.float32), 1))


@needs_native
@given(st.lists(st.lists(st.integers(0, 2**40), min_size=1, max_size=9), min_size=1, max_size=5), st.data())
@settings(max_examples=50, deadline=None)
def test_block_tables_are_filled_as_numpy_fills_them(blocks, data):
    counts = np.array([data.draw(st.integers(0, len(row))) for row in blocks])
    ours, plain = (np.full((len(blocks), 9), -1) for _ in range(2))

    native.fill_tables(ours, blocks, counts)
    kernels_plain.fill_tables(plain, blocks, counts)

    np.testing.assert_array_equal(ours, plain)


@needs_native
@pytest.mark.parametrize(
    ("blocks", "counts", "error"),
    [
        ([[1]], [2], ValueError),
        ([[1], [2]], [1], ValueError),
        ([["x"]], [1], TypeError),
        ([(1,)], [1], ValueError),
    ],
)
def test_blocks_that_do_not_fit_their_table_are_refused(blocks, counts, error):
    with pytest.raises(error):
        native.fill_tables(np.zeros((1, 3), np.int64), blocks, np.array(counts))


@needs_native
@pytest.mark.parametrize("block", [-1, 4])
def test_a_block_outside_the_pool_is_refused(block):
    pool, where = drawn(0, 4, 4, 1, 8), (np.array([[block]]), np.array([0]), np.array([2]))

    with pytest.raises(ValueError, match="block out of range"):
        native.paged_attention(drawn(0, 1, 1, 8), pool, pool, where, (np.empty((1, 8), np.float32), 1))


@needs_native
def test_shapes_that_disagree_are_refused():
    with pytest.raises(ValueError, match="disagree"):
        native.linear_single(drawn(0, 1, 64, 16, 1), drawn(0, 2, 65), np.empty((2, 3), np.float32), 1)


@needs_native
def test_an_instruction_set_that_is_not_here_is_refused():
    with pytest.raises(ValueError, match="sse9"):
        native.use("sse9")


@pytest.mark.skipif(shutil.which("g++") is None, reason="no compiler, so the plain loops serve")
def test_where_there_is_a_compiler_the_loops_are_built_and_in_use():
    assert kernels.compiled() is not None


FORMER = SimpleNamespace(LAYOUT=kernels_plain.LAYOUT - 1)


@pytest.mark.parametrize(
    ("module", "state"),
    [(None, "not built"), (SimpleNamespace(), "of an older version"), (FORMER, "of an older version")],
)
def test_a_build_that_is_missing_or_packs_weights_otherwise_is_not_used_and_one_warning_says_so(
    monkeypatch, module, state
):
    monkeypatch.setattr(kernels, "_compiled", module)
    kernels._warn_once.cache_clear()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert (kernels.compiled(), kernels.compiled()) == (None, None)

    assert [str(warning.message).split(";")[0] for warning in seen] == [f"native kernels are {state}"]
