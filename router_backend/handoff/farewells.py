"""What must be said again to a peer that was away: the ends of requests that it may still hold.

A process that was stopped, or cut off, knows nothing of what ended meanwhile, and would keep it for ever. To
say an end twice does no harm. The invariant: what was said since a peer was last heard is remembered, as far
as there is room.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from router_backend.handoff.message import Abort, Finished

SIZE_MAX = 65_536
MARGIN_S = 5.0
"""A word may have been under way, unread, when the peer's last sign of life came in."""
Farewell = Abort | Finished


@dataclass(slots=True)
class Farewells:
    """By peer; seconds on the caller's clock."""

    _said: dict[str, deque[tuple[float, Farewell]]] = field(default_factory=dict)

    def note(self, peer: str, farewell: Farewell, heard_at: float, now: float) -> None:
        """It is said to `peer` now, which was last heard at `heard_at`; what is older than that is known."""
        said = self._said.setdefault(peer, deque(maxlen=SIZE_MAX))
        while said and said[0][0] < heard_at - MARGIN_S:
            said.popleft()
        said.append((now, farewell))

    def again(self, peer: str) -> list[Farewell]:
        """What to say to `peer`, which is back; each is returned once."""
        return [farewell for _, farewell in self._said.pop(peer, ())]
