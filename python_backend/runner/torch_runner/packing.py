"""Turns the rows of a plan into the index tensors of one packed forward.

Narrow rows (few new tokens) form one group that reads its keys and values in place, where the compiled
attention is there. The others are gathered: rows of equal width and similar length form a group, whose
tokens lie side by side, so that attention runs once per group. Padding of a gathered group's shorter rows
points at the row's own first slot: no slot is ever read that the row did not write, not even to be masked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from python_backend.runner.drafts import looked_at
from python_backend.runner.torch_runner.table_attention import TableGroup
from router_backend.native import kernels, kernels_plain
from router_backend.scheduler.batch import IntArray, Row

LENGTH_CLASS_MIN = 256
"""Rows up to this length share a group; beyond, a group's lengths differ by less than a factor of two."""


IN_PLACE = (0, 0)
NARROW = 16
"""Widest row that is attended in place: a wider one has work enough for torch's blocked products."""


@dataclass(frozen=True, slots=True)
class PagedGroup:
    """Packed tokens first .. last - 1, read in place: the `where` of `kernels_plain.paged_attention`."""

    first: int
    last: int
    where: tuple[IntArray, IntArray, IntArray]


@dataclass(frozen=True, slots=True)
class Group:
    """`rows` rows of `width` new tokens each: packed tokens first .. first + rows * width - 1."""

    first: int
    rows: int
    width: int
    slots: Tensor
    """int64[rows * length]: KV slots of positions 0 .. length - 1 of each row."""
    mask: Tensor | None
    """[rows, 1, G * width, length], 0 where a query may look and -inf elsewhere; None = everywhere. G = 1
    where all queries of a row see the same, else the query heads that share a KV head."""

    @property
    def last(self) -> int:
        return self.first + self.rows * self.width

    def to(self, device: torch.device) -> Group:
        mask = None if self.mask is None else self.mask.to(device)
        return replace(self, slots=self.slots.to(device), mask=mask)


@dataclass(frozen=True, slots=True)
class PackedStep:
    """T tokens, R sampling rows."""

    tokens: Tensor
    """int64[T]"""
    positions: Tensor
    """int64[T]"""
    slots: Tensor
    """int64[T]: where each token's keys and values go."""
    groups: tuple[Group | PagedGroup | TableGroup, ...]
    sampled: Tensor
    """int64[R]: packed index of the last token of each sampling row, in plan order; of a row with a draft,
    also of the token before each drafted one (`drafts.looked_at`)."""

    def to(self, device: torch.device) -> PackedStep:
        """The same on `device`; a group that is read in place is the CPU's alone."""
        groups = tuple(group.to(device) if isinstance(group, Group) else group for group in self.groups)
        tokens, positions, slots = (part.to(device) for part in (self.tokens, self.positions, self.slots))
        return PackedStep(tokens, positions, slots, groups, self.sampled.to(device))


@dataclass(frozen=True, slots=True)
class Layout:
    """What packing must know of model and pool; `shared` = query heads to a KV head.

    `is_paged`: narrow rows are attended in place.
    """

    block_size: int
    shared: int
    dtype: torch.dtype
    is_paged: bool = False

    def group_key(self, row: Row) -> tuple[int, int]:
        """Rows of one key share a group."""
        width = len(row.token_ids)
        if self.is_paged and width <= NARROW:
            return IN_PLACE
        return width, (max(row.end, LENGTH_CLASS_MIN) - 1).bit_length()


def pack(rows: Sequence[Row], layout: Layout) -> PackedStep:
    """Index tensors for `rows`, at least one, none of them empty."""
    order = sorted(range(len(rows)), key=lambda index: layout.group_key(rows[index]))
    ordered = [rows[index] for index in order]
    widths = np.array([len(row.token_ids) for row in ordered], dtype=np.int64)
    ends = np.cumsum(widths)
    last = np.empty(len(rows), dtype=np.int64)
    last[order] = ends - 1
    tokens = np.fromiter((token for row in ordered for token in row.token_ids), np.int64, int(ends[-1]))
    starts = np.array([row.start for row in ordered], dtype=np.int64)
    positions = np.arange(len(tokens), dtype=np.int64) + np.repeat(starts - ends + widths, widths)
    groups, slots = _grouped(ordered, layout)
    is_sampling = np.array([row.is_sampling for row in rows], dtype=bool)
    sampled = looked_at(last[is_sampling], [row for row in rows if row.is_sampling])
    return PackedStep(
        torch.from_numpy(tokens),
        torch.from_numpy(positions),
        torch.from_numpy(slots),
        groups,
        torch.from_numpy(sampled),
    )


def _grouped(ordered: Sequence[Row], layout: Layout) -> tuple[tuple[Group | PagedGroup, ...], IntArray]:
    """The groups of rows in order, and the slot of every packed token."""
    groups: list[Group | PagedGroup] = []
    written: list[IntArray] = []
    first = begin = 0
    while begin < len(ordered):
        key, end = layout.group_key(ordered[begin]), begin + 1
        while end < len(ordered) and layout.group_key(ordered[end]) == key:
            end += 1
        grouping = _paged_group if key == IN_PLACE else _group
        group, slots = grouping(ordered[begin:end], first, layout)
        groups.append(group)
        written.append(slots)
        first, begin = group.last, end
    return tuple(groups), np.concatenate(written)


def _paged_group(rows: Sequence[Row], first: int, layout: Layout) -> tuple[PagedGroup, IntArray]:
    widths = np.array([len(row.token_ids) for row in rows], dtype=np.int64)
    ends = np.array([row.end for row in rows], dtype=np.int64)
    counts = -(-ends // layout.block_size)
    tables = np.empty((len(rows), int(counts.max())), dtype=np.int64)
    (kernels.compiled() or kernels_plain).fill_tables(tables, [row.blocks for row in rows], counts)
    owners = np.repeat(np.arange(len(rows), dtype=np.int64), widths)
    places = np.arange(len(owners), dtype=np.int64) + np.repeat(ends - widths.cumsum(), widths)
    written = tables[owners, places // layout.block_size] * layout.block_size + places % layout.block_size
    return PagedGroup(first, first + len(owners), (tables, owners, places + 1)), written


def _group(rows: Sequence[Row], first: int, layout: Layout) -> tuple[Group, IntArray]:
    width = len(rows[0].token_ids)
    ends = np.array([row.end for row in rows], dtype=np.int64)
    slots = _slot_grid(rows, ends, layout.block_size)
    new = ends[:, None] - width + np.arange(width)
    written = np.take_along_axis(slots, new, axis=1).reshape(-1)
    mask = _mask(new, slots.shape[1], layout)
    return Group(first, len(rows), width, torch.from_numpy(slots.reshape(-1)), mask), written


def _slot_grid(rows: Sequence[Row], ends: IntArray, block_size: int) -> IntArray:
    """[rows, longest]: the slot of each position, the row's first slot beyond its end."""
    length = int(ends.max())
    columns = -(-length // block_size)
    table = np.empty((len(rows), columns), dtype=np.int64)
    for line, row in zip(table, rows, strict=True):
        used = -(-row.end // block_size)
        line[:used] = row.blocks[:used]
        line[used:] = row.blocks[0]
    grid = (table[:, :, None] * block_size + np.arange(block_size)).reshape(len(rows), -1)[:, :length]
    return np.where(np.arange(length) < ends[:, None], grid, grid[:, :1])


def _mask(new: IntArray, length: int, layout: Layout) -> Tensor | None:
    """A token sees the positions up to its own; `new` [rows, width] are the tokens' positions."""
    if new.shape[1] == 1 and int(new.min()) == length - 1:
        return None
    is_hidden = torch.from_numpy(np.arange(length) > new[:, None, :, None])
    mask = torch.zeros(is_hidden.shape, dtype=layout.dtype).masked_fill_(is_hidden, float("-inf"))
    return mask.repeat(1, 1, layout.shared, 1) if new.shape[1] > 1 else mask
