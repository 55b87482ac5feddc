"""Blocks are held, cached or free: exactly one of the three."""

from __future__ import annotations

import pytest

from router_backend.kvcache.block_pool import BlockPool


def test_a_released_block_is_free_again():
    pool = BlockPool(2)
    block = pool.allocate()

    assert (pool.num_free, pool.num_held) == (1, 1)
    pool.release(block)
    assert (pool.num_free, pool.num_cached, pool.num_held) == (2, 0, 0)


def test_a_published_block_stays_findable_after_its_last_holder():
    pool = BlockPool(2)
    block = pool.allocate()
    pool.publish(block, b"a")
    pool.release(block)

    assert (pool.find(b"a"), pool.num_cached) == (block, 1)
    pool.share(block)
    assert (pool.references(block), pool.num_cached) == (1, 0)
    pool.check_integrity()


def test_worthless_blocks_are_used_before_cached_ones_and_the_oldest_cached_first():
    pool = BlockPool(3)
    blocks = [pool.allocate() for _ in range(3)]
    for block, name in zip(blocks[:2], (b"old", b"new"), strict=True):
        pool.publish(block, name)
    for block in blocks:
        pool.release(block)

    assert [pool.allocate() for _ in range(3)] == [blocks[2], blocks[0], blocks[1]]
    assert pool.find(b"old") is None and pool.find(b"new") is None


def test_the_second_copy_of_a_content_stays_private():
    pool = BlockPool(2)
    first, second = pool.allocate(), pool.allocate()
    pool.publish(first, b"a")
    pool.publish(second, b"a")
    pool.release(second)

    assert pool.find(b"a") == first
    assert (pool.num_free, pool.num_cached) == (1, 0)


def test_a_shared_block_is_free_only_after_both_holders_let_go():
    pool = BlockPool(1)
    block = pool.allocate()
    pool.share(block)
    pool.release(block)

    assert (pool.num_available, pool.num_held) == (0, 1)
    pool.release(block)
    assert pool.num_available == 1


def test_releasing_too_often_or_allocating_from_nothing_is_our_mistake():
    pool = BlockPool(1)
    block = pool.allocate()
    with pytest.raises(AssertionError, match="without an available block"):
        pool.allocate()
    pool.release(block)
    with pytest.raises(AssertionError, match="released more often than held"):
        pool.release(block)


def test_the_integrity_check_sees_a_block_in_two_places():
    pool = BlockPool(2)
    pool._free.append(pool.allocate())

    with pytest.raises(AssertionError, match="two places"):
        pool.check_integrity()
