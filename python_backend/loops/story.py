"""What a front remembers of one request so that its course can be traced: who wrote when.

Kept only while tracing is on. Times are seconds on the front's clock; nothing of prompt or answer is in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Stay:
    """Tokens that one model wrote without a break, as they reached the front."""

    model: int
    first_at: float
    last_at: float
    tokens: int


@dataclass(slots=True)
class Story:
    arrived_at: float
    client_id: str = ""
    policy: str = ""
    """As the client chose it; empty: the deployment's."""
    started_at: float | None = None
    """When it was given to a model; None if it never was."""
    stays: list[Stay] = field(default_factory=list)

    def add(self, model: int, tokens: int, now: float) -> None:
        if not self.stays or self.stays[-1].model != model:
            self.stays.append(Stay(model, now, now, 0))
        stay = self.stays[-1]
        stay.last_at = now
        stay.tokens += tokens
