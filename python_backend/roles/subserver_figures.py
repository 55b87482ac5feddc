"""What one model's process knows of itself, gathered for the metrics page.

Everything is read in the decode loop's thread, a few times a second, and copied: a picture never changes
once it was taken.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass, field

from python_backend.loops.client_loop import ClientLoop
from python_backend.loops.decode_loop import DecodeLoop
from python_backend.loops.handoff_loop import HandoffLoop
from python_backend.loops.stopwatch import Stopwatch
from router_backend.core.histogram import HistogramCounts
from router_backend.scheduler.scheduler import Scheduler

PACE_S = 2.0


@dataclass(slots=True)
class Pace:
    """Growth of a count per second, over the last two seconds or so."""

    _seen: deque[tuple[float, float]] = field(default_factory=deque)

    def of(self, count: float, now: float) -> float:
        self._seen.append((now, count))
        while len(self._seen) > 2 and self._seen[1][0] <= now - PACE_S:
            self._seen.popleft()
        first_at, first = self._seen[0]
        return (count - first) / (now - first_at) if now > first_at else 0.0


@dataclass(frozen=True, slots=True)
class Gauged:
    """The parts of a subserver that count something; `models` are all names, in deployment order."""

    models: tuple[str, ...]
    scheduler: Scheduler
    decode: DecodeLoop
    handoff: HandoffLoop
    client: ClientLoop
    policies: Stopwatch
    pace: Pace = field(default_factory=Pace)

    def picture(self, now: float) -> dict[str, float | dict[str, float] | dict[str, HistogramCounts]]:
        loop, traffic = self.decode.figures, self.handoff.figures
        return {
            **scheduler_figures(self.scheduler),
            **self._handoffs(),
            "spreads": self._spreads(),
            "turns": loop.turns,
            "loop_errors": loop.loop_errors,
            "runner_errors": loop.runner_errors,
            "messages_posted": traffic.posted,
            "messages_received": traffic.received,
            "messages_malformed": traffic.malformed,
            "messages_undeliverable": traffic.undeliverable,
            "peers_up": self.handoff.peers_up,
            "committed_throughput": self.pace.of(self.scheduler.counters.committed, now),
        }

    def _handoffs(self) -> dict[str, float]:
        source = self.models[self.scheduler.settings.model]
        return {
            f'handoffs_total{{src="{source}",dst="{self.models[target]}",reason="{departure.value}"}}': count
            for (target, departure), count in self.scheduler.counters.departures.items()
        }

    def _spreads(self) -> dict[str, HistogramCounts]:
        spreads = self.scheduler.roster.spreads
        here = self.models[self.scheduler.settings.model]
        transits = {
            f'handoff_transit_seconds{{src="{self.models[source]}",dst="{here}"}}': spread
            for source, spread in spreads.transit_s.items()
        }
        waits = {
            f'queue_wait_seconds{{kind="{wait.value}"}}': spread
            for wait, spread in spreads.queue_wait_s.items()
        }
        loops = {"decode": self.decode.figures.lag, "handoff": self.handoff.lag, "client": self.client.lag}
        steps = self.decode.figures.step_s
        found = {
            **transits,
            **waits,
            **{f'loop_lag_seconds{{loop="{name}"}}': lag.spread for name, lag in loops.items()},
            **{f'step_seconds{{phase="{phase.value}"}}': spread for phase, spread in steps.items()},
            "delay_seconds": spreads.delay_s,
            "launch_batch_size": spreads.batch_rows,
            "batch_tokens": spreads.batch_tokens,
            "handoff_tokens": spreads.handoff_tokens,
            "run_tokens": spreads.run_tokens,
            "return_latency_seconds": spreads.return_s,
            "router_seconds": self.policies.spread,
        }
        return {name: spread.counts() for name, spread in found.items()}


def scheduler_figures(scheduler: Scheduler) -> dict[str, float | dict[str, float]]:
    """Counters and gauges, flat by name; `launches` by reason and `kv_blocks` by owner."""
    counters = asdict(scheduler.counters)
    del counters["departures"]
    launches = {reason.value: count for reason, count in counters.pop("launches").items()}
    gauges = scheduler.gauges()
    blocks = {key.removeprefix("kv_"): gauges.pop(key) for key in list(gauges) if key.startswith("kv_")}
    return {**counters, **gauges, "launches": launches, "kv_blocks": blocks}
