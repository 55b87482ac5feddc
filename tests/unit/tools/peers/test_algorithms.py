"""Coins route as an algorithm was seen to route; heads are loadable and their policies find the share."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from python_backend.runner.heads.card import read_card
from router_backend.policies.registry import FACTORIES
from tools.bench_combinations import BASELINES, OURS, as_table
from tools.peers.algorithms import ALGORITHMS, SHARE, Algorithm, Chosen, chosen, write_heads
from tools.peers.figures import Row
from tools.peers.pair import random_pair
from tools.peers.workload import Coins, Question, Walk


@pytest.mark.parametrize(
    ("algorithm", "coins"),
    [("r2r", Coins(0.35)), ("r_stitch", Coins(0.2, comes_back=0.5)), ("mixture", Coins(SHARE, 0.65, True))],
)
def test_coins_give_the_share_that_was_seen(algorithm: str, coins: Coins) -> None:
    walk, written = Walk(coins, random.Random(3)), [0, 0]
    for _ in range(30_000):
        writer = walk.writer
        written[writer] += walk.is_committed()
    known = next(one for one in ALGORITHMS if one.name == algorithm)

    found = Chosen(known, {}, coins.comes_back).coins(written[1] / sum(written))
    assert (found.leave, found.comes_back) == pytest.approx((coins.leave, coins.comes_back), abs=0.02)
    assert found.keeps == coins.keeps


@dataclass
class Signals:
    """Routes by a uniform signal: the share is the cutoff, or what is above it."""

    rises: bool
    policy: str = ""
    options: Any = None

    async def writers(self, question: Question) -> AsyncIterator[list[int]]:
        source, cutoff = random.Random(question.seed), self.options["cutoff"]
        yield [int((source.random() < cutoff) == self.rises) for _ in range(question.output_tokens)]


@pytest.mark.parametrize("rises", [True, False])
def test_the_cutoff_gives_the_large_model_its_share(rises: bool) -> None:
    system: Any = Signals(rises)
    found = asyncio.run(chosen(Algorithm("any", (0.0, 1.0), rises), system, 64, 128))

    wanted = SHARE if rises else 1.0 - SHARE
    assert found.options["cutoff"] == pytest.approx(wanted, abs=0.1)


def test_every_algorithm_is_a_policy_and_has_its_head(tmp_path: Path) -> None:
    pair = random_pair(tmp_path)
    write_heads(pair)

    assert {one.name for one in ALGORITHMS} <= set(FACTORIES)
    assert {path.name: read_card(path).algorithm for path in (pair.small / "heads").iterdir()} == {
        name: name for name in ("citer", "r2r", "co_llm")
    }


def test_the_table_holds_ours_against_the_quicker_baseline() -> None:
    def seen(system: str, speed: float) -> Row:
        return Row(system, 4, 64, 32, speed, speed, speed, 1.0, None, None, None, None, 0.0, {}, 0.0, 0.35)

    speeds = dict(zip((*OURS, *BASELINES), (600.0, 900.0, 200.0, 300.0), strict=True))
    rows = [seen(f"r2r {name}", speed) for name, speed in speeds.items()]

    assert as_table(rows).splitlines()[-1] == "| r2r | 32 | 64 | 600 | 900 | 200 | 300 | 2.0 | 3.0 | 35% |"
