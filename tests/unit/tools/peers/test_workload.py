"""The routing rule with coins follows its chances and commits what the algorithm commits."""

from __future__ import annotations

import itertools
import random

import pytest

from tools.peers.workload import LARGE, SMALL, Coins, Walk

R2R, R_STITCH, ME = Coins(0.35), Coins(0.2, comes_back=0.5), Coins(0.4, comes_back=0.6, keeps=True)


def steps(coins: Coins, count: int) -> list[tuple[int, bool]]:
    walk = Walk(coins, random.Random(7))
    return [(walk.writer, walk.is_committed()) for _ in range(count)]


def test_a_discarded_token_is_the_small_ones_last_before_the_large_one_writes() -> None:
    walked = steps(R2R, 1000)

    assert walked[0][0] == SMALL
    for (writer, counts), (after, _) in itertools.pairwise(walked):
        assert counts == (writer == LARGE or after == SMALL)
        assert not (writer == LARGE and after == LARGE)


@pytest.mark.parametrize(
    ("coins", "share"),
    [(R2R, 0.35), (R_STITCH, (0.2 / 0.5) / (0.8 + 0.2 / 0.5)), (ME, 0.4), (Coins(0.0), 0.0)],
)
def test_the_large_models_share_is_that_of_the_chances(coins: Coins, share: float) -> None:
    committed = [writer for writer, counts in steps(coins, 20_000) if counts]

    assert sum(committed) / len(committed) == pytest.approx(share, abs=0.02)


def test_me_discards_nothing() -> None:
    assert all(counts for _, counts in steps(ME, 100))
