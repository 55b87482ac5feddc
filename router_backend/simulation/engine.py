"""A deterministic engine that trusts nobody.

Owns a paged cache of contexts instead of tensors: slot p of a sequence holds the hash of its tokens
0..p. So whatever a real engine would read wrongly (a stale block, somebody else's block, a block at
another position, a gap) shows at the step that reads it. Invariant: a row that passes is exactly what
the committed text asks for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from router_backend.core.request import RequestKey
from router_backend.scheduler.batch import BatchPlan, IntArray, Row, StepOutput
from router_backend.simulation.commits import CommitLog, Text
from router_backend.simulation.script import Script


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """`latency_s[rows - 1]` is the step time, the last entry also for larger batches."""

    model: int
    num_blocks: int
    block_size: int
    latency_s: tuple[float, ...] = (1.0,)


@dataclass(slots=True)
class Engine:
    """Runs plans of one model; AssertionError with the row when a plan is wrong."""

    settings: EngineSettings
    script: Script
    commits: CommitLog
    sampled: int = 0
    _slots: list[int] = field(init=False)
    _computed: dict[RequestKey, int] = field(default_factory=dict)
    """Tokens whose context was computed or read here, as of each request's last row."""

    def __post_init__(self) -> None:
        self._slots = [-1] * (self.settings.num_blocks * self.settings.block_size)

    def step_s(self, plan: BatchPlan) -> float:
        latency = self.settings.latency_s
        return latency[min(len(plan.rows), len(latency)) - 1]

    def execute(self, plan: BatchPlan) -> StepOutput:
        """Feed every row; R sampled tokens, entropies in nats if the plan needs them."""
        assert plan.rows, f"step {plan.step} has no rows"
        for row in plan.rows:
            self._feed(row, self.commits[row.key])
        rows = plan.sampling_rows
        self.sampled += len(rows)
        tokens = np.array([self._token(row) for row in rows], dtype=np.int64)
        columns = self._logprobs(rows, tokens)
        if not plan.needs.entropy:
            return StepOutput(tokens, **columns)
        entropies = [self.script.entropy(row.sampling.seed, row.end, self.settings.model) for row in rows]
        return StepOutput(tokens, entropy=np.array(entropies, dtype=np.float32), **columns)

    def _logprobs(self, rows: tuple[Row, ...], tokens: IntArray) -> dict[str, Any]:
        """What clients may ask for: the token itself and those after it, each less likely by 1."""
        asked = [row.sampling.logprobs for row in rows if row.sampling.logprobs is not None]
        if not asked:
            return {}
        own = np.array([self.script.logprob(self._context(row), self.settings.model) for row in rows])
        ranks = np.arange(max(asked))
        ids = (tokens[:, None] + ranks) % self.script.vocab_size
        return {"logprobs": own, "top_ids": ids, "top_logprobs": own[:, None] - ranks}

    def _token(self, row: Row) -> int:
        return self.script.token(row.sampling.seed, self._context(row), self.settings.model)

    def _context(self, row: Row) -> int:
        return self._slots[self._slot(row, row.end - 1)]

    def _feed(self, row: Row, text: Text) -> None:
        assert row.token_ids and row.token_ids == text.tokens[row.start : row.end], (row, text.tokens)
        assert row.is_sampling == (row.end == len(text.tokens)), (row, len(text.tokens))
        assert len(set(row.blocks)) == len(row.blocks), f"a block twice in {row}"
        assert len(row.blocks) * self.settings.block_size >= row.end, f"too few blocks in {row}"
        self._check_start(row)
        found = self._read(row)
        assert found == text.contexts[: row.start], f"{row} reads a cache that is not its own: {found}"
        for position in range(row.start, row.end):
            self._slots[self._slot(row, position)] = text.contexts[position]
        self._computed[row.key] = row.end

    def _check_start(self, row: Row) -> None:
        """Go on where the last row ended (its last token may be fed again), or at a cached prefix."""
        computed = self._computed.get(row.key, 0)
        is_resumed = row.start in (computed, computed - 1)
        assert is_resumed or row.start % self.settings.block_size == 0, (row, computed)

    def _read(self, row: Row) -> list[int]:
        size = self.settings.block_size
        found: list[int] = []
        for block in row.blocks[: -(-row.start // size)]:
            found += self._slots[block * size : (block + 1) * size]
        return found[: row.start]

    def _slot(self, row: Row, position: int) -> int:
        size = self.settings.block_size
        return row.blocks[position // size] * size + position % size
