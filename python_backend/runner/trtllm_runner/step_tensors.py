"""From the rows of a step to the numbers that an engine reads: trtllm.md sections 3 and 4, and no more.

Contract-tested; unverified on hardware until tools.check_trtllm has run. Pure numpy. The invariant:
context rows come before generation rows, and a row's numbers follow from that row alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from router_backend.scheduler.batch import Row

Int32s = npt.NDArray[np.int32]

CONTEXT, GENERATION = 0, 1


@dataclass(frozen=True, slots=True)
class StepTensors:
    """B rows, N tokens. `values` by the engine's names: those that change from step to step, int32.

    `lines[i]` is where row i of the plan went: row lines[i] of the outputs is its.
    """

    values: dict[str, Int32s]
    lines: Int32s
    num_tokens: int


def is_context(row: Row) -> bool:
    """Several tokens, or the first of a sequence; one token behind a cache is a generation row."""
    return row.start == 0 or len(row.token_ids) > 1


def step_tensors(rows: Sequence[Row], num_layers: int, block_size: int) -> StepTensors:
    """At least one row, none of them empty, each with blocks for all of its tokens."""
    order = sorted(range(len(rows)), key=lambda index: not is_context(rows[index]))
    ordered = [rows[index] for index in order]
    types = np.array([CONTEXT if is_context(row) else GENERATION for row in ordered], np.int32)
    counts = np.array([len(row.token_ids) for row in ordered], np.int32)
    ends = np.array([row.end for row in ordered], np.int32)
    lengths = np.where(types == CONTEXT, counts, [_prompt_len(row) for row in ordered]).astype(np.int32)
    last = np.cumsum(counts, dtype=np.int32)
    offsets = block_offsets(ordered, num_layers, block_size)
    tokens = np.fromiter((token for row in ordered for token in row.token_ids), np.int32, int(last[-1]))
    lines = np.empty(len(rows), np.int32)
    lines[order] = np.arange(len(rows), dtype=np.int32)
    values = {
        "input_ids": tokens,
        "position_ids": np.arange(len(tokens), dtype=np.int32) + np.repeat(ends - last, counts),
        "last_token_ids": last,
        "sequence_length": ends,
        "context_lengths": lengths,
        "host_context_lengths": lengths,
        "host_past_key_value_lengths": ends - types,
        "host_request_types": types,
        "kv_cache_block_offsets": offsets,
        "host_kv_cache_block_offsets": offsets,
    }
    return StepTensors(values, lines, len(tokens))


def _prompt_len(row: Row) -> int:
    """At most the sequence's length; a row that does not say is its own prompt."""
    return min(row.prompt_len or row.end, row.end)


def block_offsets(rows: Sequence[Row], num_layers: int, block_size: int) -> Int32s:
    """int32[1, B, 2, M]: where K and V of each block lie in the pool, in units of one block of one layer.

    M is the most blocks that a row of this step needs; entries behind a row's own are 0 and not read.
    """
    counts = [-(-row.end // block_size) for row in rows]
    blocks = np.zeros((len(rows), max(counts)), np.int32)
    for line, row, count in zip(blocks, rows, counts, strict=True):
        line[:count] = row.blocks[:count]
    held = np.arange(blocks.shape[1]) < np.array(counts)[:, None]
    keys = blocks * (2 * num_layers)
    offsets = np.stack([keys, np.where(held, keys + 1, 0)], axis=1)
    return np.ascontiguousarray(offsets[None], np.int32)
