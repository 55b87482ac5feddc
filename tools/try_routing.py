"""Asks the running server the demo questions under several routing policies and prints what each is worth.

Rows: the small model alone, the large one alone, and R-Stitch at some cutoffs (entropy / ln V above which
the small model hands over). Accuracy is the share of answers that match exactly; the large share is the
part of the committed tokens that the large model wrote; tokens/s counts committed tokens of all clients.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

PROMPTS = Path(__file__).resolve().parent.parent / "model_repository" / "demo_prompts.json"
URL = "http://127.0.0.1:8000"
CUTOFFS = (0.05, 0.2, 0.4)
MODELS = ("small", "large")
DOOR = "token_router"


class TrialError(Exception):
    """The trial cannot go on; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Question:
    """One prompt whose right answer is known."""

    prompt: str
    answer: str


@dataclass(frozen=True, slots=True)
class Choice:
    """A policy as a client asks for it."""

    policy: str
    cutoff: float | None
    algorithm: str
    config: dict[str, float | str]


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back; `sources` holds the index of the model that wrote each token."""

    text: str
    sources: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    policy: str
    cutoff: float | None
    accuracy: float
    large_share: float
    tokens_per_s: float


@dataclass(frozen=True, slots=True)
class Trial:
    """Where and what to ask."""

    url: str
    questions: tuple[Question, ...]
    concurrency: int
    max_tokens: int
    timeout_s: float


Progress = Callable[[str, int, int], None]
"""Called with the policy, how many answers there are, and how many there will be."""


def choices(cutoffs: Sequence[float]) -> list[Choice]:
    """The rows of the table, in order."""
    alone = [Choice(f"{name}_only", None, "fixed", {"mode": "never", "entry": name}) for name in MODELS]
    routed = [Choice("r_stitch", cutoff, "r_stitch", {"cutoff": cutoff}) for cutoff in cutoffs]
    return [*alone, *routed]


def load_questions(path: Path, limit: int | None) -> tuple[Question, ...]:
    """The first `limit` entries of a list of {"prompt", "answer"}; TrialError names a bad file."""
    try:
        entries = json.loads(path.read_text())
        questions = tuple(Question(entry["prompt"], entry["answer"]) for entry in entries[:limit])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TrialError(f"{path}: not a list of prompts with answers ({error!r})") from error
    if not questions:
        raise TrialError(f"{path}: holds no prompt")
    return questions


def ask(trial: Trial, prompt: str, choice: Choice) -> Reply:
    """One answer through the HTTP door; TrialError when the server is not there or refuses."""
    body = {
        "text_input": prompt,
        "max_tokens": trial.max_tokens,
        "exclude_input_in_output": True,
        "return_routing": True,
        "routing_algorithm": choice.algorithm,
        "routing_config": json.dumps(choice.config),
    }
    status, reply = _posted(trial, json.dumps(body))
    if status != 200 or "error" in reply:
        raise TrialError(f"{trial.url} answered {status}: {reply.get('error', reply)}")
    return Reply(str(reply["text_output"]), _whole_numbers(reply.get("token_source", [])))


def _posted(trial: Trial, body: str) -> tuple[int, dict[str, Any]]:
    where = urllib.parse.urlsplit(trial.url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port or 80, timeout=trial.timeout_s)
    try:
        connection.request("POST", f"/v2/models/{DOOR}/generate", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, dict(json.loads(response.read() or b"{}"))
    except TimeoutError as error:
        raise TrialError(f"{trial.url} gave no answer within {trial.timeout_s:g} s") from error
    except (OSError, http.client.HTTPException) as error:
        raise TrialError(f"no server at {trial.url} ({error}): start one with `make serve`") from error
    except ValueError as error:
        raise TrialError(f"{trial.url} did not answer in JSON: is it a Triton server?") from error
    finally:
        connection.close()


def _whole_numbers(value: int | list[int]) -> tuple[int, ...]:
    """Triton writes a tensor of one element as a JSON scalar."""
    return tuple(value) if isinstance(value, list) else (value,)


def measured(trial: Trial, choice: Choice, progress: Progress) -> Row:
    """Ask every question under `choice`, `concurrency` at a time, after one that warms the server up."""
    ask(trial, trial.questions[0].prompt, choice)
    begun_at = time.monotonic()
    replies = _all_replies(trial, choice, progress)
    elapsed_s = time.monotonic() - begun_at
    sources = [source for reply in replies for source in reply.sources]
    right = sum(
        reply.text.split() == question.answer.split()
        for reply, question in zip(replies, trial.questions, strict=True)
    )
    return Row(
        choice.policy,
        choice.cutoff,
        accuracy=right / len(replies),
        large_share=sources.count(len(MODELS) - 1) / max(1, len(sources)),
        tokens_per_s=len(sources) / elapsed_s,
    )


def _all_replies(trial: Trial, choice: Choice, progress: Progress) -> list[Reply]:
    """In the order of the questions. The first failure stops the rest."""
    is_over = threading.Event()

    def reply(question: Question) -> Reply | None:
        return None if is_over.is_set() else ask(trial, question.prompt, choice)

    with ThreadPoolExecutor(trial.concurrency) as pool:
        jobs = [pool.submit(reply, question) for question in trial.questions]
        try:
            for done, job in enumerate(as_completed(jobs), 1):
                job.result()
                progress(choice.policy, done, len(jobs))
        except BaseException:
            is_over.set()
            raise
    return [found for job in jobs if (found := job.result()) is not None]


def table(rows: Sequence[Row]) -> str:
    """The rows for a person."""
    lines = [f"{'policy':<12} {'cutoff':>6} {'accuracy':>9} {'large share':>12} {'tokens/s':>9}"]
    for row in rows:
        name = f"{row.policy:<12} {'-' if row.cutoff is None else f'{row.cutoff:g}':>6}"
        lines.append(f"{name} {row.accuracy:>9.1%} {row.large_share:>12.1%} {row.tokens_per_s:>9.1f}")
    return "\n".join(lines)


def on_terminal(policy: str, done: int, total: int) -> None:
    """Progress on one line of stderr, wiped when complete."""
    text = f"\r{policy}: {done}/{total}" if done < total else "\r\x1b[K"
    print(text, end="", file=sys.stderr, flush=True)


def _silently(policy: str, done: int, total: int) -> None:
    """Progress where nobody watches."""


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0 when the table was measured, 1 when it could not be, 130 after Ctrl-C."""
    options = _parser().parse_args(argv)
    progress = on_terminal if sys.stderr.isatty() else _silently
    try:
        questions = load_questions(options.prompts, options.limit)
        trial = Trial(options.url, questions, options.concurrency, options.max_tokens, options.timeout_s)
        rows = [measured(trial, choice, progress) for choice in choices(options.cutoffs)]
    except TrialError as error:
        print(f"try_routing: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(json.dumps({"rows": [asdict(row) for row in rows]}) if options.json else table(rows))
    return 0


def _count(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.try_routing", description=__doc__)
    parser.add_argument("--url", default=URL, help="HTTP address of the server (default: %(default)s)")
    parser.add_argument("--prompts", type=Path, default=PROMPTS, help='JSON file of [{"prompt", "answer"}]')
    parser.add_argument("--limit", type=_count, help="ask only the first N prompts")
    parser.add_argument(
        "--concurrency", type=_count, default=8, help="how many at once (default: %(default)s)"
    )
    parser.add_argument("--max-tokens", type=_count, default=64, help="longest answer (default: %(default)s)")
    parser.add_argument("--timeout-s", type=float, default=120.0, help="longest wait for one answer")
    parser.add_argument(
        "--cutoffs", type=float, nargs="+", default=CUTOFFS, help="of R-Stitch, in units of ln V"
    )
    parser.add_argument("--json", action="store_true", help='print {"rows": [...]} instead of a table')
    return parser


if __name__ == "__main__":
    sys.exit(main())
