"""Draws the life of a sequence from the table that the scheduler runs on.

`python -m tools.draw_states` rewrites the diagram between the two markers of docs/architecture.md;
`--check` changes nothing and fails when the diagram is not the table's.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from router_backend.core.state import TRANSITIONS, State

PAGE = Path(__file__).resolve().parent.parent / "docs" / "architecture.md"
BEGIN = "<!-- states: begin (python -m tools.draw_states) -->"
END = "<!-- states: end -->"


class MarkerError(Exception):
    """The page has no pair of markers to draw between."""


def diagram() -> str:
    """Mermaid text: one arrow per pair of states, labelled with its events."""
    events: dict[tuple[State, State], list[str]] = defaultdict(list)
    for (state, event), after in TRANSITIONS.items():
        events[state, after].append(event.value)
    arrows = [f"    {a.name} --> {b.name}: {', '.join(names)}" for (a, b), names in events.items()]
    first = next(iter(State)).name
    ends = [state for state in State if all(state is not before for before, _ in TRANSITIONS)]
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {first}", *arrows]
    return "\n".join([*lines, *(f"    {state.name} --> [*]" for state in ends), "```"])


def drawn(page: str) -> str:
    """`page` with the current diagram between its markers; MarkerError if it has none."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise MarkerError(f"expected {BEGIN!r} and, after it, {END!r}")
    return f"{before}{BEGIN}\n{diagram()}\n{END}{after}"


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0 when the page is current (or was made so), 1 otherwise."""
    options = _parser().parse_args(argv)
    try:
        page = options.page.read_text()
        current = drawn(page)
    except (OSError, MarkerError) as error:
        print(f"{options.page}: {error}", file=sys.stderr)
        return 1
    if options.check:
        return _checked(options.page, page == current)
    options.page.write_text(current)
    print(f"{options.page}: drawn")
    return 0


def _checked(page: Path, is_current: bool) -> int:
    if not is_current:
        print(f"{page}: the state diagram is out of date: python -m tools.draw_states", file=sys.stderr)
    return 0 if is_current else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.draw_states", description=__doc__)
    parser.add_argument("--page", type=Path, default=PAGE, help="Markdown page with the two markers")
    parser.add_argument(
        "--check", action="store_true", help="change nothing, fail if the page is out of date"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
