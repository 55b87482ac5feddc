"""Predict tokens per second for every threshold vector and name the best.

python -m tools.plan_thresholds --small-ms 6.0 --large-ms 27.9 --route-probability 0.35 --concurrency 4
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from router_backend.core.errors import ConfigError
from router_backend.planner.latency import StepLatency, constant, sloped
from router_backend.planner.prediction import Prediction
from router_backend.planner.profile import parse_profile, parse_routing, profiled_system
from router_backend.planner.routing import Routing, discard_and_return, discard_and_stay
from router_backend.planner.system import System
from router_backend.planner.thresholds import Plan, Search, explain, plan

ROWS_SHOWN = 12

EPILOG = """\
A model starts a batch when at least `threshold` requests wait for it; thresholds are listed in the order
of the models, the entry (small) model first. `best` is the highest throughput; `chosen` is the smallest
threshold vector within --tolerance of it, which is what the server uses.

profile file (JSON), one entry per model, the entry model first; straight lines between the points:
  {"models": [{"name": "small", "batch_max": 64,
               "steps": [{"batch": 1, "step_ms": 6.0}, {"batch": 8, "step_ms": 6.7}]},
              {"name": "large", "steps": [{"batch": 1, "step_ms": 27.9}]}]}
matrix file (JSON): where a request goes after a step of model i, and the tokens it commits then:
  {"routing": [[0.65, 0.35], [1.0, 0.0]], "commits": [[1, 0], [1, 0]]}
Model: Markov chain of arXiv:2610.12242, Appendix D.
"""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(
        prog="python -m tools.plan_thresholds",
        description=__doc__.split("\n")[0],
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = result.add_argument
    add("--concurrency", type=int, required=True, metavar="N", help="requests that are live at a time")
    add("--small-ms", type=float, metavar="MS", help="one step of the small (entry) model")
    add("--large-ms", type=float, metavar="MS", help="one step of the large model")
    add(
        "--small-slope-ms",
        type=float,
        default=0.0,
        metavar="MS",
        help="added per further request in the batch",
    )
    add("--large-slope-ms", type=float, default=0.0, metavar="MS", help="the same for the large model")
    add(
        "--route-probability",
        type=float,
        metavar="P",
        help="small -> large after a small step; discards its token",
    )
    add(
        "--return-probability", type=float, default=1.0, metavar="Q", help="large -> small after a large step"
    )
    add(
        "--profile",
        type=Path,
        metavar="FILE",
        help="measured steps of all models, instead of --small-ms, --large-ms",
    )
    add("--matrix", type=Path, metavar="FILE", help="any P and C, instead of --route-probability")
    add(
        "--tolerance",
        type=float,
        default=0.01,
        help="share of the best that a smaller choice may cost (%(default)s)",
    )
    add("--gap-ms-max", type=float, metavar="MS", help="largest predicted mean token gap of the choice")
    add("--json", action="store_true", help="print one JSON object instead of a table")
    add("--plot", type=Path, metavar="PNG", help="draw throughput against the slowest model's threshold")
    add(
        "--plot-concurrency",
        type=int,
        nargs="+",
        metavar="N",
        help="lines of the plot (powers of two up to N)",
    )
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0, or 2 for an input that cannot be used."""
    arguments = parser().parse_args(argv)
    try:
        system = read_system(arguments)
        search = Search(tolerance=arguments.tolerance, gap_ms_max=arguments.gap_ms_max)
        result = plan(system, arguments.concurrency, search)
        if arguments.plot:
            draw(arguments.plot, system, arguments.plot_concurrency or _line_counts(arguments.concurrency))
    except ConfigError as error:
        print(f"plan_thresholds: {error}", file=sys.stderr)
        return 2
    print(json.dumps(as_document(result)) if arguments.json else as_text(result))
    return 0


def read_system(arguments: argparse.Namespace) -> System:
    """The system that the command line describes."""
    routing = _routing(arguments)
    if arguments.profile is not None:
        return profiled_system(parse_profile(_load(arguments.profile, "--profile")), routing)
    return System(routing, tuple(_latencies(arguments)))


def _routing(arguments: argparse.Namespace) -> Routing:
    if arguments.matrix is not None:
        return parse_routing(_load(arguments.matrix, "--matrix"))
    p = _given(arguments.route_probability, "--route-probability (or --matrix)")
    q = arguments.return_probability
    return discard_and_return(p) if q == 1.0 else discard_and_stay(p, q)


def _latencies(arguments: argparse.Namespace) -> list[StepLatency]:
    small_ms = _given(arguments.small_ms, "--small-ms (or --profile)")
    large_ms = _given(arguments.large_ms, "--large-ms (or --profile)")
    return [
        _latency("--small-ms", small_ms, arguments.small_slope_ms),
        _latency("--large-ms", large_ms, arguments.large_slope_ms),
    ]


def _latency(flag: str, step_ms: float, slope_ms: float) -> StepLatency:
    if not step_ms > 0.0:
        raise ConfigError(f"{flag}: must be above 0 ms, got {step_ms:g}")
    if not slope_ms >= 0.0:
        raise ConfigError(f"{flag.replace('-ms', '-slope-ms')}: must be 0 ms or more, got {slope_ms:g}")
    return sloped(step_ms, slope_ms) if slope_ms else constant(step_ms)


def _given(value: float | None, flag: str) -> float:
    if value is None:
        raise ConfigError(f"{flag}: missing")
    return value


def _load(path: Path, flag: str) -> object:
    try:
        document: object = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{flag}: {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{flag}: {path} is not JSON: {error}") from error
    return document


def as_document(result: Plan) -> dict[str, object]:
    """The plan as JSON: best, chosen with its explanation, and every candidate, best first; tok/s."""
    reasons = asdict(explain(result)) | {"reason": result.reason.value, "method": result.method.value}
    return {
        "best": _row(result.best),
        "chosen": _row(result.chosen),
        "explanation": reasons,
        "table": [_row(one) for one in result.predictions],
    }


def _row(one: Prediction) -> dict[str, object]:
    return {"thresholds": list(one.thresholds), "throughput": one.throughput}


def as_text(result: Plan) -> str:
    """The plan as a table for people, the first rows of it."""
    lines = [f"{'thresholds':<16}{'tok/s':>10}{'vs ones':>10}{'gap ms':>9}  mean batch"]
    shown = result.predictions[:ROWS_SHOWN]
    lines += [_line(result, one) for one in shown]
    if len(shown) < len(result.predictions):
        lines.append(f"... {len(result.predictions) - len(shown)} more; --json prints all")
    why = explain(result)
    lines.append(f"chosen {list(why.thresholds)}: {why.reason.value.replace('_', ' ')}, gain {why.gain:+.1%}")
    lines.append(f"computed by {why.method.value.replace('_', ' ')} for {result.concurrency} live requests")
    return "\n".join(lines)


def _line(result: Plan, one: Prediction) -> str:
    gain = one.throughput / result.eager.throughput - 1.0
    batches = " ".join(f"{batch:.1f}" for batch in one.mean_batch)
    mark = "  <- chosen" if one is result.chosen else ""
    name = ",".join(str(threshold) for threshold in one.thresholds)
    return f"{name:<16}{one.throughput:>10.2f}{gain:>+10.1%}{one.gap_ms:>9.1f}  {batches}{mark}"


def _line_counts(concurrency: int) -> list[int]:
    powers = [2**k for k in range(1, concurrency.bit_length()) if 2**k < concurrency]
    return [*powers, concurrency]


def curve(system: System, concurrency: int) -> list[tuple[int, float]]:
    """(threshold, tok/s) of the slowest model while all others start at once."""
    slowest = max(range(system.model_count), key=lambda model: system.latencies[model].step_ms(1))
    rows = [
        (one.thresholds[slowest], one.throughput)
        for one in plan(system, concurrency).predictions
        if sum(one.thresholds) - one.thresholds[slowest] == system.model_count - 1
    ]
    return sorted(rows)


def draw(path: Path, system: System, line_counts: Sequence[int]) -> None:
    """One line per concurrency, its peak marked."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("--plot: matplotlib is not installed; pip install 'token-router[plot]'") from error
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for concurrency in line_counts:
        points = curve(system, concurrency)
        (line,) = axes.plot(*zip(*points, strict=True), marker=".", label=f"{concurrency} live")
        axes.plot(*max(points, key=lambda point: point[1]), marker="o", color=line.get_color())
    axes.set_xlabel("threshold of the slowest model (all others 1)")
    axes.set_ylabel("predicted throughput, tok/s")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(title="requests")
    try:
        FigureCanvasAgg(figure).print_figure(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--plot: {path}: {error}") from error


if __name__ == "__main__":
    sys.exit(main())
