"""Whole systems side by side on the same models, prompts and routing rule, in one run.

    python -m tools.bench_peers [--json] [--plot PNG] [--systems delayed standard_vllm ...]
                                [--concurrency 1 4 8 16] [--output 128 512 2048] [--context 256]
                                [--pair SMALL_DIR LARGE_DIR] [--repeat 5] [--seconds 60]

ours: delayed, eager_async, step_sync, model_sync (routed), speculative (drafts of four), small_only and
large_only (one model); what people would use instead: standard_ours, standard_vllm, standard_llama_cpp (a
server per model, called for one token at a time), research_loop (transformers, no batching),
assisted_generation (transformers' speculative decoding). Greedy; after a token of the small model the large
one writes it instead with probability 0.35. Default models: random weights of the demo pair's shapes. vLLM
and llama.cpp are installed into .peers at first use. Give it a quiet machine.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tools.peer_environments import PeerEnvironmentError
from tools.peers.closed_loop import drive
from tools.peers.figures import NothingMeasuredError, Row, median_row, row
from tools.peers.growth import exponents
from tools.peers.pair import Pair, random_pair
from tools.peers.processes import since, usage
from tools.peers.routed import RoutedError
from tools.peers.servers import PeerServerError
from tools.peers.standard import StandardError
from tools.peers.systems import SYSTEMS, Kit
from tools.peers.workload import Workload, questions
from tools.triton_server import ServerError

FAULTS = (
    NothingMeasuredError,
    PeerEnvironmentError,
    PeerServerError,
    RoutedError,
    ServerError,
    StandardError,
)
"""What costs one system its rows and no other system anything."""


async def measured(name: str, kit: Kit, cells: Sequence[Workload], repeat: int) -> list[Row]:
    """The median row of every cell, all from one life of the system."""
    rows = []
    async with SYSTEMS[name](kit) as system:
        for cell in cells:
            runs = []
            for _ in range(repeat):
                before = usage(system.pids())
                clients = await drive(system, questions(cell, kit.pair.vocab_size), cell)
                runs.append(row(name, cell, clients, since(before, usage(system.pids()))))
            rows.append(median_row(runs))
            kit.tell(as_line(rows[-1]))
    return rows


HEAD = (
    f"{'system':<20}{'n':>4}{'out':>6}{'ctx':>6}{'tok/s':>9}{'p50 s':>8}{'p99 s':>8}{'ttft s':>8}"
    f"{'gap ms':>8}{'cpu ms/tok':>12}{'MB':>7}{'large':>7}"
)


def as_line(one: Row) -> str:
    latencies = "".join(
        f"{'-' if value is None else f'{value:.2f}':>8}" for value in (one.latency_p50_s, one.latency_p99_s)
    )
    return (
        f"{one.system:<20}{one.concurrency:>4}{one.output_tokens:>6}{one.context:>6}{one.throughput:>9.1f}"
        f"{latencies}{one.ttft_p50_s:>8.2f}{one.gap_p50_ms:>8.1f}{1000 * one.cpu_s_per_token:>12.2f}"
        f"{one.peak_rss_mb:>7.0f}{one.large_share:>7.0%}"
    )


def cells(options: argparse.Namespace) -> list[Workload]:
    axes = itertools.product(options.context, options.output, options.concurrency)
    return [Workload(n, out, context, options.route_probability, options.seconds) for context, out, n in axes]


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="python -m tools.bench_peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = result.add_argument
    add("--json", action="store_true", help="print JSON instead of a table")
    add("--plot", type=Path, metavar="PNG", help="draw throughput against concurrency and output length")
    add(
        "--systems",
        nargs="+",
        choices=SYSTEMS,
        default=list(SYSTEMS),
        metavar="NAME",
        help=f"of {', '.join(SYSTEMS)}",
    )
    add("--concurrency", type=int, nargs="+", default=[1, 4, 8, 16], metavar="N")
    add("--output", type=int, nargs="+", default=[128, 512, 2048], metavar="TOKENS")
    add("--context", type=int, nargs="+", default=[256], metavar="TOKENS", help="length of the prompts")
    add(
        "--pair",
        type=Path,
        nargs=2,
        metavar=("SMALL", "LARGE"),
        help="two Hugging Face directories, one vocabulary",
    )
    add("--route-probability", type=float, default=0.35, metavar="P", help="small to large (default 0.35)")
    add(
        "--repeat",
        type=int,
        default=5,
        metavar="N",
        help="runs of each cell, of which the median counts (default 5)",
    )
    add("--seconds", type=float, default=60.0, help="longest time of one run (default 60)")
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """0; 1 when a system could not be measured, after all others were."""
    options = parser().parse_args(argv)
    began_at, rows, failures = time.perf_counter(), list[Row](), list[str]()
    with tempfile.TemporaryDirectory(prefix="bench_peers-") as name:
        folder = Path(name)
        pair = Pair(*options.pair) if options.pair else random_pair(folder / "pair")
        longest = max(options.context) + max(options.output)
        kit = Kit(pair, folder, longest + 64, max(options.concurrency), _tell)
        _tell(HEAD)
        for system in options.systems:
            try:
                rows += asyncio.run(measured(system, kit, cells(options), options.repeat))
            except FAULTS as error:
                failures.append(f"{system}: {error}")
                _tell(failures[-1])
    _tell(f"took {time.perf_counter() - began_at:.0f} s")
    if options.plot:
        from tools.peers.pictures import draw

        draw(options.plot, rows)
    document = {"rows": [*map(asdict, rows)], "growth": exponents(rows), "failures": failures}
    print(json.dumps(document) if options.json else "\n".join([HEAD, *map(as_line, rows)]))
    return 1 if failures else 0


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
