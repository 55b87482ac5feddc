"""Which KV blocks each sequence has, and how full the pool is.

Reserves before a step so that applying its output can never fail for lack of blocks. Knows nothing of
scheduling: the caller says whom to take blocks from.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from router_backend.core.sequence import Sequence
from router_backend.kvcache.block_pool import BlockPool
from router_backend.kvcache.prefix_cache import chain_hash, chain_hashes


@dataclass(slots=True)
class BlockManager:
    """Block tables over one pool of `num_blocks` blocks of `block_size` tokens each."""

    num_blocks: int
    block_size: int
    pool: BlockPool = field(init=False)

    def __post_init__(self) -> None:
        self.pool = BlockPool(self.num_blocks)

    @property
    def capacity_tokens(self) -> int:
        return self.num_blocks * self.block_size

    def num_missing(self, sequence: Sequence, length: int) -> int:
        """Blocks that `sequence` lacks to hold `length` tokens."""
        return max(0, -(-length // self.block_size) - len(sequence.blocks))

    def can_reserve(self, sequence: Sequence, length: int) -> bool:
        return self.num_missing(sequence, length) <= self.pool.num_available

    def reserve(self, sequence: Sequence, length: int) -> None:
        """Extend the block table to `length` tokens; the caller has asked `can_reserve`."""
        for _ in range(self.num_missing(sequence, length)):
            sequence.blocks.append(self.pool.allocate())

    def match_prefix(self, sequence: Sequence) -> int:
        """Give a sequence without blocks every cached block of its prefix; returns the tokens covered.

        At least one committed token is left to compute, since its logits are wanted.
        """
        assert not sequence.blocks, f"{sequence.request_id} already has blocks"
        for digest in chain_hashes(sequence.tokens, self.block_size, sequence.committed_len - 1):
            block = self.pool.find(digest)
            if block is None:
                break
            self.pool.share(block)
            sequence.blocks.append(block)
            sequence.chain = digest
        sequence.published = len(sequence.blocks)
        sequence.num_computed = sequence.published * self.block_size
        return sequence.num_computed

    def publish_computed(self, sequence: Sequence) -> None:
        """Offer the blocks that have become full of computed, committed tokens to other sequences."""
        size = self.block_size
        if (sequence.published + 1) * size > sequence.num_computed:
            return
        length = min(sequence.num_computed, sequence.committed_len)
        while (sequence.published + 1) * size <= length:
            start = sequence.published * size
            sequence.chain = chain_hash(sequence.chain, sequence.tokens[start : start + size])
            self.pool.publish(sequence.blocks[sequence.published], sequence.chain)
            sequence.published += 1

    def release(self, sequence: Sequence) -> int:
        """Take every block back; returns how many computed tokens are lost. The tokens stay."""
        lost = sequence.num_computed
        for block in reversed(sequence.blocks):
            self.pool.release(block)
        sequence.blocks.clear()
        sequence.num_computed = sequence.published = 0
        sequence.chain = b""
        return lost

    def check_integrity(self, sequences: Iterable[Sequence]) -> None:
        """Raise AssertionError unless every held block is held by exactly these sequences."""
        self.pool.check_integrity()
        held: dict[int, int] = {}
        for sequence in sequences:
            assert sequence.num_computed <= len(sequence.blocks) * self.block_size, sequence.request_id
            for block in sequence.blocks:
                held[block] = held.get(block, 0) + 1
        for block in range(self.num_blocks):
            owners = held.get(block, 0)
            assert self.pool.references(block) == owners, (block, self.pool.references(block), owners)
