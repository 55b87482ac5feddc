"""Which steps a captured graph can stand for, and how a step is laid out in one.

A graph replays one shape. A step fits the smallest captured shape that is at least as large, a rectangle of
rows by new tokens: every return of a request is such an extension (arXiv:2610.12242, graph capture for
extend). The rest is padding: a narrow row's tokens stand at the right of its line, so that the last column
always predicts; what stands before them, and rows that are not there, write to a spare block behind the pool
and are read by nobody. numpy only: the same on every device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from router_backend.core.errors import ConfigError
from router_backend.native import kernels, kernels_plain
from router_backend.scheduler.batch import IntArray, Row

LENGTH_CLASS_MIN = 256


class Bucket(NamedTuple):
    """A captured shape: `rows` by `width` new tokens, over block tables of `columns`."""

    rows: int
    width: int
    columns: int


@dataclass(frozen=True, slots=True)
class Grid:
    """Captured shapes: every number of rows with every number of new tokens per row; perhaps none."""

    batches: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    tokens: tuple[int, ...] = (1, 2, 4, 8, 16)

    def __post_init__(self) -> None:
        for name, sizes in (("graph_batches", self.batches), ("graph_tokens", self.tokens)):
            if list(sizes) != sorted(set(sizes)) or any(size < 1 for size in sizes):
                raise ConfigError(f"{name}: {list(sizes)} must rise, from at least 1")

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """(rows, width), the largest first: its memory then serves all others."""
        return [(rows, width) for rows in self.batches[::-1] for width in self.tokens[::-1]]

    def fitting(self, rows: Sequence[Row]) -> tuple[int, int] | None:
        """The smallest captured (rows, width) that holds `rows`; None: the step runs without a graph."""
        height = _at_least(self.batches, len(rows))
        width = _at_least(self.tokens, max(len(row.token_ids) for row in rows))
        return None if height is None or width is None else (height, width)


@dataclass(frozen=True, slots=True)
class Tables:
    """How block tables are cut; `length_max` bounds a row.

    `is_length_bound`: attention reads whole tables, so there is a graph for every power of two of lengths;
    otherwise it reads as far as a row goes, and one table serves all.
    """

    block_size: int
    length_max: int
    is_length_bound: bool

    def columns(self, length: int) -> int:
        """Of the table of a step whose longest row is `length` after it."""
        longest = self.length_max
        if self.is_length_bound:
            longest = min(longest, 1 << (max(length, LENGTH_CLASS_MIN) - 1).bit_length())
        return -(-longest // self.block_size)


class Padded(NamedTuple):
    """One step in the shape of a bucket, int64, row after row. B rows of W tokens, C columns."""

    tokens: IntArray
    """[B * W]"""
    positions: IntArray
    """[B * W]; 0 where there is no token."""
    slots: IntArray
    """[B * W]: where keys and values go."""
    tables: IntArray
    """[B, C]: blocks, a row's first one beyond its end."""
    ends: IntArray
    """[B]: positions of the row after the step."""


def padded(rows: Sequence[Row], bucket: Bucket, block_size: int, spare: int) -> Padded:
    """`rows` laid out in `bucket`, the rest in block `spare`."""
    height, width, columns = bucket
    step = Padded(
        np.zeros((height, width), dtype=np.int64),
        np.zeros((height, width), dtype=np.int64),
        np.full((height, width), spare * block_size, dtype=np.int64),
        np.full((height, columns), spare, dtype=np.int64),
        np.full(height, width, dtype=np.int64),
    )
    counts = np.array([-(-row.end // block_size) for row in rows], dtype=np.int64)
    tables = np.empty((len(rows), columns), dtype=np.int64)
    (kernels.compiled() or kernels_plain).fill_tables(tables, [row.blocks for row in rows], counts)
    step.tables[: len(rows)] = np.where(np.arange(columns) < counts[:, None], tables, tables[:, :1])
    for line, row in enumerate(rows):
        new = width - len(row.token_ids)
        places = np.arange(row.start, row.end)
        step.tokens[line, new:] = row.token_ids
        step.positions[line, new:] = places
        step.slots[line, new:] = tables[line, places // block_size] * block_size + places % block_size
        step.ends[line] = row.end
    return step._replace(
        tokens=step.tokens.reshape(-1), positions=step.positions.reshape(-1), slots=step.slots.reshape(-1)
    )


def _at_least(sizes: Sequence[int], wanted: int) -> int | None:
    return next((size for size in sizes if size >= wanted), None)
