"""What a running server is doing, read from its metrics page: a live table of models, queues, parked, share.

python -m tools.status                    # refreshed every second until Ctrl-C
python -m tools.status --once [--json]    # one look, over one second
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tools.metrics_page import MetricsPageError, Sample, read, total

URL = "http://127.0.0.1:8002/metrics"


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """One model now; rates are per second between two looks. `kv_used` is the share of blocks held."""

    model: str
    healthy: bool
    threshold: int
    queued: int
    running: int
    parked: int
    rows_per_step: float
    steps_per_s: float
    committed_per_s: float
    handoffs_per_s: float
    share: float
    kv_used: float


def models_of(samples: Sequence[Sample]) -> list[str]:
    """In the order of the page."""
    return list(dict.fromkeys(one.labels["model"] for one in samples if one.name == "steps_total"))


def status(before: Sequence[Sample], now: Sequence[Sample], elapsed_s: float) -> list[ModelStatus]:
    """Every model's, from two looks `elapsed_s` apart; shares of what was committed between them."""
    models = models_of(now)
    committed = {model: _grown(before, now, "tokens_committed_total", model) for model in models}
    everything = sum(committed.values())
    return [
        _model(model, (before, now), elapsed_s, committed[model] / everything if everything else 0.0)
        for model in models
    ]


def _model(
    model: str, looks: tuple[Sequence[Sample], Sequence[Sample]], elapsed_s: float, share: float
) -> ModelStatus:
    before, now = looks
    steps = _grown(before, now, "steps_total", model)
    rows = _grown(before, now, "batch_rows_total", model)
    states = {
        state: round(total(now, "requests", model=model, state=state))
        for state in ("queued", "running", "parked")
    }
    return ModelStatus(
        model,
        total(now, "healthy", model=model) > 0,
        round(total(now, "threshold", model=model)),
        **states,
        rows_per_step=rows / steps if steps else 0.0,
        steps_per_s=steps / elapsed_s,
        committed_per_s=_grown(before, now, "tokens_committed_total", model) / elapsed_s,
        handoffs_per_s=_grown(before, now, "handoffs_sent_total", model) / elapsed_s,
        share=share,
        kv_used=total(now, "kv_cache_usage", model=model),
    )


def _grown(before: Sequence[Sample], now: Sequence[Sample], name: str, model: str) -> float:
    """Never negative: a model that was loaded anew counts from nothing."""
    return max(0.0, total(now, name, model=model) - total(before, name, model=model))


def looks(url: str, every_s: float) -> Iterator[list[ModelStatus]]:
    before, at = read(url), time.monotonic()
    while True:
        time.sleep(every_s)
        now, then = read(url), at
        at = time.monotonic()
        yield status(before, now, at - then)
        before = now


def as_table(rows: Sequence[ModelStatus]) -> Any:
    """A rich table."""
    from rich.table import Table

    table = Table(title="TokenRouter", padding=(0, 1), box=None)
    for title in ("model", "healthy", "threshold", "queued", "running", "parked"):
        table.add_column(title, justify="left" if title == "model" else "right", no_wrap=True)
    for title in ("rows/step", "steps/s", "tokens/s", "hand-offs/s", "share", "KV"):
        table.add_column(title, justify="right")
    for one in rows:
        table.add_row(
            one.model,
            "yes" if one.healthy else "[red]no[/red]",
            *map(str, (one.threshold, one.queued, one.running, one.parked)),
            *(f"{value:.1f}" for value in (one.rows_per_step, one.steps_per_s, one.committed_per_s)),
            f"{one.handoffs_per_s:.1f}",
            f"{one.share:.0%}",
            f"{one.kv_used:.0%}",
        )
    return table


def show(options: argparse.Namespace) -> None:
    from rich.console import Console
    from rich.live import Live

    seen = looks(options.url, options.every_s)
    if options.json:
        print(json.dumps({"models": [*map(asdict, next(seen))]}))
    elif options.once:
        Console().print(as_table(next(seen)))
    else:
        with Live(as_table(next(seen)), auto_refresh=False) as live:
            for rows in seen:
                live.update(as_table(rows), refresh=True)


def main(argv: Sequence[str] | None = None) -> int:
    """0, also after Ctrl-C; 1 when there is nothing to read."""
    options = _parser().parse_args(argv)
    try:
        show(options)
    except MetricsPageError as error:
        print(f"status: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    return 0


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.05 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"{text}: from 0.05 to 3600 seconds")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.status",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--url", default=URL, help="metrics page (default %(default)s)")
    parser.add_argument("--every-s", type=_seconds, default=1.0, help="seconds between looks (default 1)")
    parser.add_argument("--once", action="store_true", help="one look, then end")
    parser.add_argument("--json", action="store_true", help="one look as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
