"""Names for full blocks: a block's hash covers its tokens and everything before them.

Two sequences share a block only if they agree on every token up to its end, so a hit is exact. The
hash is cryptographic: a collision would put one user's context into another's answer.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from collections.abc import Sequence as Sequences
from hashlib import blake2b

ROOT = b""
_DIGEST_BYTES = 16


def chain_hash(parent: bytes, token_ids: Sequences[int]) -> bytes:
    """Hash of one full block, given the hash of the block before it (ROOT for the first)."""
    return blake2b(array("q", token_ids).tobytes(), digest_size=_DIGEST_BYTES, key=parent).digest()


def chain_hashes(tokens: Sequences[int], block_size: int, limit: int) -> Iterator[bytes]:
    """Hashes of the leading full blocks of `tokens[:limit]`, in order."""
    parent = ROOT
    for start in range(0, limit - block_size + 1, block_size):
        parent = chain_hash(parent, tokens[start : start + block_size])
        yield parent
