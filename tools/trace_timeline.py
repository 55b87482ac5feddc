"""Draw what a live server did: batches per model over time, from the event logs of its subservers.

python -m tools.trace_timeline LOG [LOG ...] [--out PICTURE] [--chrome TRACE.json]

A log is the folder that the deployment's `event_log` names (or single files of it). Without an output the
summary is printed. TRACE.json opens in ui.perfetto.dev: a track per model, an arrow per hand-off.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from router_backend.core.errors import ConfigError
from tools.timeline.chrome import trace_document
from tools.timeline.event_file import lost_steps, read_timeline
from tools.timeline.picture import draw
from tools.timeline.record import Timeline

PICTURE_S = 1.0


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="python -m tools.trace_timeline",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = result.add_argument
    add("logs", nargs="+", type=Path, metavar="LOG", help="folder of event logs, or files of it")
    add("--out", type=Path, metavar="PICTURE", help="draw a timeline (.svg, .png or .pdf)")
    add("--chrome", type=Path, metavar="JSON", help="write Perfetto / Chrome trace JSON")
    add("--start", type=float, default=0.0, metavar="S", help="begin so long after the first launch (0)")
    add(
        "--seconds",
        type=float,
        metavar="S",
        help=f"and take so much (default: {PICTURE_S:g} for a picture, else all)",
    )
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """0, or 2 with the reason on stderr."""
    options = parser().parse_args(argv)
    try:
        timeline = read_timeline(options.logs)
        lost = lost_steps(options.logs)
        if options.out:
            draw(options.out, [_part(timeline, options, PICTURE_S)])
        part = _part(timeline, options, float("inf"))
        if options.chrome:
            _write(options.chrome, part)
    except ConfigError as error:
        print(f"trace_timeline: {error}", file=sys.stderr)
        return 2
    print("\n".join(part.summary()))
    if lost:
        print(f"{lost} steps are missing: the log could not be written in time")
    return 0


def _part(timeline: Timeline, options: argparse.Namespace, default_s: float) -> Timeline:
    seconds = default_s if options.seconds is None else options.seconds
    part = timeline.since_start(options.start, seconds)
    if not part.launches:
        raise ConfigError(f"{timeline.title}: no launch between {options.start:g} s and {seconds:g} s later")
    return part


def _write(path: Path, timeline: Timeline) -> None:
    try:
        path.write_text(json.dumps(trace_document(timeline)))
    except OSError as error:
        raise ConfigError(f"--chrome: {path}: {error.strerror}") from error


if __name__ == "__main__":
    sys.exit(main())
