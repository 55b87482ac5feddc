"""Committed tokens by model, read from a server's metrics page."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tools.loading.work import LoadError
from tools.metrics_page import MetricsPageError, Sample, read

QUIET_S = 1.5
"""The page is a mirror that is brought up to date every second at least."""
QUIET_S_MAX = 30.0
COMMITTED, LIVE, CONFIG = "tokens_committed_total", "live_requests", "config_info"


def committed_in(samples: Sequence[Sample]) -> dict[str, float]:
    """By model, in the deployment's order."""
    order = next((one.labels["models"].split("+") for one in samples if one.name == CONFIG), None)
    if order is None:
        raise LoadError("the metrics page does not say which models there are: is it an older server?")
    found = {one.labels["model"]: one.value for one in samples if one.name == COMMITTED}
    return {name: found.get(name, 0.0) for name in order}


def committed(url: str) -> dict[str, float]:
    """Once nothing is live and the page has stayed the same for `QUIET_S`."""
    until = time.monotonic() + QUIET_S_MAX
    samples, since = _read(url), time.monotonic()
    while time.monotonic() < min(until, since + QUIET_S):
        time.sleep(0.1)
        before, samples = samples, _read(url)
        is_busy = any(one.value for one in samples if one.name == LIVE)
        if is_busy or committed_in(samples) != committed_in(before):
            since = time.monotonic()
    return committed_in(samples)


def _read(url: str) -> list[Sample]:
    try:
        return read(url)
    except MetricsPageError as error:
        raise LoadError(f"--metrics: {error}") from error
