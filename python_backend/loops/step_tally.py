"""What the steps of one model add up to between two reports to the leader of adaptive thresholds.

Lives in the decode loop's thread and decides nothing: a step costs some microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from python_backend.loops.event_log import Step
from router_backend.core.effects import Close, Emit, Send
from router_backend.core.request import ModelIndex
from router_backend.handoff.message import Handoff, Observation


@dataclass(slots=True)
class StepTally:
    """`entry` is where new requests begin: a request that ends makes room for one there."""

    model: ModelIndex
    entry: ModelIndex
    models: int
    _destinations: list[int] = field(init=False)
    _committed: int = field(init=False, default=0)
    _steps: dict[int, tuple[int, float]] = field(init=False, default_factory=dict)
    _live: int = field(init=False, default=0)
    """As last reported."""

    def __post_init__(self) -> None:
        self._destinations = [0] * self.models

    def note(self, step: Step) -> None:
        """A step has run. A request whose prompt is still being read stays, like one that was decoded."""
        rows = stayed = len(step.plan.rows)
        for effect in step.effects:
            match effect:
                case Emit():
                    self._committed += len(effect.token_ids)
                case Close():
                    self._destinations[self.entry] += 1
                    stayed -= 1
                case Send(message=Handoff() as handoff):
                    self._destinations[handoff.target] += 1
                    stayed -= 1
        self._destinations[self.model] += stayed
        count, total_ms = self._steps.get(rows, (0, 0.0))
        self._steps[rows] = count + 1, total_ms + 1000.0 * (step.ended_at - step.started_at)

    def report(self, live: int) -> Observation | None:
        """What has come together since the last report; None when there is no news."""
        if not self._steps and live == self._live:
            return None
        steps = tuple((rows, count, total_ms) for rows, (count, total_ms) in sorted(self._steps.items()))
        seen = Observation(self.model, live, tuple(self._destinations), self._committed, steps)
        self._destinations, self._committed, self._steps = [0] * self.models, 0, {}
        self._live = live
        return seen
