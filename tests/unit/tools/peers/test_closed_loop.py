"""The closed loop keeps its concurrency, ends in time, and its figures are those of what arrived."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import pytest

from tools.peers.closed_loop import Answer, Asker, Watched, Window, watch
from tools.peers.figures import NothingMeasuredError, Row, row
from tools.peers.processes import Usage
from tools.peers.workload import Coins, Question, Workload, question

WORKLOAD = Workload(3, 4, 5, Coins(0.5), window_s=0.02, windows=2)
NOTHING = Usage(0.0, 0.0, {})


@dataclass
class Instant:
    """Answers at once, every second token by the large model; client `broken` fails."""

    broken: int = -1
    asked: list[Question] = field(default_factory=list)

    def pids(self) -> Sequence[int]:
        return []

    async def answer(self, question: Question) -> AsyncIterator[tuple[int, int]]:
        self.asked.append(question)
        if question.client == self.broken:
            raise RuntimeError("refused")
        for number in range(question.output_tokens):
            await asyncio.sleep(0)
            yield 1, number % 2


class Silent(Instant):
    async def answer(self, question: Question) -> AsyncIterator[tuple[int, int]]:
        await asyncio.Event().wait()
        yield 1, 0


def watched(system: Instant, workload: Workload = WORKLOAD) -> Watched:
    ask = functools.partial(questions, workload)
    return asyncio.run(watch(Asker(system, ask, lambda: NOTHING), workload))


def questions(workload: Workload, client: int, number: int) -> Question:
    return question(workload, client, number, 128)


def test_who_has_its_answer_asks_the_next_question() -> None:
    system = Instant()
    seen = watched(system)

    assert len(seen.windows) == 2
    by_client = [[one for one in system.asked if one.client == client] for client in range(3)]
    assert all(len(asked) > 2 for asked in by_client)
    assert all(len({one.ids for one in asked}) == len(asked) for asked in by_client)


def test_a_client_that_fails_fails_the_cell() -> None:
    with pytest.raises(RuntimeError, match="refused"):
        watched(Instant(broken=1))


def test_a_system_that_says_nothing_ends_with_the_time_and_has_no_figures() -> None:
    short = Workload(2, 4, 5, window_s=0.02, windows=1, warm_up_s_max=0.05)
    seen = watched(Silent(), short)

    with pytest.raises(NothingMeasuredError, match=r"silent: hardly a token in windows of 0.02 s"):
        row("silent", short, seen)


def test_clients_begin_evenly_spread_over_an_answer_and_ask_for_whole_ones_afterwards() -> None:
    workload = Workload(4, 80, 300)
    first = [questions(workload, client, 0) for client in range(4)]
    later = [questions(workload, client, 1) for client in range(4)]

    assert [len(one.ids) - 300 for one in first] == [10, 30, 50, 70]
    assert [one.output_tokens for one in first] == [70, 50, 30, 10]
    assert {(len(one.ids), one.output_tokens) for one in later} == {(300, 80)}


def test_no_two_prompts_of_any_cell_begin_alike() -> None:
    cells = [Workload(n, out, 20) for n in (8, 16) for out in (4, 8)]
    asked = [questions(cell, client, number) for cell in cells for client in range(8) for number in range(3)]

    assert len({one.ids[:8] for one in asked}) == len(asked)
    assert len({one.seed for one in asked}) == len(asked)
    assert questions(cells[0], 1, 2) == questions(cells[0], 1, 2)


def test_a_row_is_worked_out_from_what_arrived_in_the_windows() -> None:
    before = Answer(5.0, False, [(9.0, 1, 0), (11.0, 2, 1), (12.0, 1, 1)], is_whole=True)
    whole = Answer(10.0, True, [(11.0, 1, 0), (13.0, 2, 0), (15.0, 1, 0)], is_whole=True)
    cut_off = Answer(15.0, True, [(20.0, 1, 1)])
    windows = [
        Window(10.0, 12.0, Usage(1.0, 6.0, {"small": 0.5, "large": 0.5})),
        Window(12.0, 16.0, Usage(2.5, 7.0, {"small": 2.5, "new": 3.5})),
    ]

    assert row("one", WORKLOAD, Watched([before, whole, cut_off], windows)) == Row(
        system="one",
        concurrency=3,
        output_tokens=4,
        context=5,
        throughput=pytest.approx((4 / 2 + 3 / 4) / 2),
        throughput_least=0.75,
        throughput_most=2.0,
        latency_mean_s=pytest.approx(12 / 1.375),
        latency_p50_s=5.0,
        latency_p99_s=5.0,
        ttft_p50_s=1.0,
        gap_p50_ms=1000.0,
        cpu_s_per_token=3.5 / 7,
        cpu_s_per_token_by_process={"small": 3.0 / 7, "large": 0.5 / 7, "new": 0.5},
        peak_rss_mb=7.0,
        large_share=2 / 7,
    )
