"""Pages with parts that are written from code: what stands between two markers, and whether it is current."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"


class MarkerError(Exception):
    """The page has no pair of markers to write between."""


def replaced(page: str, name: str, command: str, text: str) -> str:
    """`page` with `text` between the markers of `name`; MarkerError if it has none."""
    begin, end = f"<!-- {name}: begin ({command}) -->", f"<!-- {name}: end -->"
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise MarkerError(f"expected {begin!r} and, after it, {end!r}")
    return f"{before}{begin}\n\n{text}\n\n{end}{after}"


def write_between(page: Path, name: str, command: str, text: str) -> None:
    """Write `text` between the markers of `name`; MarkerError if the page has none."""
    page.write_text(replaced(page.read_text(), name, command, text))


def add_options(parser: argparse.ArgumentParser, page: Path) -> None:
    """`--page` and `--check`."""
    parser.add_argument("--page", type=Path, default=page, help="(default: %(default)s)")
    parser.add_argument("--check", action="store_true", help="change nothing; fail when it is out of date")


def bring_up_to_date(options: argparse.Namespace, name: str, command: str, text: str) -> int:
    """Exit status 0 when the page is current (or was made so), 1 otherwise."""
    try:
        page = options.page.read_text()
        current = replaced(page, name, command, text)
    except (OSError, MarkerError) as error:
        print(f"{options.page}: {error}", file=sys.stderr)
        return 1
    if options.check and page != current:
        print(f"{options.page} is out of date: run {command}", file=sys.stderr)
        return 1
    if not options.check:
        options.page.write_text(current)
    return 0
