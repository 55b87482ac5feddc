"""Ten thousand random operations on a small pool: no block lost, no block shared by mistake."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from router_backend.core.request import ModelIndex
from router_backend.core.sequence import Sequence
from router_backend.kvcache.block_manager import BlockManager
from tests.builders import request

OPERATIONS = 10_000
LENGTH_MAX = 24


@dataclass
class Workload:
    """Sequences over two token ids, so that prefixes coincide; `content` is what each slot holds."""

    rng: np.random.Generator
    manager: BlockManager
    sequences: list[Sequence] = field(default_factory=list)
    content: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """By slot (block * size + offset): the tokens up to and with that position."""
    hits: int = 0
    full: int = 0

    def turn(self) -> None:
        rare = [self.begin, self.extend, self.release, self.end]
        operations = [*rare, self.compute, self.compute]
        operations[int(self.rng.integers(len(operations)))]()

    def begin(self) -> None:
        tokens = self.rng.integers(0, 2, self.rng.integers(1, 14)).tolist()
        name = f"r{int(self.rng.integers(1 << 60))}"
        self.sequences.append(Sequence(request(name, tokens), ModelIndex(0), 0, tokens, [0]))

    def picked(self) -> Sequence | None:
        return self.sequences[int(self.rng.integers(len(self.sequences)))] if self.sequences else None

    def compute(self) -> None:
        """What a step does: match or go on, reserve, write, publish."""
        sequence = self.picked()
        if sequence is None or sequence.num_uncomputed == 0:
            return
        if not sequence.blocks:
            self.hits += self.manager.match_prefix(sequence)
            assert sequence.num_computed < len(sequence.tokens)
        end = int(self.rng.integers(sequence.num_computed, len(sequence.tokens))) + 1
        if not self.manager.can_reserve(sequence, end):
            self.full += 1
            return
        self.manager.reserve(sequence, end)
        self.check_read(sequence)
        for position in range(sequence.num_computed, end):
            self.content[self.slot(sequence, position)] = tuple(sequence.tokens[: position + 1])
        sequence.num_computed = end
        self.manager.publish_computed(sequence)

    def extend(self) -> None:
        sequence = self.picked()
        if sequence is not None and len(sequence.tokens) < LENGTH_MAX:
            sequence.tokens.append(int(self.rng.integers(0, 2)))

    def release(self) -> None:
        sequence = self.picked()
        if sequence is not None:
            computed = sequence.num_computed
            assert self.manager.release(sequence) == computed

    def end(self) -> None:
        sequence = self.picked()
        if sequence is not None:
            self.manager.release(sequence)
            self.sequences.remove(sequence)

    def slot(self, sequence: Sequence, position: int) -> int:
        size = self.manager.block_size
        return sequence.blocks[position // size] * size + position % size

    def check_read(self, sequence: Sequence) -> None:
        """What attention would read is the sequence's own past."""
        for position in range(sequence.num_computed):
            assert self.content[self.slot(sequence, position)] == tuple(sequence.tokens[: position + 1])


@pytest.mark.parametrize("block_size", [1, 3, 4])
def test_random_operations_never_lose_or_mix_up_a_block(block_size: int) -> None:
    seed = 20 + block_size
    workload = Workload(np.random.default_rng(seed), BlockManager(16, block_size))
    for number in range(OPERATIONS):
        try:
            workload.turn()
            workload.manager.check_integrity(workload.sequences)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, operation {number}") from error
    pool = workload.manager.pool
    assert pool.num_free + pool.num_cached + pool.num_held == 16
    assert workload.hits > 100 and workload.full > 100, (workload.hits, workload.full)
