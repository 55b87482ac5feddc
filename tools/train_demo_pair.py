"""Trains the demo pair, writes its prompts, and measures what routing between the two models gains.

    python -m tools.train_demo_pair                 train both models and write the prompts
    python -m tools.train_demo_pair --evaluate      measure the pair that is there

Two tiny Qwen3 models learn to follow chains of rules. The large one is right; the small one, stopped
early, is wrong now and then and unsure exactly there. Takes one CPU thread and some ten minutes.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from tools.demo_pair.evaluation import Row, Separation, score_table, separation
from tools.demo_pair.export import read_model, write_model, write_prompts
from tools.demo_pair.task import held_out_chains
from tools.demo_pair.training import LARGE, RECIPES, SMALL, Progress, Recipe, train, trained_prompts

PROGRESS_EVERY = 50
DEFAULT_CUTOFFS = (0.05, 0.2, 0.6)


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.train_demo_pair",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    repository = Path("model_repository")
    add = parser.add_argument
    add("--out-small", type=Path, default=repository / "small/1", help="small model's folder")
    add("--out-large", type=Path, default=repository / "large/1", help="large model's folder")
    add("--prompts", type=Path, default=repository / "demo_prompts.json", help="prompts' file")
    add("--models", nargs="+", choices=RECIPES, default=list(RECIPES), help="which to train")
    add("--evaluate", action="store_true", help="train nothing; measure the models in the folders")
    add("--cutoffs", nargs="+", type=float, default=DEFAULT_CUTOFFS, metavar="H",
        help="entropy cutoffs to measure, 0 to 1: entropy / ln(vocabulary size)")  # fmt: skip
    add("--json", action="store_true", help="print the figures of --evaluate as JSON")
    return parser.parse_args(argv)


def print_progress(recipe: Recipe) -> Progress:
    """Return a callback that prints a line every few steps, with the time still to go."""
    started = time.monotonic()

    def report(step: int, loss: float) -> None:
        if step % PROGRESS_EVERY and step != recipe.steps:
            return
        left_s = (time.monotonic() - started) / step * (recipe.steps - step)
        line = f"{recipe.name}: step {step}/{recipe.steps}  loss {loss:.4f}  {left_s:.0f} s left"
        print(line, file=sys.stderr, flush=True)

    return report


def train_pair(options: argparse.Namespace) -> None:
    """Train and write the chosen models, then write the prompts that neither has seen."""
    directories = {SMALL.name: options.out_small, LARGE.name: options.out_large}
    for name in options.models:
        recipe = RECIPES[name]
        write_model(train(recipe, print_progress(recipe)), directories[name])
        print(f"wrote {directories[name]}")
    write_prompts(options.prompts)
    print(f"wrote {options.prompts}")


def evaluate_pair(options: argparse.Namespace) -> tuple[Separation, list[Row]]:
    """Measure the pair on the held-out chains."""
    torch.set_num_threads(1)  # as in training: a second thread only slows models this small
    small, large = read_model(options.out_small), read_model(options.out_large)
    chains = held_out_chains(trained_prompts((SMALL, LARGE)))
    return separation(small, chains), list(score_table((small, large), chains, options.cutoffs))


def as_json(quality: Separation, rows: Iterable[Row]) -> str:
    """Return the figures for a program to read."""
    return json.dumps({"small": asdict(quality), "rows": [asdict(row) for row in rows]}, indent=2)


def as_text(quality: Separation, rows: Iterable[Row]) -> str:
    """Return the figures for a person to read."""
    lines = [
        f"small model: {quality.token_error:.1%} of its tokens are wrong; entropy "
        f"{quality.entropy_wrong:.3f} on wrong and {quality.entropy_right:.3f} on right ones; "
        f"ranking {quality.ranking:.4f}",
        "",
        f"{'':20}{'exact chains':>14}{'tokens routed':>15}",
    ]
    lines += [f"{row.name:20}{row.exact_share:14.1%}{row.routed_share:15.1%}" for row in rows]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool; return the exit status."""
    options = parse_arguments(argv)
    if options.evaluate:
        quality, rows = evaluate_pair(options)
        print(as_json(quality, rows) if options.json else as_text(quality, rows))
    else:
        train_pair(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
