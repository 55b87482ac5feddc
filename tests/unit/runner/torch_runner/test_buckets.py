"""Which captured shape a step gets, and where its numbers stand in it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from python_backend.runner.torch_runner.buckets import Bucket, Grid, Tables, padded
from router_backend.core.errors import ConfigError
from tests.unit.runner.torch_runner.directories import row

GRID = Grid((1, 2, 4), (1, 3, 8))
SPARE = 90


@pytest.mark.parametrize(
    ("widths", "shape"),
    [
        ([1], (1, 1)),
        ([1, 1], (2, 1)),
        ([1, 1, 1], (4, 1)),
        ([1, 2], (2, 3)),
        ([8, 1, 1, 1], (4, 8)),
        ([9], None),
        ([1] * 5, None),
    ],
)
def test_a_step_gets_the_smallest_shape_that_holds_it(
    widths: list[int], shape: tuple[int, int] | None
) -> None:
    assert GRID.fitting([row([5] * width) for width in widths]) == shape


def test_an_empty_grid_holds_nothing() -> None:
    assert Grid((), (1,)).fitting([row([1])]) is None
    assert Grid((1,), ()).fitting([row([1])]) is None


def test_the_largest_shape_is_captured_first() -> None:
    assert Grid((1, 2), (1, 4)).shapes == [(2, 4), (2, 1), (1, 4), (1, 1)]


@pytest.mark.parametrize("sizes", [(2, 1), (1, 1), (0, 1)])
def test_sizes_of_a_grid_rise(sizes: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=r"graph_batches: .* must rise, from at least 1"):
        Grid(sizes, (1,))


def test_where_attention_reads_whole_tables_lengths_have_classes() -> None:
    bound, free = Tables(16, 1000, is_length_bound=True), Tables(16, 1000, is_length_bound=False)

    assert [bound.columns(length) for length in (1, 256, 257, 600)] == [16, 16, 32, 63]
    assert [free.columns(length) for length in (1, 600)] == [63, 63]


def test_a_step_stands_at_the_right_of_its_rectangle_and_padding_in_the_spare_block() -> None:
    decoding = row([7], start=5, blocks=[3, 8])
    returning = row([1, 2, 3], start=2, blocks=[6, 4])
    step = padded([decoding, returning], Bucket(3, 4, 3), block_size=4, spare=SPARE)

    assert step.tokens.reshape(3, 4).tolist() == [[0, 0, 0, 7], [0, 1, 2, 3], [0, 0, 0, 0]]
    assert step.positions.reshape(3, 4).tolist() == [[0, 0, 0, 5], [0, 2, 3, 4], [0, 0, 0, 0]]
    spare = SPARE * 4
    assert step.slots.reshape(3, 4).tolist() == [
        [spare, spare, spare, 8 * 4 + 1],
        [spare, 6 * 4 + 2, 6 * 4 + 3, 4 * 4 + 0],
        [spare] * 4,
    ]
    assert step.tables.tolist() == [[3, 8, 3], [6, 4, 6], [SPARE] * 3]
    assert step.ends.tolist() == [6, 5, 4]


@given(st.lists(st.tuples(st.integers(1, 8), st.integers(0, 20)), min_size=1, max_size=4))
def test_every_token_of_a_step_is_in_it_once_and_writes_where_it_belongs(
    shares: list[tuple[int, int]],
) -> None:
    rows, free = [], iter(range(80))
    for number, (width, start) in enumerate(shares):
        blocks = [next(free) for _ in range(-(-(start + width) // 4))]
        rows.append(row([10 * number + k + 1 for k in range(width)], start, blocks))
    shape = GRID.fitting(rows)
    assert shape is not None
    step = padded(rows, Bucket(*shape, 8), 4, SPARE)

    is_real = step.slots < SPARE * 4
    assert step.tokens[is_real].tolist() == [token for each in rows for token in each.token_ids]
    assert len(set(step.slots[is_real].tolist())) == int(np.count_nonzero(is_real))
    assert not step.tokens[~is_real].any() and not step.positions[~is_real].any()
    for line, each in enumerate(rows):
        last = step.slots.reshape(shape)[line, -1]
        assert last == each.blocks[(each.end - 1) // 4] * 4 + (each.end - 1) % 4
        assert set(step.tables[line].tolist()) == set(each.blocks)
