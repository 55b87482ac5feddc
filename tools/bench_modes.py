"""Four modes of routed serving against the model's prediction, on an EMULATED pair of models.

    python -m tools.bench_modes [--json] [--plot PNG] [--seconds 2.5] [--repeat 5]
                                [--concurrency 1 2 3 4 8 16] [--modes delayed eager_async ...]
                                [--profile FILE] [--route-probability 0.35] [--return-probability 1]
                                [--replicas 1]

Real processes, hand-offs, Triton and gRPC streams; only the models are step times: small 6.0 ms, large
27.9 ms, route probability 0.35 (arXiv:2610.12242, Figure 10), or those of a profile. Give it a quiet
machine; on a busy one, run it as `chrt -r 1 python -m tools.bench_modes`, so that others do not
decide when a step ends.

With --replicas N it compares one large model with N of them, thresholds divided as `thresholds: auto` divides
them. The throughput model cannot say that a request stays with its replica: what stands beside N > 1 is its
figure for requests that draw a replica anew at every visit.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

from router_backend.core.errors import ConfigError
from router_backend.planner.barrier import BarrierMode, predict_barrier
from router_backend.planner.thresholds import Plan, plan
from router_backend.scheduler.rounds import Mode
from tools.emulation.closed_loop import ClosedLoopError
from tools.emulation.deployment import Setting, server_options
from tools.emulation.measure import Effort, Measured, measure
from tools.emulation.pair import EmulatedPair, a100_pair, profiled_latencies
from tools.emulation.replicas import shared, spread, with_replicas
from tools.metrics_page import MetricsPageError
from tools.simulated.prediction import prediction
from tools.triton_server import ServerError, TritonServer

CONCURRENCY = (1, 2, 3, 4, 8, 16)
SWEPT = (2, 3, 4)
"""Live requests for which every threshold of the large model is measured."""
BARRIERS = {Mode.STEP_SYNC: BarrierMode.STEP_SYNC, Mode.MODEL_SYNC: BarrierMode.SLOWEST_FIRST}


class Deployment(NamedTuple):
    """What is served: the same for several numbers of clients."""

    mode: Mode
    thresholds: tuple[int, ...]
    replicas: int


@dataclass(frozen=True, slots=True)
class Cell:
    """One thing to measure."""

    mode: Mode
    n: int
    thresholds: tuple[int, ...]
    predicted: float
    is_swept: bool = False
    """Belongs to the threshold sweep, not to the comparison of modes."""
    replicas: int = 1
    """Of the large model."""

    @property
    def deployment(self) -> Deployment:
        """What must be served for it. With thresholds of one, delayed batching is eager."""
        is_eager = self.mode is Mode.DELAYED and set(self.thresholds) == {1}
        return Deployment(Mode.EAGER_ASYNC if is_eager else self.mode, self.thresholds, self.replicas)


@dataclass(frozen=True, slots=True)
class Row:
    """Throughputs in committed tok/s."""

    mode: str
    n: int
    thresholds: tuple[int, ...]
    replicas: int
    throughput: float
    predicted: float
    ratio: float
    gap_p50_ms: float
    gap_p99_ms: float
    mean_batch: tuple[float, ...]
    windows: tuple[float, ...]


def cells(pair: EmulatedPair, modes: Sequence[Mode], counts: Sequence[int], replicas: int = 1) -> list[Cell]:
    """What to measure: every mode at every concurrency, and the large model's thresholds or its replicas."""
    plans = {n: plan(pair.system(), n) for n in counts}
    found = [_cell(pair, mode, plans[n]) for mode in modes for n in counts]
    if replicas > 1:
        return [one for cell in found for one in (cell, _replicated(pair, cell, replicas))]
    if Mode.DELAYED in modes:
        found += [cell for n in counts if n in SWEPT for cell in _sweep(plans[n])]
    return found


def _cell(pair: EmulatedPair, mode: Mode, planned: Plan) -> Cell:
    n, ones = planned.concurrency, planned.eager.thresholds
    if mode is Mode.DELAYED:
        return Cell(mode, n, planned.chosen.thresholds, planned.chosen.throughput)
    if mode is Mode.EAGER_ASYNC:
        return Cell(mode, n, ones, planned.eager.throughput)
    return Cell(mode, n, ones, predict_barrier(pair.system(), BARRIERS[mode], n))


def _replicated(pair: EmulatedPair, cell: Cell, replicas: int) -> Cell:
    if cell.mode.is_barrier:
        raise ConfigError(f"--replicas: mode {cell.mode.value} knows one of each model")
    thresholds = shared(cell.thresholds, replicas)
    found = prediction(with_replicas(pair.system(), replicas), spread(thresholds, replicas), cell.n)
    return replace(cell, thresholds=thresholds, predicted=found.throughput, replicas=replicas)


def _sweep(planned: Plan) -> Iterator[Cell]:
    for one in sorted(planned.predictions, key=lambda one: one.thresholds):
        if one.thresholds[0] == 1:
            yield Cell(Mode.DELAYED, planned.concurrency, one.thresholds, one.throughput, is_swept=True)


class Bench:
    """Measures cells, one deployment after the other, and tells its progress on stderr."""

    def __init__(self, pair: EmulatedPair, effort: Effort, run_dir: Path) -> None:
        self._pair = pair
        self._effort = effort
        self._run_dir = run_dir
        self._measured: dict[tuple[Deployment, int], Measured] = {}

    def rows(self, wanted: Sequence[Cell]) -> list[Row]:
        """One row per cell, in order; equal ones are measured once."""
        keys = dict.fromkeys((cell.deployment, cell.n) for cell in wanted)
        for deployment in dict.fromkeys(cell.deployment for cell in wanted):
            self._serve(deployment, [n for one, n in keys if one == deployment])
        return [_row(cell, self._measured[cell.deployment, cell.n]) for cell in wanted]

    def _serve(self, deployment: Deployment, counts: Sequence[int]) -> None:
        with TritonServer(server_options(Setting(self._pair, *deployment), self._run_dir)) as server:
            for n in counts:
                measured = measure(server, self._pair, n, self._effort)
                self._measured[deployment, n] = measured
                _tell(f"{_name(deployment)} n={n}: {measured.throughput:.1f} tok/s")


def _name(served: Deployment) -> str:
    replicas = f" {served.replicas} replicas" if served.replicas > 1 else ""
    return f"{served.mode.value} {list(served.thresholds)}{replicas}"


def _row(cell: Cell, found: Measured) -> Row:
    return Row(
        cell.mode.value,
        cell.n,
        cell.thresholds,
        cell.replicas,
        found.throughput,
        cell.predicted,
        found.throughput / cell.predicted,
        found.gap_p50_ms,
        found.gap_p99_ms,
        found.mean_batch,
        found.windows,
    )


def as_document(rows: Sequence[Row], sweep: Sequence[Row]) -> dict[str, object]:
    """JSON: `rows` one per mode and n, `sweep` one per n and threshold of the large model."""
    return {"emulated": True, "rows": [*map(asdict, rows)], "sweep": [*map(asdict, sweep)]}


def as_text(rows: Sequence[Row], sweep: Sequence[Row]) -> str:
    head = f"{'mode':<12}{'n':>4}{'thresholds':>12}{'replicas':>10}{'tok/s':>9}{'predicted':>11}{'ratio':>8}"
    lines = ["emulated models, real runtime", head + f"{'gap p50':>9}{'p99 ms':>9}  mean batch"]
    lines += map(_line, rows)
    if sweep:
        lines += ["threshold sweep", *map(_line, sweep)]
    return "\n".join(lines)


def _line(row: Row) -> str:
    name = ",".join(map(str, row.thresholds))
    batches = " ".join(f"{batch:.2f}" for batch in row.mean_batch)
    start = f"{row.mode:<12}{row.n:>4}{name:>12}{row.replicas:>10}{row.throughput:>9.1f}"
    start += f"{row.predicted:>11.1f}{row.ratio:>8.3f}"
    return start + f"{row.gap_p50_ms:>9.1f}{row.gap_p99_ms:>9.1f}  {batches}"


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="python -m tools.bench_modes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = result.add_argument
    add("--json", action="store_true", help="print JSON instead of a table")
    add("--plot", type=Path, metavar="PNG", help="draw gain breakdown and throughput against user speed")
    add("--seconds", type=float, default=2.5, help="length of one window (default 2.5)")
    add("--repeat", type=int, default=5, help="windows per setting, of which the median counts (default 5)")
    add("--concurrency", type=int, nargs="+", default=CONCURRENCY, metavar="N", help="numbers of clients")
    add("--profile", type=Path, metavar="FILE", help="measured steps, as tools.measure_steps writes them")
    add("--route-probability", type=float, default=0.35, metavar="P", help="small to large (default 0.35)")
    add("--return-probability", type=float, default=1.0, metavar="Q", help="large to small (default 1)")
    add("--modes", nargs="+", type=Mode, metavar="MODE", help="default: all that can be served")
    add("--replicas", type=int, default=1, choices=range(1, 65), metavar="N", help="large models (default 1)")
    return result


def read_pair(options: argparse.Namespace) -> EmulatedPair:
    """The pair that the command line describes."""
    latencies = profiled_latencies(options.profile) if options.profile else a100_pair().latencies
    return EmulatedPair(latencies, options.route_probability, options.return_probability)


def main(argv: Sequence[str] | None = None) -> int:
    """0, or 1 when the server or a client failed, or 2 for an option that cannot be used."""
    options = parser().parse_args(argv)
    started_at = time.perf_counter()
    try:
        pair = read_pair(options)
        modes = options.modes or [mode for mode in Mode if options.replicas == 1 or not mode.is_barrier]
        wanted = cells(pair, modes, options.concurrency, options.replicas)
        with tempfile.TemporaryDirectory(prefix="bench_modes-") as folder:
            bench = Bench(pair, Effort(options.seconds, options.repeat), Path(folder) / "run")
            found = list(zip(wanted, bench.rows(wanted), strict=True))
        parts = [[row for cell, row in found if cell.is_swept is which] for which in (False, True)]
        if options.plot:
            from tools.emulation.pictures import draw

            draw(options.plot, parts[0])
    except (ServerError, ClosedLoopError, MetricsPageError) as error:
        print(f"bench_modes: {error}", file=sys.stderr)
        return 1
    except ConfigError as error:
        print(f"bench_modes: {error}", file=sys.stderr)
        return 2
    _tell(f"took {time.perf_counter() - started_at:.0f} s")
    print(json.dumps(as_document(*parts)) if options.json else as_text(*parts))
    return 0


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
