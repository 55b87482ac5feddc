"""Whole systems side by side on the same models, prompts and routing rule, in one run.

    python -m tools.bench_peers [--set peers | contexts | growth | cpu] [--resume FILE]
                                [--page docs/benchmarks.md] [--json] [--plot PNG]
                                [--systems delayed standard_vllm ...]
                                [--concurrency 1 4 8 16] [--output 128 512 2048] [--context 256]
                                [--pair SMALL_DIR LARGE_DIR] [--windows 5] [--seconds 1.5]

ours: delayed, eager_async, step_sync, model_sync (routed), speculative (drafts of four), small_only and
large_only (one model); what people would use instead: standard_ours, standard_vllm, standard_llama_cpp (a
server per model, called for one token at a time), research_loop (transformers, no batching),
assisted_generation (transformers' speculative decoding). Greedy; after a token of the small model the large
one writes it instead with probability 0.35. Default models: random weights of the demo pair's shapes. vLLM
and llama.cpp are installed into .peers (TOKEN_ROUTER_PEERS names another folder) at first use.

Throughput is the median of five windows of a closed loop whose clients are spread over their answers. How
long it takes is told first. Every row is kept in a file as soon as it is measured; with --resume FILE a run
that was broken off goes on, and one that is done only prints. Give it a quiet machine.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tools.marked_page import MarkerError, write_between
from tools.metrics_page import MetricsPageError
from tools.peer_environments import PeerEnvironmentError
from tools.peers import tables
from tools.peers.closed_loop import Asker, watch
from tools.peers.figures import NothingMeasuredError, Row, row
from tools.peers.growth import exponents
from tools.peers.pair import Pair, random_pair
from tools.peers.plans import PLANS, Shape, cell_s, grid, seconds
from tools.peers.processes import usage
from tools.peers.record import Record, RecordError
from tools.peers.routed import RoutedError
from tools.peers.servers import PeerServerError
from tools.peers.standard import StandardError
from tools.peers.systems import COMPARED, SYSTEMS, Kit
from tools.peers.workload import Coins, Workload, question
from tools.triton_layout import ROOT
from tools.triton_server import ServerError

FAULTS = (
    *(MetricsPageError, PeerEnvironmentError, PeerServerError),
    *(RoutedError, ServerError, StandardError),
)
"""What costs one system its rows and no other system anything."""
KEPT = ROOT / ".run" / "benchmarks"
SETTLE_S = 0.3
"""Between two cells, for a server to hear that the former clients have gone."""


class Bench:
    """One run over the cells that a record has not."""

    def __init__(self, options: argparse.Namespace, record: Record) -> None:
        self.record = record
        self.failures: list[str] = []
        self._options = options
        plan = self._plan = PLANS[options.set]
        self._shapes = _shapes(options, plan.shapes)
        self._systems = options.systems or plan.systems or COMPARED

    @property
    def rows(self) -> list[Row]:
        """In the order of systems and cells, whenever they were measured."""
        cells = [(system, *shape) for system in self._systems for shape in self._shapes]
        return [self.record.rows[cell] for cell in cells if cell in self.record.rows]

    def run(self) -> None:
        with tempfile.TemporaryDirectory(prefix="bench_peers-") as name:
            kit = self._kit(Path(name))
            _tell(f"{self._minutes(self._systems)} minutes; rows go to {self.record.path}\n{HEAD}")
            for number, system in enumerate(self._systems):
                if not self._missing(system):
                    continue
                try:
                    asyncio.run(self._measure(system, kit))
                except FAULTS as error:
                    self._fail(f"{system}: {error}")
                _tell(f"{self._minutes(self._systems[number + 1 :])} minutes left")

    async def _measure(self, system: str, kit: Kit) -> None:
        """Every cell that is missing, all in one life of the system."""
        async with SYSTEMS[system](kit) as running:
            for workload in self._missing(system):
                ask = functools.partial(_question, workload, kit.pair.vocab_size)
                seen = await watch(Asker(running, ask, lambda: usage(running.pids())), workload)
                try:
                    self.record.add(row(system, workload, seen))
                    _tell(as_line(self.record.rows[_cell(system, workload)]))
                except NothingMeasuredError as error:
                    self._fail(str(error))
                await asyncio.sleep(SETTLE_S)

    def _missing(self, system: str) -> list[Workload]:
        workloads = [self._workload(shape) for shape in self._shapes]
        return [workload for workload in workloads if _cell(system, workload) not in self.record.rows]

    def _workload(self, shape: Shape) -> Workload:
        options = self._options
        coins, window_s = Coins(options.route_probability), _window_s(options)
        planned = self._plan.warm_up_s_max, self._plan.is_spread
        return Workload(*shape, coins, window_s, options.windows, *planned)

    def _minutes(self, systems: Sequence[str]) -> str:
        todo = ((system, cell_s(workload)) for system in systems for workload in self._missing(system))
        return f"~{seconds(todo) / 60:.0f}"

    def _kit(self, folder: Path) -> Kit:
        pair = Pair(*self._options.pair) if self._options.pair else random_pair(folder / "pair")
        longest = max(tokens + context for _, tokens, context in self._shapes)
        return Kit(pair, folder, longest + 64, max(n for n, _, _ in self._shapes), _tell)

    def _fail(self, text: str) -> None:
        self.failures.append(text)
        _tell(text)


def _question(workload: Workload, vocab_size: int, client: int, number: int) -> Any:
    return question(workload, client, number, vocab_size)


def _cell(system: str, workload: Workload) -> tuple[str, int, int, int]:
    return system, workload.concurrency, workload.output_tokens, workload.context


def _shapes(options: argparse.Namespace, planned: Sequence[Shape]) -> tuple[Shape, ...]:
    """The plan's, or a grid where an axis was given."""
    given = options.concurrency, options.output, options.context
    if not any(given):
        return tuple(planned)
    axes = [list(dict.fromkeys(values)) for values in zip(*planned, strict=True)]
    return grid(*(axis or default for axis, default in zip(given, axes, strict=True)))


HEAD = (
    f"{'system':<20}{'n':>4}{'out':>6}{'ctx':>6}{'tok/s':>9}{'answer s':>10}{'p50 s':>8}{'p99 s':>8}"
    f"{'ttft s':>8}{'gap ms':>8}{'cpu ms/tok':>12}{'MB':>7}{'large':>7}"
)


def as_line(one: Row) -> str:
    timed = (
        (one.latency_p50_s, 8, 2),
        (one.latency_p99_s, 8, 2),
        (one.ttft_p50_s, 8, 3),
        (one.gap_p50_ms, 8, 1),
    )
    known = "".join(
        f"{'-':>{width}}" if value is None else f"{value:{width}.{digits}f}" for value, width, digits in timed
    )
    return (
        f"{one.system:<20}{one.concurrency:>4}{one.output_tokens:>6}{one.context:>6}{one.throughput:>9.1f}"
        f"{one.latency_mean_s:>10.2f}{known}{1000 * one.cpu_s_per_token:>12.2f}{one.peak_rss_mb:>7.0f}"
        f"{one.large_share:>7.0%}"
    )


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="python -m tools.bench_peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = result.add_argument
    add("--set", choices=PLANS, default="peers", help="which cells of which systems (default peers)")
    add("--resume", type=Path, metavar="FILE", help="JSON lines to go on with; made if missing")
    add("--page", type=Path, metavar="MD", help="write the tables between this set's markers of the page")
    add("--json", action="store_true", help="print JSON instead of tables")
    add("--plot", type=Path, metavar="PNG", help="draw throughput against concurrency, output and context")
    names = f"of {', '.join(SYSTEMS)} (default: the set's)"
    add("--systems", nargs="+", choices=SYSTEMS, default=(), metavar="NAME", help=names)
    add("--concurrency", type=int, nargs="+", default=(), metavar="N", help="instead of the set's")
    add("--output", type=int, nargs="+", default=(), metavar="TOKENS", help="instead of the set's")
    add("--context", type=int, nargs="+", default=(), metavar="TOKENS", help="length of the prompts")
    pair = "two Hugging Face directories, one vocabulary"
    add("--pair", type=Path, nargs=2, metavar=("SMALL", "LARGE"), help=pair)
    add("--route-probability", type=float, default=0.35, metavar="P", help="small to large (default 0.35)")
    add("--windows", type=int, default=5, metavar="N", help="in a cell; the median counts (default 5)")
    add("--seconds", type=float, help="of each window (default: the set's, 1.5 for most)")
    return result


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    """What two rows must share to stand in one table."""
    pair = [str(folder) for folder in options.pair] if options.pair else "demo shapes"
    chosen = {key: getattr(options, key) for key in ("route_probability", "windows")}
    is_spread = PLANS[options.set].is_spread
    return {"pair": pair, **chosen, "seconds": _window_s(options), "is_spread": is_spread}


def _window_s(options: argparse.Namespace) -> float:
    return float(options.seconds or PLANS[options.set].window_s)


def _sections(options: argparse.Namespace, rows: Sequence[Row]) -> Iterator[str]:
    yield from filter(None, (section(rows) for section in tables.SECTIONS[options.set]))
    if options.set == "growth":
        yield tables.growth(exponents(rows))


def _publish(options: argparse.Namespace, bench: Bench) -> None:
    rows = bench.rows
    if options.plot and rows:
        from tools.peers.pictures import draw

        draw(options.plot, rows)
    text = "\n\n".join(filter(None, _sections(options, rows))) if rows else "nothing measured"
    if options.page and rows:
        command = f"python -m tools.bench_peers --set {options.set}"
        write_between(options.page, options.set, command, text)
    document = {"rows": [*map(asdict, rows)], "growth": exponents(rows), "failures": bench.failures}
    print(json.dumps(document) if options.json else text)


def end_on_kill() -> None:
    """SIGTERM ends like Ctrl-C: the servers end too."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def main(argv: Sequence[str] | None = None) -> int:
    """0; 1 when something could not be measured, after all else was."""
    options = parser().parse_args(argv)
    end_on_kill()
    began_at = time.perf_counter()
    path = options.resume or KEPT / f"{options.set}-{time.strftime('%Y%m%d-%H%M%S')}.jsonl"
    try:
        bench = Bench(options, Record(path, _settings(options)))
        bench.run()
        _publish(options, bench)
    except (RecordError, MarkerError) as error:
        print(f"bench_peers: {error}", file=sys.stderr)
        return 1
    _tell(f"took {time.perf_counter() - began_at:.0f} s")
    return 1 if bench.failures else 0


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
