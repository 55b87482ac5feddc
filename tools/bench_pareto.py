"""Accuracy against throughput on the demo task, with confidence intervals over seeds.

    python -m tools.bench_pareto [--json] [--plot PNG] [--page docs/benchmarks.md] [--seeds 5]
                                 [--questions 200] [--runs 1]

Serves the demo pair on a real Triton with router heads trained for it (about a minute), fits a query-level
classifier on 800 prompts of their own, then asks every seed's fresh questions under every policy: small
alone, large alone, query-level routing at several shares, R-Stitch, CITER, R2R and random. Told is how far
each point lies above the line between the two models, and above query-level routing, at equal throughput.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from python_backend.text.tokenizer import load_tokenizer
from tools.marked_page import MarkerError, write_between
from tools.pareto.frontier import LARGE, QUERY_LEVEL, RANDOM, SMALL, Point, Seen, points
from tools.pareto.query_classifier import QueryClassifier, fitted
from tools.pareto.served import fresh_questions, serving
from tools.peers.tables import table
from tools.triton_layout import ROOT
from tools.triton_server import ServerError, TritonServer
from tools.try_routing import Choice, Question, Trial, TrialError, ask, measured

TRAINED_ON = 800
TRAINING_SEED = -1
QUERY_SHARES = (0.25, 0.5, 0.75, 0.9)
ROUTED = {
    "r_stitch": (0.4, 0.5, 0.6, 0.7),
    "citer": (0.01, 0.2, 0.95),
    "r2r": (0.001, 0.5, 0.99),
}
RANDOM_P = (0.1, 0.3)
TIMEOUT_S = 120.0


def choices(classifier: QueryClassifier, prompts: Sequence[tuple[int, ...]]) -> list[Choice]:
    """Every point of the picture; a query-level one is named by the share it aims at."""
    alone = [
        Choice(name, None, "fixed", {"mode": "never", "entry": model})
        for name, model in ((SMALL, "small"), (LARGE, "large"))
    ]
    cutoffs = classifier.cutoffs(prompts, QUERY_SHARES)
    query = [
        Choice(QUERY_LEVEL, share, QUERY_LEVEL, classifier.options(cutoff))
        for share, cutoff in zip(QUERY_SHARES, cutoffs, strict=True)
    ]
    routed = [Choice(name, cut, name, {"cutoff": cut}) for name, cuts in ROUTED.items() for cut in cuts]
    return [*alone, *query, *routed, *(Choice(RANDOM, p, RANDOM, {"p": p}) for p in RANDOM_P)]


class Bench:
    """Asks one running server."""

    def __init__(self, server: TritonServer, options: argparse.Namespace) -> None:
        self._url = server.http_url
        self._options = options
        self._tokenizer = load_tokenizer(ROOT / "model_repository" / "small" / "1")

    def trial(self, questions: tuple[Question, ...]) -> Trial:
        return Trial(self._url, questions, self._options.concurrency, 64, TIMEOUT_S)

    def ids(self, questions: Sequence[Question]) -> list[tuple[int, ...]]:
        return [tuple(self._tokenizer.encode(question.prompt)) for question in questions]

    def choices(self) -> list[Choice]:
        """With a classifier fitted to what the small model gets wrong."""
        asked = fresh_questions(TRAINING_SEED, TRAINED_ON)
        small = Choice(SMALL, None, "fixed", {"mode": "never", "entry": "small"})
        trial = self.trial(asked)
        wrong = [ask(trial, one.prompt, small).text.split() != one.answer.split() for one in asked]
        ids = self.ids(asked)
        return choices(fitted(ids, wrong), ids)

    def seen(self, choice: Choice, questions: tuple[Question, ...]) -> Seen:
        """One seed's figure; accuracy is the same in every run, speed is not."""
        runs = [measured(self.trial(questions), choice, _silent) for _ in range(self._options.runs)]
        speed = statistics.median(run.tokens_per_s for run in runs)
        return Seen(choice.policy, choice.cutoff, runs[0].accuracy, runs[0].large_share, speed)

    def seeds(self) -> list[list[Seen]]:
        asked, found = self.choices(), []
        began_at = time.perf_counter()
        for seed in range(self._options.seeds):
            questions = fresh_questions(seed, self._options.questions)
            found.append([self.seen(choice, questions) for choice in asked])
            left_s = (time.perf_counter() - began_at) / (seed + 1) * (self._options.seeds - seed - 1)
            _tell(f"seed {seed + 1} of {self._options.seeds}, ~{left_s / 60:.1f} minutes left")
        return found


def measured_seeds(options: argparse.Namespace) -> list[list[Seen]]:
    with tempfile.TemporaryDirectory(prefix="bench_pareto-") as name, serving(Path(name), _tell) as server:
        return Bench(server, options).seeds()


def as_text(found: Sequence[Point]) -> str:
    head = f"{'policy':<12}{'cutoff':>8}{'accuracy':>16}{'tokens/s':>16}{'large':>7}"
    lines = [head + f"{'above the line':>19}{'above query level':>20}"]
    for one in found:
        cutoff = "-" if one.cutoff is None else f"{one.cutoff:g}"
        lines.append(
            f"{one.policy:<12}{cutoff:>8}{one.accuracy.mean:>9.1%} ±{one.accuracy.half:>5.1%}"
            f"{one.tokens_per_s.mean:>9.0f} ±{one.tokens_per_s.half:>5.0f}{one.large_share:>7.1%}"
            f"{one.above_line.mean:>+12.1%} ±{one.above_line.half:>5.1%}"
            f"{one.above_query.mean:>+13.1%} ±{one.above_query.half:>5.1%}"
        )
    return "\n".join(lines)


def as_markdown(found: Sequence[Point]) -> str:
    heads = ["policy", "cutoff", "accuracy", "tokens/s", "large share", "above the line", "above query level"]
    lines = [
        [
            one.policy,
            "-" if one.cutoff is None else f"{one.cutoff:g}",
            f"{one.accuracy.mean:.1%} ± {one.accuracy.half:.1%}",
            f"{one.tokens_per_s.mean:.0f} ± {one.tokens_per_s.half:.0f}",
            f"{one.large_share:.1%}",
            f"{one.above_line.mean:+.1%} ± {one.above_line.half:.1%}",
            f"{one.above_query.mean:+.1%} ± {one.above_query.half:.1%}",
        ]
        for one in found
    ]
    return table(heads, lines)


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="python -m tools.bench_pareto",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = result.add_argument
    add("--json", action="store_true", help="print JSON instead of a table")
    add("--plot", type=Path, metavar="PNG", help="draw accuracy against throughput")
    add("--seeds", type=int, default=5, help="sets of questions (default 5)")
    add("--questions", type=int, default=200, help="of each seed (default 200)")
    add("--runs", type=int, default=1, help="of each policy and seed; the median speed counts (default 1)")
    add("--page", type=Path, metavar="MD", help="write the table between the page's markers")
    add("--concurrency", type=int, default=8, help="questions at once (default 8)")
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """0, or 1 when the server or a question failed."""
    options = parser().parse_args(argv)
    try:
        found = points(measured_seeds(options))
        if options.page:
            write_between(options.page, "pareto", "python -m tools.bench_pareto", as_markdown(found))
    except (MarkerError, ServerError, TrialError) as error:
        print(f"bench_pareto: {error}", file=sys.stderr)
        return 1
    if options.plot:
        from tools.pareto.picture import draw

        draw(options.plot, found)
    print(json.dumps({"points": [*map(asdict, found)]}) if options.json else as_text(found))
    return 0


def _silent(policy: str, done: int, total: int) -> None:
    """One line per seed is told; this would be one per answer."""


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
