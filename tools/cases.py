"""Runs the field cases by their ids and prints what each came to.

A field case is a fault that users of other servers hit, restated for this one with its right outcome.
`tools/field_cases.json` is the only source: id, level, thread, and the tests that prove it; nothing is
claimed without a test. A case is `passed` when every one of its tests passed, `failed` when one did not
or did not run, `needs_gpu` when all passed but what only a GPU can show was not run, and `open` while its
right outcome, or the proof of it, is not complete; the tests of an open case prove what is there, such as
a refusal by name.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = Path(__file__).resolve().parent / "field_cases.json"
SERVER_TESTS = "tests/server/"
GPU_TESTS = "tests/gpu/"
LINE = re.compile(r"^(PASSED|FAILED|ERROR|SKIPPED|XFAIL) (?:\[\d+\] )?(tests/\S+?\.py(?:::[^\s\[]+)*)")


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table. `level`: U unit, S simulated, T real Triton, G GPU, docs."""

    id: str
    title: str
    level: tuple[str, ...]
    thread: str
    tests: tuple[str, ...]
    is_open: bool
    note: str


def read_cases(path: Path = TABLE) -> list[Case]:
    rows = json.loads(path.read_text())
    return [Case(**{**row, "level": tuple(row["level"]), "tests": tuple(row["tests"])}) for row in rows]


def run_tests(nodes: Sequence[str]) -> dict[str, set[str]]:
    """Outcomes by test, parametrised ones under one name: `passed`, `failed`, `skipped`."""
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-rpfEs", "-p", "no:cacheprovider", *nodes]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, text=True)
    if run.returncode != 0:
        told = [line for line in run.stdout.splitlines() if not line.startswith("PASSED ")]
        sys.stderr.write("\n".join([*told, run.stderr]))
    return outcomes(run.stdout)


def outcomes(report: str) -> dict[str, set[str]]:
    """From pytest's short summary. A skipped test is named by its file only."""
    found: dict[str, set[str]] = {}
    for line in report.splitlines():
        match = LINE.match(line)
        if match:
            word = {"PASSED": "passed", "SKIPPED": "skipped"}.get(match[1], "failed")
            found.setdefault(match[2], set()).add(word)
    return found


def result(case: Case, seen: Mapping[str, set[str]]) -> str:
    """What a case came to, from the outcomes of all tests that ran."""
    words = {test: _outcome(test, seen) for test in case.tests}
    on_gpu = [word for test, word in words.items() if test.startswith(GPU_TESTS)]
    elsewhere = [word for test, word in words.items() if not test.startswith(GPU_TESTS)]
    if any(word != {"passed"} for word in elsewhere) or any("failed" in word for word in on_gpu):
        return "failed"
    if case.is_open or not case.tests:
        return "open"
    is_proved = all(word == {"passed"} for word in on_gpu) and (bool(on_gpu) or "G" not in case.level)
    return "passed" if is_proved else "needs_gpu"


def _outcome(test: str, seen: Mapping[str, set[str]]) -> set[str]:
    """A class of tests has the outcomes of its methods."""
    return set().union(
        *(words for name, words in seen.items() if name == test or name.startswith(f"{test}::"))
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0 when no case failed, 1 otherwise, 2 for an id that nobody knows."""
    options = _parser().parse_args(argv)
    known = {case.id: case for case in read_cases()}
    unknown = sorted(set(options.ids) - known.keys())
    if unknown:
        print(f"{unknown[0]}: no such case; known are {', '.join(known)}", file=sys.stderr)
        return 2
    chosen = [known[name] for name in options.ids or known]
    if options.fast:
        chosen = [case for case in chosen if not any(SERVER_TESTS in test for test in case.tests)]
    if options.list:
        print("\n".join(_listed(case) for case in chosen))
        return 0
    nodes = sorted({test for case in chosen for test in case.tests})
    seen = run_tests(nodes) if nodes else {}
    rows = [{"id": case.id, "level": ",".join(case.level), "result": result(case, seen)} for case in chosen]
    print(json.dumps({"rows": rows}) if options.json else _table(chosen, rows))
    return int(any(row["result"] == "failed" for row in rows))


def _listed(case: Case) -> str:
    head = f"{case.id} ({', '.join(case.level)}): {case.title}"
    note = [f"  note: {case.note}"] if case.note else []
    return "\n".join([head, f"  {case.thread}", *note, *(f"  {test}" for test in case.tests)])


def _table(cases: Sequence[Case], rows: Sequence[Mapping[str, str]]) -> str:
    lines = [f"{'id':4} {'level':8} {'result':9} {'tests':>5}  title"]
    for case, row in zip(cases, rows, strict=True):
        note = f" ({case.note})" if case.note else ""
        lines.append(
            f"{row['id']:4} {row['level']:8} {row['result']:9} {len(case.tests):5}  {case.title}{note}"
        )
    counts = {
        word: sum(row["result"] == word for row in rows) for word in sorted({row["result"] for row in rows})
    }
    return "\n".join([*lines, ", ".join(f"{count} {word}" for word, count in counts.items())])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.cases", description=__doc__)
    parser.add_argument("ids", nargs="*", metavar="ID", help="cases to run, such as F04 (default all)")
    parser.add_argument("--fast", action="store_true", help="leave out the cases that need a real Triton")
    parser.add_argument("--list", action="store_true", help="run nothing, show what proves each case")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


if __name__ == "__main__":
    sys.exit(main())
