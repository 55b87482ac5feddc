"""Rows of mixed length become one run of tokens, grouped for attention."""

from __future__ import annotations

import math

import pytest
import torch

from python_backend.runner.torch_runner.packing import NARROW, Layout, PagedGroup, pack
from tests.unit.runner.torch_runner.directories import row

LAYOUT = Layout(block_size=4, shared=1, dtype=torch.float32)
IN_PLACE = Layout(block_size=4, shared=1, dtype=torch.float32, is_paged=True)
NEVER = -math.inf


def test_a_mixed_step_is_packed_by_width_and_keeps_plan_order_for_sampling() -> None:
    chunk = row([10, 11, 12], start=3, blocks=[5, 2], is_sampling=False)
    lone, longer = row([20], start=1, blocks=[7]), row([30], start=4, blocks=[1, 0, 9])

    step = pack([chunk, lone, longer], LAYOUT)

    assert step.tokens.tolist() == [20, 30, 10, 11, 12]
    assert step.positions.tolist() == [1, 4, 3, 4, 5]
    assert step.slots.tolist() == [29, 0, 23, 8, 9]
    assert step.sampled.tolist() == [0, 1]
    assert [(group.first, group.rows, group.width) for group in step.groups] == [(0, 2, 1), (2, 1, 3)]


def test_padding_reads_the_rows_own_first_slot_and_is_masked() -> None:
    group = pack([row([1], start=1, blocks=[7]), row([1], start=4, blocks=[1, 0])], LAYOUT).groups[0]

    assert group.slots.view(2, 5).tolist() == [[28, 29, 28, 28, 28], [4, 5, 6, 7, 0]]
    assert group.mask is not None
    assert group.mask.view(2, 5).tolist() == [[0, 0, NEVER, NEVER, NEVER], [0, 0, 0, 0, 0]]


def test_new_tokens_see_the_past_and_themselves_but_not_the_future() -> None:
    (group,) = pack([row([1, 2], start=1, blocks=[0])], LAYOUT).groups

    assert group.mask is not None
    assert group.mask.tolist() == [[[[0, 0, NEVER], [0, 0, 0]]]]


def test_the_mask_is_repeated_for_the_heads_that_share_a_kv_head() -> None:
    (group,) = pack([row([1, 2], blocks=[0])], Layout(4, 2, torch.float64)).groups

    assert group.mask is not None and group.mask.dtype == torch.float64
    assert group.mask.tolist() == [[[[0, NEVER], [0, 0], [0, NEVER], [0, 0]]]]


def test_single_tokens_of_equal_length_need_no_mask() -> None:
    (group,) = pack([row([1], start=5, blocks=[0, 1]), row([1], start=5, blocks=[2, 3])], LAYOUT).groups

    assert group.mask is None


@pytest.mark.parametrize(
    ("starts", "groups"), [((3, 255), 1), ((3, 256), 2), ((300, 500), 1), ((300, 600), 2)]
)
def test_a_long_row_does_not_make_short_ones_pay(starts: tuple[int, int], groups: int) -> None:
    rows = [row([1], start=start, blocks=range(200)) for start in starts]

    assert len(pack(rows, LAYOUT).groups) == groups


def test_blocks_beyond_the_end_are_not_looked_at() -> None:
    (group,) = pack([row([1, 2, 3], blocks=[4, 99999])], LAYOUT).groups

    assert group.slots.tolist() == [16, 17, 18]


def test_narrow_rows_of_any_width_and_length_are_one_group_that_is_read_in_place() -> None:
    rows = [row([1, 2], start=3, blocks=[5, 2]), row([3], start=600, blocks=range(200)), row([4], blocks=[9])]

    step = pack(rows, IN_PLACE)

    (group,) = step.groups
    assert isinstance(group, PagedGroup)
    tables, owners, lengths = group.where
    assert (group.first, group.last) == (0, 4)
    assert (tables.shape, tables[0, :3].tolist(), tables[2, :2].tolist()) == ((3, 151), [5, 2, 0], [9, 0])
    assert (owners.tolist(), lengths.tolist()) == ([0, 0, 1, 2], [4, 5, 601, 1])
    assert (step.slots.tolist(), step.positions.tolist()) == ([23, 8, 600, 36], [3, 4, 600, 0])
    assert step.sampled.tolist() == [1, 2, 3]


def test_wide_rows_are_gathered_behind_the_narrow_ones() -> None:
    wide, narrow = row(range(NARROW + 1), blocks=range(9)), row(range(NARROW), blocks=range(10, 19))

    step = pack([wide, narrow], IN_PLACE)

    assert [type(group).__name__ for group in step.groups] == ["PagedGroup", "Group"]
    assert [group.first for group in step.groups] == [0, NARROW]
    assert step.sampled.tolist() == [2 * NARROW, NARROW - 1]
    assert step.slots.tolist() == [*range(40, 40 + NARROW), *range(NARROW + 1)]
