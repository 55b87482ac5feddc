"""All that the throughput of a set of models depends on, except the thresholds and the load."""

from __future__ import annotations

from dataclasses import dataclass

from router_backend.core.errors import ConfigError
from router_backend.planner.latency import StepLatency
from router_backend.planner.routing import Routing

# The largest batch of a model that has no limit of its own: more than any request count.
UNCAPPED = 2**30


@dataclass(frozen=True, slots=True)
class System:
    """M models that answer together: routing, one step latency and one largest batch per model.

    batch_max  most requests in one step; empty means no model has a limit
    """

    routing: Routing
    latencies: tuple[StepLatency, ...]
    batch_max: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        count = self.routing.model_count
        if len(self.latencies) != count:
            raise ConfigError(f"latencies: {count} models expected, got {len(self.latencies)}")
        if self.batch_max and len(self.batch_max) != count:
            raise ConfigError(f"batch_max: {count} models expected, got {len(self.batch_max)}")
        if self.batch_max and min(self.batch_max) < 1:
            raise ConfigError(f"batch_max: must be at least 1, got {list(self.batch_max)}")

    @property
    def model_count(self) -> int:
        return self.routing.model_count

    def caps(self, concurrency: int) -> tuple[int, ...]:
        """Largest batch of every model while `concurrency` requests are live."""
        limits = self.batch_max or (UNCAPPED,) * self.model_count
        return tuple(min(limit, concurrency) for limit in limits)


def checked_concurrency(concurrency: int) -> int:
    """The number of live requests, if it can be planned for."""
    if concurrency < 1:
        raise ConfigError(f"concurrency: must be at least 1, got {concurrency}")
    return concurrency
