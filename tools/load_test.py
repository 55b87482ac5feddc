"""Puts load on a running server with one of four clients, and prints the same table for each.

`native` is our own and needs nothing. `perf_analyzer` is Triton's, from tritonclient. `genai_perf` and
`aiperf` are NVIDIA's; they are installed on first use into an environment of their own under .run/load (about
1 GB each). Latencies are what the client saw; tokens and the share of the large model are what the server's
metrics page says it committed meanwhile, so nobody else should be asking.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.progress import track

from tools.loading import native
from tools.loading.aiperf import Aiperf
from tools.loading.cells import Cell, cell_of, table
from tools.loading.page import committed
from tools.loading.picture import draw
from tools.loading.programs import own_program, run
from tools.loading.triton_tools import GenaiPerf, PerfAnalyzer
from tools.loading.work import Loader, LoadError, Target, Work

REPOSITORY = Path(__file__).resolve().parent.parent / "model_repository"
PROMPTS = REPOSITORY / "demo_prompts.json"
TOKENIZER = REPOSITORY / "small" / "1"
GENAI_PERF, AIPERF = "genai-perf==0.0.16", "aiperf==0.13.0"
LEVELS = (1, 4, 16)
REQUESTS_PER_CLIENT = 25
CLIENTS = ("native", "perf_analyzer", "genai_perf", "aiperf")


def loader(name: str, tokenizer: Path, say: Callable[[str], None]) -> Loader:
    """What the client called `name` does; installs it first where it must be."""
    match name:
        case "perf_analyzer":
            return PerfAnalyzer(run).load
        case "genai_perf":
            return GenaiPerf(run, own_program(GENAI_PERF, "genai-perf", say), tokenizer).load
        case "aiperf":
            return Aiperf(run, own_program(AIPERF, "aiperf", say), tokenizer).load
        case _:
            return native.load


def measure(load: Loader, target: Target, works: Sequence[Work]) -> list[Cell]:
    """One level after the other; before the first, as much by our own client, so that nothing is cold."""
    cells = []
    with tempfile.TemporaryDirectory(prefix="token_router-load-") as name:
        folder = Path(name)
        native.load(target, works[0], folder)
        console = Console(stderr=True)
        shown = track(works, "Levels", console=console, disable=not console.is_terminal, transient=True)
        for number, work in enumerate(shown):
            place = folder / str(number)
            place.mkdir()
            before = committed(target.metrics)
            seen = load(target, work, place)
            after = committed(target.metrics)
            cells.append(cell_of(work, seen, {model: after[model] - before[model] for model in after}))
    return cells


def prompts(path: Path) -> tuple[str, ...]:
    """A JSON list of objects with `prompt`, or a text file with one prompt a line."""
    try:
        text = path.read_text()
        found = (
            [str(one["prompt"]) for one in json.loads(text)] if path.suffix == ".json" else text.splitlines()
        )
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise LoadError(f"--prompts: {path}: {type(error).__name__}: {error}") from error
    if not any(found):
        raise LoadError(f"--prompts: {path}: there is none in it")
    return tuple(filter(None, found))


def main(argv: Sequence[str] | None = None) -> int:
    """0 after a sweep without errors, 1 when a request failed or the sweep could not be made."""
    options = _parser().parse_args(argv)
    target = Target(options.http, options.grpc, options.metrics, options.door)
    say = Console(stderr=True).print
    try:
        asked = prompts(options.prompts)
        works = [
            Work(asked, options.max_tokens, level, options.requests or level * REQUESTS_PER_CLIENT)
            for level in options.concurrency
        ]
        cells = measure(loader(options.client, options.tokenizer, say), target, works)
    except LoadError as error:
        print(f"load_test: {error}", file=sys.stderr)
        return 1
    rows = [asdict(cell) for cell in cells]
    print(json.dumps({"with": options.client, "levels": rows}, indent=2) if options.json else table(cells))
    if options.plot:
        draw(f"{options.client}, door {options.door}", cells, options.plot)
    return int(any(cell.errors for cell in cells))


def _levels(text: str) -> tuple[int, ...]:
    levels = tuple(int(part) for part in text.split(","))
    if min(levels) < 1:
        raise argparse.ArgumentTypeError(f"{text}: every level needs at least one client")
    return levels


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.load_test", description=__doc__)
    add = parser.add_argument
    add("--with", dest="client", choices=CLIENTS, default="native", help="(default: %(default)s)")
    add("--concurrency", type=_levels, default=LEVELS, help="levels, such as 1,4,16 (the default)")
    add("--requests", type=int, help=f"per level (default: {REQUESTS_PER_CLIENT} per client)")
    add("--max-tokens", type=int, default=20, help="(default: %(default)s)")
    add("--prompts", type=Path, default=PROMPTS, help="JSON list or text lines (default: the demo questions)")
    add("--tokenizer", type=Path, default=TOKENIZER, help="local directory, for genai_perf and aiperf")
    add("--http", default="127.0.0.1:8000", help="(default: %(default)s)")
    add("--grpc", default="127.0.0.1:8001", help="(default: %(default)s)")
    add("--metrics", default="http://127.0.0.1:8002/metrics", help="(default: %(default)s)")
    add("--door", default="token_router", help="model to ask (default: %(default)s)")
    add("--plot", type=Path, metavar="PNG", help="write a picture of the sweep as well")
    add("--json", action="store_true", help="figures for a program")
    return parser


if __name__ == "__main__":
    sys.exit(main())
