"""Block tables: reserving, sharing prefixes, giving back."""

from __future__ import annotations

import pytest

from router_backend.core.request import ModelIndex
from router_backend.core.sequence import Sequence
from router_backend.kvcache.block_manager import BlockManager
from router_backend.kvcache.prefix_cache import ROOT, chain_hash, chain_hashes
from tests.builders import request


def sequence(name: str, tokens: list[int]) -> Sequence:
    return Sequence(request(name, tokens), ModelIndex(0), 1, list(tokens), [len(tokens), 0])


def computed(kv: BlockManager, name: str, tokens: list[int]) -> Sequence:
    made = sequence(name, tokens)
    kv.reserve(made, len(tokens))
    made.num_computed = len(tokens)
    kv.publish_computed(made)
    return made


def test_a_table_grows_by_whole_blocks():
    kv = BlockManager(8, 4)
    grown = sequence("a", [1, 2, 3])
    kv.reserve(grown, 4)

    assert len(grown.blocks) == 1
    assert kv.num_missing(grown, 5) == 1
    kv.reserve(grown, 9)
    assert len(grown.blocks) == 3
    assert kv.capacity_tokens == 32


def test_asking_changes_nothing():
    kv = BlockManager(2, 4)
    asked = sequence("a", [1])

    assert (kv.can_reserve(asked, 8), kv.can_reserve(asked, 9)) == (True, False)
    assert (asked.blocks, kv.pool.num_free) == ([], 2)


def test_an_equal_prefix_is_shared_but_its_last_token_is_computed():
    kv = BlockManager(8, 4)
    first = computed(kv, "a", list(range(8)))
    second = sequence("b", list(range(8)))

    assert kv.match_prefix(second) == 4
    assert second.blocks == first.blocks[:1]
    kv.check_integrity([first, second])


def test_a_different_first_token_shares_nothing():
    kv = BlockManager(8, 4)
    computed(kv, "a", [1, 2, 3, 4, 5])
    other = sequence("b", [9, 2, 3, 4, 5])

    assert (kv.match_prefix(other), other.blocks) == (0, [])


def test_the_cache_outlives_its_sequence():
    kv = BlockManager(8, 4)
    first = computed(kv, "a", [1, 2, 3, 4, 5])

    assert kv.release(first) == 5
    assert (first.num_computed, first.blocks, first.chain) == (0, [], ROOT)
    assert kv.match_prefix(sequence("b", [1, 2, 3, 4, 6])) == 4


def test_a_matched_sequence_goes_on_publishing_where_the_match_ended():
    kv = BlockManager(8, 2)
    kv.release(computed(kv, "a", [1, 2, 3]))
    second = sequence("b", [1, 2, 3, 4, 5])
    kv.match_prefix(second)
    kv.reserve(second, 5)
    second.num_computed = 5
    kv.publish_computed(second)
    third = sequence("c", [1, 2, 3, 4, 5])

    assert kv.match_prefix(third) == 4
    kv.check_integrity([second, third])


def test_a_sequence_with_blocks_must_not_match_again():
    kv = BlockManager(8, 4)
    with pytest.raises(AssertionError, match="already has blocks"):
        kv.match_prefix(computed(kv, "a", [1, 2, 3, 4]))


def test_the_integrity_check_sees_a_leaked_block():
    kv = BlockManager(8, 4)
    leaked = computed(kv, "a", [1, 2, 3, 4])
    leaked.blocks.clear()
    leaked.num_computed = 0

    with pytest.raises(AssertionError):
        kv.check_integrity([leaked])


def test_a_hash_covers_everything_before_its_block():
    assert chain_hash(b"x", [1, 2]) != chain_hash(b"y", [1, 2])
    hashes = list(chain_hashes([1, 2, 3, 4, 5], 2, 5))
    assert hashes == [chain_hash(ROOT, [1, 2]), chain_hash(chain_hash(ROOT, [1, 2]), [3, 4])]
