"""Writes the tables of docs/metrics.md from the catalogue that the server takes its descriptions from.

`python -m tools.metric_reference` rewrites what is between the page's two markers; `--check` changes nothing
and fails when the tables are not the catalogue's; `--json` prints the catalogue for a program.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from python_backend.metric_catalogue import SECTIONS, Metric, Shown

PAGE = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"
BEGIN = "<!-- metrics: begin (python -m tools.metric_reference) -->"
END = "<!-- metrics: end -->"
SHOWN = {
    Shown.FRONT: "Shown by each door, label `door`.",
    Shown.MODEL: "Shown by each model, label `model`.",
    Shown.BOTH: "Shown by each door and each model.",
}


class MarkerError(Exception):
    """The page has no pair of markers to write between."""


def tables() -> str:
    """One table per section of the catalogue."""
    parts = []
    for title, shown, metrics in SECTIONS:
        head = [f"### {title}", "", SHOWN[shown], "", "| metric | type | meaning |", "|---|---|---|"]
        parts.append("\n".join([*head, *map(_row, metrics)]))
    return "\n\n".join(parts)


def _row(metric: Metric) -> str:
    labels = f"{{{','.join(metric.labels)}}}" if metric.labels else ""
    return f"| `{metric.name}{labels}` | {metric.kind.value} | {metric.meaning} |"


def written(page: str) -> str:
    """`page` with the current tables between its markers; MarkerError if it has none."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise MarkerError(f"expected {BEGIN!r} and, after it, {END!r}")
    return f"{before}{BEGIN}\n\n{tables()}\n\n{END}{after}"


def as_json() -> str:
    found = [
        {"section": title, "shown": shown.value, **metric._asdict(), "kind": metric.kind.value}
        for title, shown, metrics in SECTIONS
        for metric in metrics
    ]
    return json.dumps(found, indent=2)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0 when the page is current (or was made so), 1 otherwise."""
    options = _parser().parse_args(argv)
    if options.json:
        print(as_json())
        return 0
    try:
        page = options.page.read_text()
        current = written(page)
    except (OSError, MarkerError) as error:
        print(f"{options.page}: {error}", file=sys.stderr)
        return 1
    if options.check and page != current:
        print(f"{options.page} is out of date: run python -m tools.metric_reference", file=sys.stderr)
        return 1
    if not options.check:
        options.page.write_text(current)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.metric_reference", description=__doc__)
    parser.add_argument("--page", type=Path, default=PAGE, help="(default: %(default)s)")
    parser.add_argument("--check", action="store_true", help="change nothing; fail when it is out of date")
    parser.add_argument("--json", action="store_true", help="print the catalogue and write nothing")
    return parser


if __name__ == "__main__":
    sys.exit(main())
