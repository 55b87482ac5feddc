"""How many requests the front lets in, and what it says to the others (F67)."""

from __future__ import annotations

from dataclasses import dataclass

from router_backend.core.errors import CapacityError


class QueueFullError(CapacityError):
    """So many requests are waiting that another one would only wait in vain."""

    code = "TR_QUEUE_FULL"


class DrainingError(CapacityError):
    """The server is shutting down and takes no new requests."""

    code = "TR_DRAINING"


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How full the front is: requests being served, and requests before them."""

    live: int
    waiting: int
    is_draining: bool = False


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    live_max: int
    queue_max: int

    def admit(self, occupancy: Occupancy) -> None:
        """Raises where there is no room for one more request, live or waiting."""
        if occupancy.is_draining:
            raise DrainingError("the server is shutting down: send the request to another one")
        if occupancy.live + occupancy.waiting >= self.live_max + self.queue_max:
            raise QueueFullError(
                f"{occupancy.live} requests are live and {occupancy.waiting} wait (live_max {self.live_max}, "
                f"queue_max {self.queue_max}): try again later"
            )

    def has_room(self, live: int) -> bool:
        """One more of those that wait may start."""
        return live < self.live_max
