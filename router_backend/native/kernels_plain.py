"""What the compiled loops must answer, in numpy: slow, and short enough to be seen to be right.

float16 and float32 products differ from these by rounding only (sums in another order); int8 products
are exact sums of whole numbers, so they agree to the last bit of the scaling.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Longs = npt.NDArray[np.int64]
LEVELS = 127
"""Largest magnitude of a weight or an activation in int8; both signs have as many levels."""


LAYOUT = 2
"""Of packed weights; another number is another order of the same numbers, which nothing else would show."""
GROUP = 16
"""Packed weights hold so many outputs side by side."""
INT8_DEPTH = 4
"""Inputs of each of them that lie together in int8; of floats one."""


def interleaved(weights: npt.NDArray[Any], depth: int = 1) -> npt.NDArray[Any]:
    """[N, K] to the layout of the compiled products: [N / 16, K / depth, 16, depth], padded with zeros."""
    outputs, inputs = weights.shape
    whole = np.pad(weights, ((0, -outputs % GROUP), (0, -inputs % depth)))
    groups = whole.reshape(len(whole) // GROUP, GROUP, -1, depth)
    return np.ascontiguousarray(groups.transpose(0, 2, 1, 3))


class Int8Weights(NamedTuple):
    """`levels` int8[N, K] times `scales` float32[N]; `sums` int32[N] of each row's levels."""

    levels: npt.NDArray[np.int8]
    scales: Floats
    sums: npt.NDArray[np.int32]


def rounded_weights(weights: Floats) -> Int8Weights:
    """`weights` [N, K] to int8, one scale per output; a row of zeros keeps scale zero."""
    scales = (np.abs(weights).max(axis=1) / LEVELS).astype(np.float32)
    levels = np.rint(weights / np.where(scales > 0, scales, 1)[:, None]).astype(np.int8)
    return Int8Weights(levels, scales, levels.sum(axis=1, dtype=np.int32))


def rounded_rows(x: Floats) -> tuple[npt.NDArray[np.int32], Floats]:
    """Levels [T, K] and scales [T] of activations, row by row; a row with a NaN or infinity has scale NaN."""
    largest = np.abs(x).max(axis=1)
    is_usable = np.isfinite(x).all(axis=1) & (largest > 0)
    inverse = np.float32(LEVELS) / np.where(is_usable, largest, 1).astype(np.float32)
    levels = np.rint(np.where(is_usable[:, None], x, 0) * inverse[:, None]).astype(np.int32)
    scales = np.where(is_usable, largest / np.float32(LEVELS), np.where(largest == 0, 0, np.nan))
    return levels, scales.astype(np.float32)


def linear_int8(weights: Int8Weights, x: Floats) -> Floats:
    """[T, N] = x W^T with both rounded to int8."""
    levels, scales = rounded_rows(x)
    exact = (levels @ weights.levels.astype(np.int32).T).astype(np.float32)
    product: Floats = exact * scales[:, None] * weights.scales
    return product


def linear_half(weights: npt.NDArray[np.float16], x: Floats) -> Floats:
    """[T, N] = x W^T, weights rounded to float16."""
    product: Floats = x @ weights.astype(np.float32).T
    return product


def paged_attention(
    queries: Floats, keys: npt.NDArray[Any], values: npt.NDArray[Any], where: tuple[Longs, Longs, Longs]
) -> Floats:
    """[T, H * D] of `queries` [T, H, D] over `keys` and `values` [blocks, block_size, K, D], single or half.

    `where` = tables [R, B] of block numbers, and for each token its row and how many positions it sees.
    """
    tables, rows, lengths = where
    tokens, heads, dim = queries.shape
    shared = heads // keys.shape[2]
    answer = np.empty((tokens, heads, dim), dtype=np.float32)
    for token in range(tokens):
        seen = slice(0, int(lengths[token]))
        token_keys, token_values = (
            pool[tables[rows[token]]].reshape(-1, *pool.shape[2:])[seen].repeat(shared, axis=1)
            for pool in (keys, values)
        )
        scores = np.einsum("hd,lhd->hl", queries[token], token_keys) / np.sqrt(np.float32(dim))
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        answer[token] = np.einsum("hl,lhd->hd", weights, token_values)
    return answer.reshape(tokens, heads * dim)


def fill_tables(tables: Longs, blocks: list[list[int]], counts: Longs) -> None:
    """Row r of `tables` [R, B] becomes the first counts[r] numbers of blocks[r], then zeros."""
    tables[:] = 0
    for line, row, count in zip(tables, blocks, counts.tolist(), strict=True):
        line[:count] = row[:count]
