"""The blocks of one model's KV pool: who holds them, which are free, which are free but still useful.

Every block is in exactly one of three places: held (reference count > 0), cached (count 0, content
addressable by its chain hash, reclaimed oldest first), or free (count 0, content worthless).
free + cached + held == total, always. Owns no tensor.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field


@dataclass(slots=True)
class BlockPool:
    """Reference counts and reuse order of `num_blocks` blocks."""

    num_blocks: int
    _free: list[int] = field(init=False)
    _references: list[int] = field(init=False)
    _cached: OrderedDict[int, None] = field(init=False)
    _hash_of: dict[int, bytes] = field(init=False)
    _block_of: dict[bytes, int] = field(init=False)

    def __post_init__(self) -> None:
        self._free = list(range(self.num_blocks - 1, -1, -1))
        self._references = [0] * self.num_blocks
        self._cached = OrderedDict()
        self._hash_of = {}
        self._block_of = {}

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_cached(self) -> int:
        return len(self._cached)

    @property
    def num_available(self) -> int:
        """Blocks that `allocate` can hand out."""
        return len(self._free) + len(self._cached)

    @property
    def num_held(self) -> int:
        return self.num_blocks - self.num_available

    def allocate(self) -> int:
        """A block for the caller alone. Worthless blocks go first, then the cached one unused for longest."""
        if self._free:
            block = self._free.pop()
        else:
            assert self._cached, "allocate() without an available block: ask num_available first"
            block, _ = self._cached.popitem(last=False)
            del self._block_of[self._hash_of.pop(block)]
        self._references[block] = 1
        return block

    def share(self, block: int) -> None:
        """One more holder of a held or cached block."""
        if self._references[block] == 0:
            del self._cached[block]
        self._references[block] += 1

    def release(self, block: int) -> None:
        """One holder less; the last one leaves the content in the cache if it was published."""
        assert self._references[block] > 0, f"block {block} released more often than held"
        self._references[block] -= 1
        if self._references[block]:
            return
        if block in self._hash_of:
            self._cached[block] = None
        else:
            self._free.append(block)

    def publish(self, block: int, chain_hash: bytes) -> None:
        """Make the full block findable. Content that is already findable elsewhere stays private here."""
        if chain_hash not in self._block_of:
            self._block_of[chain_hash] = block
            self._hash_of[block] = chain_hash

    def find(self, chain_hash: bytes) -> int | None:
        return self._block_of.get(chain_hash)

    def references(self, block: int) -> int:
        return self._references[block]

    def check_integrity(self) -> None:
        """Raise AssertionError, with the blocks at fault, unless every block is in exactly one place."""
        free, cached = set(self._free), set(self._cached)
        held = {block for block, count in enumerate(self._references) if count > 0}
        assert len(free) == len(self._free), "a block is free twice"
        shared = (free & cached) | (free & held) | (cached & held)
        assert not shared, f"in two places at once: {shared}"
        assert len(free) + len(cached) + len(held) == self.num_blocks, (len(free), len(cached), len(held))
        assert cached <= self._hash_of.keys(), f"cached without a hash: {cached - self._hash_of.keys()}"
        assert {digest: block for block, digest in self._hash_of.items()} == self._block_of, "hashes disagree"
