"""Writes the tables of docs/metrics.md from the catalogue that the server takes its descriptions from.

`python -m tools.metric_reference` rewrites what is between the page's two markers; `--check` changes nothing
and fails when the tables are not the catalogue's; `--json` prints the catalogue for a program.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from python_backend.metric_catalogue import SECTIONS, Metric, Shown
from tools.marked_page import DOCS, add_options, bring_up_to_date

COMMAND = "python -m tools.metric_reference"
SHOWN = {
    Shown.FRONT: "Shown by each door, label `door`.",
    Shown.MODEL: "Shown by each model, label `model`.",
    Shown.BOTH: "Shown by each door and each model.",
}


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
    return bring_up_to_date(options, "metrics", COMMAND, tables())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.metric_reference", description=__doc__)
    add_options(parser, DOCS / "metrics.md")
    parser.add_argument("--json", action="store_true", help="print the catalogue and write nothing")
    return parser


if __name__ == "__main__":
    sys.exit(main())
