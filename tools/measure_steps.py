"""Measure how long one step of a model takes, by batch size, context and new tokens per row.

python -m tools.measure_steps small/1 large/1 --json > profile.json
python -m tools.plan_thresholds --profile profile.json --routing matrices.json --concurrency 8
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from python_backend.runner.base import ModelRunner
from python_backend.runner.registry import runner_factory
from router_backend.core.errors import ConfigError, RunnerError
from tools.step_timing import StepShape, median_step_ms, settings_for

EPILOG = """\
With --json the output is the profile that tools.plan_thresholds and the planner read: for each model
`steps` (decode at the first of --contexts, by batch), and beside it `table` with every measured shape:
kind (decode: one new token; extend: more), batch, context (tokens already cached), new_tokens, step_ms
(median). Name the entry model first. Close other programs: a busy machine measures itself.
"""


@dataclass(frozen=True, slots=True)
class Measured:
    kind: str
    batch: int
    context: int
    new_tokens: int
    step_ms: float


def shapes_of(options: argparse.Namespace) -> list[StepShape]:
    """Every combination that was asked for, decode first."""
    return [
        StepShape(batch, context, new_tokens)
        for new_tokens in sorted(options.new_tokens)
        for context in options.contexts
        for batch in sorted(options.batches)
    ]


def measured(runner: ModelRunner, shapes: list[StepShape], repeats: int, shown: Any) -> list[Measured]:
    """One entry per shape, in order; `shown` is advanced by one for each."""
    table = []
    for shape in shapes:
        step_ms = median_step_ms(runner, shape, repeats)
        table.append(Measured(shape.kind, shape.batch, shape.context, shape.new_tokens, step_ms))
        shown()
    return table


def profile_of(model_dir: Path, options: argparse.Namespace, shown: Any) -> dict[str, Any]:
    """One model's entry of the profile; ConfigError if the directory cannot be loaded."""
    shapes = shapes_of(options)
    runner = runner_factory("torch")(settings_for(model_dir, options.dtype, options.threads, shapes))
    try:
        table = measured(runner, shapes, options.repeats, shown)
    finally:
        runner.close()
    decode = [entry for entry in table if (entry.kind, entry.context) == ("decode", options.contexts[0])]
    return {
        "name": _name(model_dir),
        "batch_max": max(options.batches),
        "steps": [{"batch": entry.batch, "step_ms": entry.step_ms} for entry in decode],
        "table": [asdict(entry) for entry in table],
    }


def _name(model_dir: Path) -> str:
    """A version folder of a model repository is named after its model."""
    resolved = model_dir.resolve()
    return resolved.parent.name if resolved.name.isdigit() else resolved.name


def _counts(text: str) -> list[int]:
    counts = [int(part) for part in text.split(",")]
    if min(counts) < 1:
        raise argparse.ArgumentTypeError(f"{text}: whole numbers of at least 1, separated by commas")
    return list(dict.fromkeys(counts))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.measure_steps",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("model_dirs", nargs="+", type=Path, metavar="MODEL_DIR", help="Hugging Face directories")
    add("--batches", type=_counts, default=[1, 2, 4, 8, 16], help="batch sizes (default 1,2,4,8,16)")
    add("--contexts", type=_counts, default=[256], help="cached tokens per row (default 256)")
    add("--new-tokens", type=_counts, default=[1, 2, 8], help="tokens fed per row (default 1,2,8)")
    add("--repeats", type=int, default=15, help="steps per shape (default 15)")
    add("--dtype", default="auto", help="as in the deployment (default auto)")
    add("--threads", type=int, default=1, help="threads of the engine (default 1)")
    add("--json", action="store_true", help="print the profile instead of a table")
    return parser


def _print_table(profile: dict[str, Any]) -> None:
    print(f"{profile['name']}\n{'kind':>7} {'batch':>6} {'context':>8} {'new':>4} {'step ms':>9}")
    for row in profile["table"]:
        numbers = f"{row['batch']:>6} {row['context']:>8} {row['new_tokens']:>4} {row['step_ms']:>9.3f}"
        print(f"{row['kind']:>7} {numbers}")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """The whole document, with a progress bar where stderr is a terminal."""
    console = Console(stderr=True)
    with Progress(console=console) if console.is_terminal else nullcontext() as bar:
        total = len(options.model_dirs) * len(shapes_of(options))
        task = bar.add_task("measuring", total=total) if bar else None

        def shown() -> None:
            if bar and task is not None:
                bar.advance(task)

        models = [profile_of(model_dir, options, shown) for model_dir in options.model_dirs]
    return {"models": models, "dtype": options.dtype, "threads": options.threads}


def main(argv: Sequence[str] | None = None) -> int:
    """Print the profile; 0, or 2 with the reason on stderr."""
    options = _parser().parse_args(argv)
    if 1 not in options.new_tokens:
        options.new_tokens = [1, *options.new_tokens]
    try:
        document = run(options)
    except (ConfigError, RunnerError) as error:
        print(f"measure_steps: {error}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(document, indent=1))
        return 0
    for profile in document["models"]:
        _print_table(profile)
    return 0


if __name__ == "__main__":
    sys.exit(main())
