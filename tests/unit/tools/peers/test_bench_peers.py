"""A run tells its length, survives systems that cannot be measured, goes on where it ended, writes a page."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.unit.tools.peers.test_closed_loop import Instant
from tools import bench_peers
from tools.peers.figures import Row
from tools.peers.pictures import most_varied
from tools.peers.plans import PLANS, WARM_UP_S, cell_s, grid, lines, seconds
from tools.peers.standard import StandardError
from tools.peers.systems import SYSTEMS, Kit
from tools.peers.workload import Workload

QUICK = ["--concurrency", "2", "--output", "512", "2048", "--windows", "1", "--seconds", "0.05"]


class Refusing(Instant):
    async def answer(self, question: object) -> AsyncIterator[tuple[int, int]]:
        raise StandardError("the server is gone")
        yield 1, 0


def always(system: Instant) -> object:
    @contextlib.asynccontextmanager
    async def opened(kit: Kit) -> AsyncIterator[Instant]:
        yield system

    return opened


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> Instant:
    system = Instant()
    systems = {"broken": always(Refusing()), "delayed": always(system)}
    monkeypatch.setattr(bench_peers, "SYSTEMS", MappingProxyType(systems))
    monkeypatch.setattr(bench_peers, "random_pair", lambda folder: bench_peers.Pair(folder, folder))
    monkeypatch.setattr(bench_peers.Pair, "vocab_size", property(lambda pair: 128))
    return system


def test_the_others_are_measured_and_the_failure_is_told(
    whole: Instant, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    options = [*QUICK, "--systems", "broken", "delayed", "--json", "--resume", str(tmp_path / "rows.jsonl")]

    assert bench_peers.main(options) == 1
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert [(row["system"], row["output_tokens"]) for row in document["rows"]] == [
        ("delayed", 512),
        ("delayed", 2048),
    ]
    assert document["failures"] == ["broken: the server is gone"]
    assert printed.err.startswith("~1 minutes; rows go to")


def test_a_run_that_was_broken_off_goes_on_and_a_whole_one_only_prints(
    whole: Instant, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    options = [*QUICK, "--systems", "delayed", "--json", "--resume", str(tmp_path / "rows.jsonl")]
    assert bench_peers.main([*options, "--output", "512"]) == 0
    capsys.readouterr()
    whole.asked.clear()

    assert bench_peers.main(options) == 0
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 2
    assert {len(one.ids) + one.output_tokens for one in whole.asked} == {256 + 2048}

    whole.asked.clear()
    assert bench_peers.main(options) == 0
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 2
    assert not whole.asked


def test_a_file_of_another_benchmark_is_refused(
    whole: Instant, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    options = [*QUICK, "--systems", "delayed", "--resume", str(tmp_path / "rows.jsonl")]
    assert bench_peers.main(options) == 0

    assert bench_peers.main([*options, "--route-probability", "0.5"]) == 1
    assert "route_probability 0.35, not 0.5" in capsys.readouterr().err


def test_the_tables_go_between_the_markers_of_the_page(whole: Instant, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- peers: begin (python -m tools.bench_peers --set peers) -->\n<!-- peers: end -->\n")
    options = [*QUICK, "--systems", "delayed", "--resume", str(tmp_path / "rows.jsonl"), "--page", str(page)]

    assert bench_peers.main(options) == 0
    text = page.read_text()
    assert "| tok/s | n 2, out 512, ctx 256 | n 2, out 2048, ctx 256 |" in text
    assert "kept at 2,048 tokens of what it had at 512" in text
    assert "2 requests at once:" in text


@pytest.mark.parametrize("name", PLANS)
def test_a_plans_systems_exist_and_its_time_can_be_told(name: str) -> None:
    plan = PLANS[name]

    assert set(plan.systems) <= set(SYSTEMS)
    assert len(set(plan.shapes)) == len(plan.shapes)


def test_time_is_counted_per_cell_and_once_per_system() -> None:
    assert seconds([("standard_vllm", 5.0), ("standard_vllm", 6.0)]) == 80.0 + 11.0
    assert seconds([]) == 0.0


def test_a_cell_takes_its_windows_and_what_reading_the_prompts_takes_at_most() -> None:
    short = Workload(4, 128, 0, window_s=2.0, windows=5)
    long = Workload(32, 128, 10_000, window_s=2.0, windows=5, warm_up_s_max=6.0)

    assert (cell_s(short), cell_s(long)) == (WARM_UP_S + 10.0, 16.0)


def test_a_panel_shows_an_axis_where_most_was_measured() -> None:
    def at(n: int, out: int) -> Row:
        return Row("ours", n, out, 256, 9.0, 8.0, 9.5, 1.0, None, None, None, None, 0.01, {}, 50.0, 0.3)

    rows = [at(1, 128), at(4, 128), at(4, 512), at(4, 2048), at(8, 128)]
    assert most_varied(rows, "output_tokens") == {"concurrency": 4, "context": 256}
    assert most_varied(rows, "concurrency") == {"output_tokens": 128, "context": 256}


def test_lines_vary_one_axis_at_a_time() -> None:
    assert grid([1, 4], [8], [2]) == ((1, 8, 2), (4, 8, 2))
    assert lines([1, 4], [8, 9], [2, 3]) == ((1, 8, 2), (4, 8, 2), (4, 9, 2), (4, 8, 3))
