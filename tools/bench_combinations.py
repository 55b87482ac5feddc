"""The paper's fifteen combinations in small: five routing algorithms by three workloads, one table.

    python -m tools.bench_combinations [--resume FILE] [--page docs/benchmarks.md] [--json]
                                       [--concurrency 4] [--windows 5] [--seconds 0.8] [--algorithms r2r ...]

R-Stitch, CITER, R2R, Co-LLM and ME (here: mixture) on random weights of the demo pair's shapes, with random
heads of the published shapes and cutoffs that give the large model 35 % of the tokens; 64 tokens in and 64
out, 64 in and 1,024 out, and 2,048 in and 256 out (8k and 1k by four). The ratio is to the quicker of
standard_ours (our own server called for one token at a time) and research_loop (one request at a time): those
are what the algorithms are published on. step_sync and model_sync are modes of this runtime, not something
that anyone would use instead; `bench_peers` has them. Rows are kept; --resume FILE goes on with them.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from tools.bench_peers import FAULTS, KEPT, as_line, end_on_kill
from tools.marked_page import MarkerError, write_between
from tools.peers.algorithms import ALGORITHMS, SHARE, Chosen, chosen, write_heads
from tools.peers.closed_loop import Asker, System, watch
from tools.peers.figures import NothingMeasuredError, Row, row
from tools.peers.pair import random_pair
from tools.peers.plans import WARM_UP_S, seconds
from tools.peers.processes import usage
from tools.peers.record import Record, RecordError
from tools.peers.routed import Routed
from tools.peers.systems import SYSTEMS, Kit
from tools.peers.tables import table
from tools.peers.workload import Question, Workload, question

OURS, BASELINES = ("eager_async", "delayed"), ("standard_ours", "research_loop")
"""Ours first: the baselines' coins are counted there."""
SHAPES = ((64, 64), (64, 1024), (2048, 256))
"""Tokens in, tokens out."""
TEMPERATURE = 1.0
"""Random weights repeat themselves under greedy decoding, and a signal that never changes routes nothing."""
CALIBRATION_S = 60.0
WARM_UP_S_MAX = 15.0
"""The long prompts of both models are read before tokens count."""


class Combinations:
    """One run over the cells that a record has not."""

    def __init__(self, options: argparse.Namespace, record: Record) -> None:
        self.record = record
        self.failures: list[str] = []
        self._options = options
        self._algorithms = [one for one in ALGORITHMS if one.name in options.algorithms]
        self._chosen: dict[tuple[str, int, int], Chosen] = {}

    def run(self) -> None:
        names = (*OURS, *BASELINES)
        each_s = WARM_UP_S + self._options.windows * self._options.seconds
        left = (seconds([(name, each_s) for name in names] * self._cells) + CALIBRATION_S) / 60
        _tell(f"~{left:.0f} minutes if nothing is there yet; rows go to {self.record.path}")
        with tempfile.TemporaryDirectory(prefix="bench_combinations-") as folder:
            pair = random_pair(Path(folder) / "pair")
            write_heads(pair)
            longest = max(map(sum, SHAPES)) + 64
            kit = Kit(pair, Path(folder), longest, self._options.concurrency, _tell)
            for name in names:
                try:
                    asyncio.run(self._measure(name, kit))
                except FAULTS as error:
                    self.failures.append(f"{name}: {error}")
                    _tell(self.failures[-1])

    @property
    def _cells(self) -> int:
        return len(self._algorithms) * len(SHAPES)

    async def _measure(self, name: str, kit: Kit) -> None:
        async with SYSTEMS[name](kit) as system:
            if not self._chosen:
                await self._calibrate(system, kit.pair.vocab_size)
            for (algorithm, context, output), one in self._chosen.items():
                label = f"{algorithm} {name}"
                if (label, self._options.concurrency, output, context) not in self.record.rows:
                    workload = self._workload(context, output, one)
                    await self._cell(label, _under(system, one), workload, kit.pair.vocab_size)

    async def _calibrate(self, system: System, vocab_size: int) -> None:
        """The cutoffs for every algorithm and workload, in the middle of its answers."""
        assert isinstance(system, Routed), "ours comes first"
        drawing = replace(system, temperature=TEMPERATURE)
        for algorithm, (context, output) in itertools.product(self._algorithms, SHAPES):
            one = await chosen(algorithm, drawing, context + output // 2, vocab_size)
            self._chosen[algorithm.name, context, output] = one
            _tell(f"{algorithm.name}, {context} in, {output} out: {one.options}")

    async def _cell(self, label: str, system: System, workload: Workload, vocab_size: int) -> None:
        ask = functools.partial(_question, workload, vocab_size)
        seen = await watch(Asker(system, ask, lambda: usage(system.pids())), workload)
        try:
            measured = row(label, workload, seen)
        except NothingMeasuredError as error:
            self.failures.append(str(error))
            return
        self.record.add(measured)
        _tell(as_line(measured))

    def _workload(self, context: int, output: int, one: Chosen) -> Workload:
        """A baseline's coins give the share that ours had in this very cell."""
        options = self._options
        first = f"{one.algorithm.name} {OURS[0]}", options.concurrency, output, context
        share = self.record.rows[first].large_share if first in self.record.rows else SHARE
        shape, counted = (options.concurrency, output, context), (options.seconds, options.windows)
        return Workload(*shape, one.coins(share), *counted, warm_up_s_max=WARM_UP_S_MAX)


def _under(system: System, one: Chosen) -> System:
    """Ours under the real policy; a baseline as it is, its coins come with the question."""
    if not isinstance(system, Routed):
        return system
    return replace(system, policy=one.algorithm.name, options=dict(one.options), temperature=TEMPERATURE)


def _question(workload: Workload, vocab_size: int, client: int, number: int) -> Question:
    return question(workload, client, number, vocab_size)


def as_table(rows: Sequence[Row]) -> str:
    """A line per combination; tok/s, and ours over the quicker baseline."""
    speeds: dict[tuple[str, int, int], dict[str, Row]] = {}
    for one in rows:
        algorithm, system = one.system.split()
        speeds.setdefault((algorithm, one.context, one.output_tokens), {})[system] = one
    lines = [[*map(str, key), *_cells(found)] for key, found in speeds.items()]
    ratios = [f"{mode} / quicker baseline" for mode in OURS]
    return table(["algorithm", "in", "out", *OURS, *BASELINES, *ratios, "large share"], lines)


def _cells(found: dict[str, Row]) -> list[str]:
    baseline = max((found[name].throughput for name in BASELINES if name in found), default=0.0)
    shares = [found[name].large_share for name in OURS if name in found]
    return [
        *(f"{found[name].throughput:.0f}" if name in found else "-" for name in (*OURS, *BASELINES)),
        *(f"{found[name].throughput / baseline:.1f}" if name in found and baseline else "-" for name in OURS),
        f"{shares[0]:.0%}" if shares else "-",
    ]


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="python -m tools.bench_combinations",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = result.add_argument
    add("--json", action="store_true", help="print JSON instead of a table")
    add("--resume", type=Path, metavar="FILE", help="JSON lines to go on with; made if missing")
    add("--page", type=Path, metavar="MD", help="write the table between the page's markers")
    names = [one.name for one in ALGORITHMS]
    add(
        "--algorithms", nargs="+", choices=names, default=names, metavar="NAME", help=f"of {', '.join(names)}"
    )
    add("--concurrency", type=int, default=4, help="requests at once (default 4)")
    add("--windows", type=int, default=5, help="in a cell; the median counts (default 5)")
    add("--seconds", type=float, default=0.8, help="of each window (default 0.8)")
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """0; 1 when something could not be measured, after all else was."""
    options = parser().parse_args(argv)
    end_on_kill()
    path = options.resume or KEPT / f"combinations-{time.strftime('%Y%m%d-%H%M%S')}.jsonl"
    settings = {key: getattr(options, key) for key in ("windows", "seconds")}
    try:
        bench = Combinations(options, Record(path, {"set": "combinations", **settings}))
        bench.run()
        rows = list(bench.record.rows.values())
        if options.page:
            write_between(options.page, "combinations", "python -m tools.bench_combinations", as_table(rows))
    except (MarkerError, RecordError) as error:
        print(f"bench_combinations: {error}", file=sys.stderr)
        return 1
    document = {"rows": [*map(asdict, rows)], "failures": bench.failures}
    print(json.dumps(document) if options.json else as_table(rows))
    return 1 if bench.failures else 0


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
