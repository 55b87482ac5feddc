"""The compiled step against the plain one that defines it, on every instruction set of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router_backend.native import kernels, kernels_plain
from router_backend.native.network_plain import Layer, Matrix, Network, Shape, StepIndex, Tables

native: Any = kernels._compiled
SETS = native.instruction_sets() if native else []
pytestmark = pytest.mark.skipif(native is None, reason="the native kernels are not built")
on_every_set = pytest.mark.parametrize("name", SETS or ["none"])
FORMATS = ("single", "half", "int8")
VOCABULARY, LENGTH_MAX, BLOCK = 50, 64, 4
TOLERANCE = {"single": 1e-4, "half": 1e-4, "int8": 0.05}
"""int8: a rounding that falls the other way moves an activation by a level."""


@pytest.fixture(autouse=True)
def widest_again() -> Iterator[None]:
    yield
    if native:
        native.use(SETS[-1])


class Drawing:
    """Weights from one seed, of a size that keeps numbers near one."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def array(self, *shape: int, scale: float = 1.0) -> Any:
        return scale * self._rng.standard_normal(shape, dtype=np.float32)

    def matrix(self, kind: str, outputs: int, inputs: int, has_bias: bool = False) -> Matrix:
        weights = self.array(outputs, inputs, scale=inputs**-0.5)
        bias = self.array(outputs) if has_bias else None
        if kind == "int8":
            levels, scales, sums = kernels_plain.rounded_weights(weights)
            return Matrix(
                kind,
                kernels_plain.interleaved(levels, kernels_plain.INT8_DEPTH),
                scales,
                sums,
                bias,
                outputs,
                inputs,
            )
        packed = kernels_plain.interleaved(weights)
        if kind == "half":
            packed = packed.astype(np.float16).view(np.uint16)
        return Matrix(kind, packed, None, None, bias, outputs, inputs)


@dataclass
class Model:
    """The same decoder twice."""

    plain: Network
    compiled: Any
    pool: Any
    hidden: int

    def answers(self, step: StepIndex, where: Any, threads: int) -> tuple[Any, Any]:
        """Hidden and logits of the compiled one; its pool is `pool`."""
        rows = len(step.sampled)
        given = np.empty((rows, self.hidden), np.float32), np.empty((rows, VOCABULARY), np.float32)
        self.compiled.forward(step, where, self.pool, given, None, threads)
        return given


def model(seed: int, kind: str, cache: Any, sizes: tuple[int, int, int, int], is_qwen: bool) -> Model:
    heads, kv_heads, dim, hidden = sizes
    draw, feed = Drawing(seed), 2 * hidden + 3
    layers = [
        Layer(
            1 + draw.array(hidden, scale=0.1),
            1 + draw.array(hidden, scale=0.1),
            1 + draw.array(heads + kv_heads, dim, scale=0.1) if is_qwen else None,
            draw.matrix(kind, (heads + 2 * kv_heads) * dim, hidden, has_bias=not is_qwen),
            draw.matrix(kind, hidden, heads * dim),
            draw.matrix(kind, 2 * feed, hidden),
            draw.matrix(kind, hidden, feed),
        )
        for _ in range(2)
    ]
    angles = draw.array(LENGTH_MAX, dim // 2)
    cos, sin = np.cos(angles), np.sin(angles)
    turns = np.stack([np.concatenate([cos, cos], 1), np.concatenate([-sin, sin], 1)], axis=1)
    tables = Tables(draw.array(VOCABULARY, hidden), turns, 1 + draw.array(hidden, scale=0.1))
    parts = (Shape(heads, kv_heads, feed, 1e-6), tables, layers, draw.matrix(kind, VOCABULARY, hidden))
    pool = draw.array(2, 2, 16, BLOCK, kv_heads, dim).astype(cache)
    return Model(Network(*parts), native.Network(*parts), pool, hidden)


def packed(rows: list[tuple[int, int]], seed: int = 0) -> tuple[StepIndex, Any]:
    """A step of rows, each of so many new tokens behind so many; row r owns blocks 4 r .. 4 r + 3."""
    rng = np.random.default_rng(seed)
    owners = np.repeat(np.arange(len(rows)), [width for _, width in rows])
    positions = np.concatenate([start + np.arange(width) for start, width in rows])
    tables = np.arange(4 * len(rows)).reshape(-1, 4)
    slots = tables[owners, positions // BLOCK] * BLOCK + positions % BLOCK
    tokens = rng.integers(0, VOCABULARY, len(owners))
    sampled = np.cumsum([width for _, width in rows]) - 1
    return StepIndex(tokens, positions, slots, sampled), (tables, owners, positions + 1)


sizes = st.sampled_from([(4, 2, 8, 32), (3, 3, 32, 96), (3, 1, 64, 72), (2, 1, 128, 64), (2, 2, 20, 24)])
rows = st.lists(st.tuples(st.integers(0, 10), st.integers(1, 6)), min_size=1, max_size=4)


@on_every_set
@pytest.mark.parametrize("cache", [np.float32, np.float16])
@given(st.integers(0, 2**32 - 1), st.sampled_from(FORMATS), sizes, rows, st.booleans())
@settings(max_examples=25, deadline=None)
def test_a_step_is_the_plain_one_up_to_rounding(name, cache, seed, kind, sizes, rows, is_qwen):
    subject = model(seed, kind, cache, sizes, is_qwen)
    step, where = packed(rows, seed)
    pool = subject.pool.copy()
    native.use(name)

    hidden, logits = subject.answers(step, where, threads=2)

    expected_hidden, expected_logits = subject.plain.forward(step, where, pool)
    tolerance = max(TOLERANCE[kind], 1e-4 if cache == np.float32 else 1e-2)
    np.testing.assert_allclose(hidden, expected_hidden, atol=tolerance)
    np.testing.assert_allclose(logits, expected_logits, atol=tolerance)
    np.testing.assert_allclose(
        subject.pool.astype(np.float32), pool.astype(np.float32), atol=tolerance, rtol=1e-3
    )


@on_every_set
@pytest.mark.parametrize("cache", [np.float32, np.float16])
@pytest.mark.parametrize("kind", FORMATS)
def test_a_row_is_the_same_alone_and_in_company(name, cache, kind):
    subject = model(3, kind, cache, (3, 1, 64, 72), is_qwen=True)
    before = subject.pool.copy()
    native.use(name)
    step, (tables, owners, lengths) = packed([(9, 1), (3, 5), (0, 7), (14, 1)])
    together = subject.answers(step, (tables, owners, lengths), threads=2)

    for row in range(4):
        own = owners == row
        subject.pool[:] = before
        alone = StepIndex(*(part[own] for part in step[:3]), np.array([own.sum() - 1]))
        answers = subject.answers(alone, (tables, owners[own], lengths[own]), threads=1)
        for whole, part in zip(together, answers, strict=True):
            np.testing.assert_array_equal(whole[row : row + 1], part)


def test_tokens_that_are_not_in_place_are_attended_by_the_caller():
    subject = model(5, "single", np.float32, (4, 2, 8, 32), is_qwen=False)
    step, (tables, owners, lengths) = packed([(4, 2), (0, 6)])
    expected = subject.plain.forward(step, (tables, owners, lengths), subject.pool.copy())
    answers = np.empty((2, 32), np.float32), np.empty((2, VOCABULARY), np.float32)

    def elsewhere(layer: int, queries: Any, attended: Any) -> None:
        places = (tables, owners[2:], lengths[2:])
        attended[2:] = kernels_plain.paged_attention(queries[2:], *subject.pool[layer], places)

    subject.compiled.forward(step, (tables, owners[:2], lengths[:2]), subject.pool, answers, elsewhere, 1)

    for ours, plain in zip(answers, expected, strict=True):
        np.testing.assert_allclose(ours, plain, atol=1e-4)


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("tokens", VOCABULARY, "token out of range"),
        ("tokens", -1, "token out of range"),
        ("positions", LENGTH_MAX, "position out of range"),
        ("slots", 16 * BLOCK, "slot out of range"),
        ("sampled", 1, "sampled token out of range"),
    ],
)
def test_an_index_outside_its_table_is_refused(part, value, message):
    subject = model(1, "single", np.float32, (4, 2, 8, 32), is_qwen=False)
    step, where = packed([(2, 1)])

    with pytest.raises(ValueError, match=message):
        subject.answers(step._replace(**{part: np.array([value])}), where, 1)


def test_nobody_to_attend_what_is_not_in_place_is_refused():
    subject = model(1, "single", np.float32, (4, 2, 8, 32), is_qwen=False)

    with pytest.raises(ValueError, match="nobody attends"):
        subject.answers(packed([(2, 1)])[0], None, 1)


def test_weights_of_another_shape_are_refused():
    draw = Drawing(0)
    tables = Tables(draw.array(5, 8), draw.array(4, 2, 4), draw.array(8))

    with pytest.raises(ValueError, match="a matrix has not the model's shape"):
        native.Network(Shape(2, 1, 16, 1e-6), tables, [], draw.matrix("single", 5, 9))
