"""Where the time of a small-model step goes, in standard serving and in ours.

    python -m tools.bench_breakdown [--json] [--page docs/benchmarks.md] [--concurrency 4] [--seconds 10]
                                    [--output 512] [--context 256]

One server with random weights of the demo pair's shapes is asked both ways, by turns: for one token at a time
(standard serving), and through the router. A sampling profiler (py-spy, installed into .peers at first use)
watches the small model's process; each thread's CPU time divided as its samples are, over the rows that ran,
are milliseconds per step of one request. About a minute.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tools.bench_peers import end_on_kill
from tools.marked_page import MarkerError, write_between
from tools.metrics_page import MetricsPageError, read, total
from tools.peer_environments import PeerEnvironmentError, environment_python
from tools.peers import routed, systems
from tools.peers.closed_loop import Asker, System, watch
from tools.peers.pair import random_pair
from tools.peers.processes import Usage, usage
from tools.peers.stacks import PARTS, seconds
from tools.peers.standard import StandardError
from tools.peers.tables import table
from tools.peers.workload import Question, Workload, question
from tools.triton_server import ServerError, TritonServer

WATCHED = "small"
SAMPLES_PER_S = 200
COUNTERS = ("batch_rows_total", "batch_tokens_total", "queue_wait_seconds_sum", "queue_wait_seconds_count")
AROUND = ("large", "router", "tritonserver", "client")
"""Processes that are shown beside it; the profiler's own is none of them."""
EDGE_S = 1.0
"""The profiler attaches and writes its file inside of the window."""
FAILURES = (
    *(MarkerError, MetricsPageError, PeerEnvironmentError),
    *(routed.RoutedError, ServerError, StandardError),
)
Counts = Mapping[str, float]


@dataclass(slots=True)
class Probe:
    """Reads counters at both ends of the window and lets the profiler run in between."""

    server: TritonServer
    profiler: Path
    out: Path
    seconds: float
    pids: Sequence[int]
    counts: list[Counts] = field(default_factory=list)
    threads: list[Mapping[int, float]] = field(default_factory=list)
    running: subprocess.Popen[bytes] | None = None

    def look(self) -> Usage:
        self.counts.append(counters(self.server))
        self.threads.append(threads_s(self.server.stubs()[WATCHED]))
        if self.running is None:
            self.running = self._started()
        return usage(self.pids)

    def _started(self) -> subprocess.Popen[bytes]:
        for_s = f"{max(1.0, self.seconds - 2 * EDGE_S):.0f}"
        options = {
            "--pid": str(self.server.stubs()[WATCHED]),
            "--rate": str(SAMPLES_PER_S),
            "--duration": for_s,
            "--format": "raw",
            "--output": str(self.out),
        }
        command = [str(self.profiler), "record", "--threads", *itertools.chain(*options.items())]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def threads_s(pid: int) -> Mapping[int, float]:
    """CPU seconds of each thread of a process, to the nanosecond."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return {int(task.name): int((task / "schedstat").read_text().split()[0]) / 1e9 for task in tasks}


def counters(server: TritonServer) -> Counts:
    """Of the watched model, the kinds of a counter together."""
    samples = read(server.metrics_url)
    return {name: total(samples, name, model=WATCHED) for name in COUNTERS}


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Milliseconds of CPU time per row of the small model's batches, by part; and what the rows were."""

    system: str
    parts_ms: Mapping[str, float]
    around_ms: Mapping[str, float]
    """Of other processes, per committed token: Triton, the front, the dispatcher or the client."""
    tokens_fed: float
    """By row; more than one are computed again, or were written by the other model."""
    wait_ms: float
    """From ready to the start of the step, no CPU time."""


def breakdown(name: str, used: Usage, probe: Probe, committed: int) -> Breakdown:
    before, after = probe.counts[0], probe.counts[-1]
    rows, fed, wait_s, waits = (after[key] - before[key] for key in COUNTERS)
    first, last = probe.threads[0], probe.threads[-1]
    used_s = {thread: spent - first.get(thread, 0.0) for thread, spent in last.items()}
    found = seconds(probe.out.read_text().splitlines(), used_s)
    around = {process: used.cpu_s_by_process.get(process, 0.0) for process in AROUND}
    return Breakdown(
        name,
        {part: 1000.0 * spent / rows for part, spent in found.items()},
        {process: 1000.0 * spent / committed for process, spent in around.items()},
        fed / rows,
        1000.0 * wait_s / waits if waits else 0.0,
    )


async def measured(name: str, system: System, probe: Probe, workload: Workload, vocab_size: int) -> Breakdown:
    ask = functools.partial(_question, workload, vocab_size)
    seen = await watch(Asker(system, ask, probe.look), workload)
    assert probe.running is not None, "the window was never entered"
    if probe.running.wait(timeout=30):
        raise PeerEnvironmentError(
            f"py-spy ended with {probe.running.returncode}: may it trace processes here?"
        )
    window = seen.windows[0]
    committed = sum(
        tokens
        for answer in seen.answers
        for at, tokens, _ in answer.arrivals
        if window.began_at < at <= window.ended_at
    )
    return breakdown(name, window.usage, probe, committed)


def _question(workload: Workload, vocab_size: int, client: int, number: int) -> Question:
    return question(workload, client, number, vocab_size)


async def both(options: argparse.Namespace, folder: Path) -> list[Breakdown]:
    profiler = environment_python("py_spy", _tell).parent / "py-spy"
    pair = random_pair(folder / "pair")
    shape = options.concurrency, options.output, options.context
    workload = Workload(*shape, window_s=options.seconds, windows=1)
    found = []
    with routed.serving(pair, folder / "server", "eager_async") as server:
        async with systems.called_by_token(server) as standard, routed.asked(server, "random", {}) as ours:
            for name, system in (("standard_ours", standard), ("eager_async", ours)):
                probe = Probe(server, profiler, folder / f"{name}.txt", options.seconds, system.pids())
                found.append(await measured(name, system, probe, workload, pair.vocab_size))
    return found


def as_table(found: Sequence[Breakdown]) -> str:
    """CPU time of the small model's process by part, then what stands around it."""
    heads = ["per step of the small model, one request", *(one.system for one in found)]
    totals = [sum(one.parts_ms.values()) for one in found]
    lines = [
        [
            part,
            *(
                f"{one.parts_ms[part]:.3f} ms ({one.parts_ms[part] / total:.0%})"
                for one, total in zip(found, totals, strict=True)
            ),
        ]
        for part in PARTS
    ]
    lines.append(["together", *(f"{total:.3f} ms" for total in totals)])
    lines.append(["tokens fed", *(f"{one.tokens_fed:.1f}" for one in found)])
    lines.append(["waits for its batch", *(f"{one.wait_ms:.2f} ms" for one in found)])
    for process in dict.fromkeys(process for one in found for process in one.around_ms):
        cells = [f"{one.around_ms.get(process, 0.0):.3f} ms" for one in found]
        lines.append([f"{process}, per committed token", *cells])
    return table(heads, lines)


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="python -m tools.bench_breakdown",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = result.add_argument
    add("--json", action="store_true", help="print JSON instead of a table")
    add("--page", type=Path, metavar="MD", help="write the table between the page's markers")
    add("--concurrency", type=int, default=4, help="requests at once (default 4)")
    add("--output", type=int, default=512, help="tokens of an answer (default 512)")
    add("--context", type=int, default=256, help="tokens of a prompt (default 256)")
    add("--seconds", type=float, default=10.0, help="of watching each (default 10)")
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """0, or 1 when the server, a call or the profiler failed."""
    options = parser().parse_args(argv)
    end_on_kill()
    try:
        with tempfile.TemporaryDirectory(prefix="bench_breakdown-") as name:
            found = asyncio.run(both(options, Path(name)))
        if options.page:
            write_between(options.page, "breakdown", "python -m tools.bench_breakdown", as_table(found))
    except FAILURES as error:
        print(f"bench_breakdown: {error}", file=sys.stderr)
        return 1
    print(json.dumps([_plain(one) for one in found]) if options.json else as_table(found))
    return 0


def _plain(one: Breakdown) -> dict[str, object]:
    kept = ("system", "parts_ms", "around_ms", "tokens_fed", "wait_ms")
    return {name: getattr(one, name) for name in kept}


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
