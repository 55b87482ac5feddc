"""The closed loop keeps its concurrency, ends in time, and its figures are those of what arrived."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import pytest

from tools.peers.closed_loop import Answer, Client, drive
from tools.peers.figures import NothingMeasuredError, Row, median_row, row
from tools.peers.processes import Usage
from tools.peers.workload import Question, Workload, questions

WORKLOAD = Workload(concurrency=3, output_tokens=4, context=5, route_probability=0.5, seconds_max=20.0)


@dataclass
class Instant:
    """Answers at once, every second token by the large model; client `broken` fails."""

    broken: int = -1

    def pids(self) -> Sequence[int]:
        return []

    async def answer(self, question: Question) -> AsyncIterator[tuple[int, int]]:
        if question.client == self.broken:
            raise RuntimeError("refused")
        for number in range(question.output_tokens):
            await asyncio.sleep(0)
            yield 1, number % 2


class Silent(Instant):
    async def answer(self, question: Question) -> AsyncIterator[tuple[int, int]]:
        await asyncio.Event().wait()
        yield 1, 0


def test_every_client_gets_one_whole_answer_before_the_cell_ends() -> None:
    clients = asyncio.run(drive(Instant(), questions(WORKLOAD, 128), WORKLOAD))

    assert [one.answers[0].is_whole for one in clients] == [True, True, True]
    assert {len(one.answers[0].arrivals) for one in clients} == {4}


def test_a_client_that_fails_fails_the_cell() -> None:
    with pytest.raises(RuntimeError, match="refused"):
        asyncio.run(drive(Instant(broken=1), questions(WORKLOAD, 128), WORKLOAD))


def test_a_system_that_says_nothing_ends_with_the_time_and_has_no_figures() -> None:
    short = Workload(2, 4, 5, 0.5, seconds_max=0.05)
    clients = asyncio.run(drive(Silent(), questions(short, 128), short))

    with pytest.raises(NothingMeasuredError, match=r"silent: no token within 0.05 s"):
        row("silent", short, clients, Usage(0.0, 0.0))


def test_prompts_differ_from_their_first_token_on_and_have_their_length() -> None:
    asked = questions(Workload(16, 4, 300, 0.5, 1.0), 128)

    assert {len(one.ids) for one in asked} == {300}
    assert len({one.ids[:8] for one in asked}) == 16
    assert asked == questions(Workload(16, 4, 300, 0.5, 1.0), 128)


def test_a_row_is_worked_out_from_what_arrived() -> None:
    question = questions(WORKLOAD, 128)[0]
    quick = Answer(10.0, [(11.0, 1, 0), (12.0, 2, 1), (14.0, 1, 1)], is_whole=True)
    slow = Answer(10.0, [(13.0, 2, 0), (16.0, 2, 0)], is_whole=True)
    clients = [Client(question, [quick]), Client(question, [slow])]

    assert row("one", WORKLOAD, clients, Usage(cpu_s=4.0, peak_rss_mb=7.0)) == Row(
        system="one",
        concurrency=3,
        output_tokens=4,
        context=5,
        throughput=6 / 4,
        latency_p50_s=5.0,
        latency_p99_s=pytest.approx(5.98),
        ttft_p50_s=2.0,
        gap_p50_ms=1500.0,
        cpu_s_per_token=0.5,
        peak_rss_mb=7.0,
        large_share=0.25,
    )


def test_the_median_row_is_taken_field_by_field() -> None:
    first = Row("one", 1, 2, 3, 10.0, 1.0, None, 1.0, 1.0, 1.0, 1.0, 0.0)
    second = Row("one", 1, 2, 3, 30.0, None, None, 2.0, 1.0, 1.0, 1.0, 0.0)
    third = Row("one", 1, 2, 3, 20.0, 3.0, None, 3.0, 1.0, 1.0, 1.0, 0.0)

    assert median_row([first, second, third]) == Row("one", 1, 2, 3, 20.0, 2.0, None, 2.0, 1.0, 1.0, 1.0, 0.0)
