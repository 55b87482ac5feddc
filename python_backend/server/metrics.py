"""Counters and gauges on Triton's /metrics, mirrored from what the loops count.

One thread owns every Metric object (two threads on one object abort the whole tritonserver) and keeps a
reference to every family (a family without one is deleted). Loops never wait for it: it reads their
`snapshot()` and publishes differences. A histogram arrives as its `_bucket` / `_sum` / `_count` counters.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import triton_python_backend_utils as pb_utils

from python_backend.metric_catalogue import metric_of
from python_backend.server.response_stream import FAULTS

LOG = logging.getLogger(__name__)
PREFIX = "token_router_"
PERIOD_S = 0.25
PERIODS_MAX = 4
"""So many periods at most lie between two publications that take long. Under load each is some 200 round
trips to the server's process; four a second in every process cost as much as a tenth of the tokens."""
SHARE = 0.02
"""Of the time is what publications may take before they become fewer."""
_COUNTER_ENDINGS = ("_total", "_bucket", "_sum", "_count")
_LABEL = re.compile(r'(\w+)="?([^",}]*)"?')

Snapshot = Mapping[str, float]
"""Values by sample name, `name` or `name{label="value"}`; a name that ends like a counter only grows."""


class MetricsMirror:
    """Publishes `snapshot()` every `period_s`, less often if that takes long; `labels` go on every sample."""

    def __init__(
        self, labels: Mapping[str, str], snapshot: Callable[[], Snapshot], period_s: float = PERIOD_S
    ) -> None:
        self._labels = dict(labels)
        self._snapshot = snapshot
        self._period_s = period_s
        self._clock = time.monotonic
        self._families: dict[str, Any] = {}
        self._metrics: dict[str, Any] = {}
        self._published: dict[str, float] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def publish(self) -> None:
        """Bring every sample up to date; only what changed costs a round trip (about 30 us)."""
        for sample, value in self._snapshot().items():
            before = self._published.get(sample)
            if value != before:
                self._update(sample, value, before or 0.0)
                self._published[sample] = value

    def _run(self) -> None:
        wait_s = self._period_s
        while not self._stopping.wait(wait_s):
            began_at = self._clock()
            self._publish_guarded()
            wait_s = pause_s(self._clock() - began_at, self._period_s)
        self._publish_guarded()

    def _publish_guarded(self) -> None:
        try:
            self.publish()
        except FAULTS:
            LOG.exception("the metrics page is behind")

    def _update(self, sample: str, value: float, before: float) -> None:
        name, labels = parsed(sample)
        metric = self._metrics.get(sample)
        if metric is None:
            metric = self._family(name).Metric(labels={**self._labels, **labels})
            self._metrics[sample] = metric
        if is_counter(name):
            metric.increment(value - before)
        else:
            metric.set(value)

    def _family(self, name: str) -> Any:
        family = self._families.get(name)
        if family is None:
            kind = pb_utils.MetricFamily.COUNTER if is_counter(name) else pb_utils.MetricFamily.GAUGE
            family = pb_utils.MetricFamily(name=name, description=described(name), kind=kind)
            self._families[name] = family
        return family


def pause_s(took_s: float, period_s: float) -> float:
    """From one publication, which `took_s`, to the next."""
    return min(max(period_s, took_s / SHARE), PERIODS_MAX * period_s)


def described(name: str) -> str:
    """What the page says of a family; a name that the catalogue lacks speaks for itself."""
    metric = metric_of(name.removeprefix(PREFIX))
    return metric.meaning if metric else name.replace("_", " ")


def is_counter(name: str) -> bool:
    return name.endswith(_COUNTER_ENDINGS)


def parsed(sample: str) -> tuple[str, dict[str, str]]:
    """Family name with our prefix, and labels, of `name{label="value", ...}`."""
    name, _, labels = sample.partition("{")
    return f"{PREFIX}{name.removeprefix(PREFIX)}", dict(_LABEL.findall(labels))
