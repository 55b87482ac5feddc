"""What happened on the models of a deployment, simulated or live: the data behind every picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from router_backend.simulation.launches import LaunchRecord


class HandoffRecord(NamedTuple):
    """A request left `source` for `target` (model indices) at `at` (seconds)."""

    at: float
    request_id: str
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """Launches and hand-offs in order of time; launches of one model never overlap."""

    title: str
    models: tuple[str, ...]
    launches: tuple[LaunchRecord, ...]
    handoffs: tuple[HandoffRecord, ...] = ()

    @property
    def began_at(self) -> float:
        return min((launch.at for launch in self.launches), default=0.0)

    @property
    def ended_at(self) -> float:
        return max((launch.at + launch.step_s for launch in self.launches), default=0.0)

    @property
    def request_ids(self) -> list[str]:
        """In order of appearance."""
        return list(dict.fromkeys(name for launch in self.launches for name in launch.request_ids))

    def since_start(self, start_s: float, seconds: float) -> Timeline:
        """What began in `seconds` from `start_s` after the first launch, which is time 0 of the result."""
        zero, first = self.began_at, self.began_at + start_s
        last = first + seconds
        return replace(
            self,
            launches=tuple(one._replace(at=one.at - zero) for one in self.launches if first <= one.at < last),
            handoffs=tuple(one._replace(at=one.at - zero) for one in self.handoffs if first <= one.at < last),
        )

    def summary(self) -> list[str]:
        """One line per model: launches, rows per launch, share of time busy, reasons."""
        span_s = max(self.ended_at - self.began_at, 1e-9)
        head = f"{'model':<16}{'launches':>9}{'mean batch':>11}{'busy':>7}{'sent':>7}  reasons"
        return [head, *(self._line(model, span_s) for model in range(len(self.models)))]

    def _line(self, model: int, span_s: float) -> str:
        mine = [launch for launch in self.launches if launch.model == model]
        rows = sum(len(launch.request_ids) for launch in mine)
        busy = sum(launch.step_s for launch in mine) / span_s
        sent = sum(handoff.source == model for handoff in self.handoffs)
        counts = Counter(launch.reason.value for launch in mine)
        start = f"{self.models[model]:<16}{len(mine):>9}{rows / max(len(mine), 1):>11.2f}{busy:>7.1%}"
        return f"{start}{sent:>7}  {reasons_text(counts)}"


def reasons_text(counts: Counter[str] | dict[str, int]) -> str:
    """The most frequent first."""
    ranked: Iterable[tuple[str, int]] = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return ", ".join(f"{reason} {count}" for reason, count in ranked if count) or "-"
