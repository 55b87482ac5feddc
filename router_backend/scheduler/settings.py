"""What one model's scheduler is configured with."""

from __future__ import annotations

from dataclasses import dataclass, field

from router_backend.core.errors import ConfigError
from router_backend.core.replicas import ReplicaIndex, Replicas
from router_backend.core.request import ModelIndex
from router_backend.handoff.message import DRAFT_MAX
from router_backend.scheduler.rounds import Mode


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """`model` is this model's index; `thresholds` holds every model's, in deployment order."""

    model: ModelIndex
    thresholds: tuple[int, ...]
    num_blocks: int
    block_size: int
    length_max: int
    batch_max: int
    batch_tokens_max: int
    deadline_s: float
    mode: Mode = Mode.DELAYED
    draft_max: int = DRAFT_MAX
    """Longest draft that the engine can read; 0 = none."""
    parked_kv_max: float = 0.9
    """Share of the pool that parked sequences may hold together."""
    counts: tuple[int, ...] = ()
    """How many replicas every model has; empty = one each."""
    replica: int = 0
    """Which one of this model's this is, from 0."""
    peers: tuple[ModelIndex, ...] = field(init=False)
    """The other models in deployment order: what destination 1, 2, ... of a policy means."""

    def __post_init__(self) -> None:
        if max(self.counts, default=1) > 1 and self.mode.is_barrier:
            raise ConfigError(f"replicas: mode {self.mode.value} knows one of each model; use mode delayed")
        if self.batch_max < 1:
            raise ConfigError(f"batch_max: {self.batch_max} must be at least 1")
        if self.batch_tokens_max < self.batch_max:
            raise ConfigError(f"batch_tokens_max: {self.batch_tokens_max} is below {self.batch_max=}")
        if not 0 <= self.parked_kv_max <= 1:
            raise ConfigError(f"parked_kv_max: {self.parked_kv_max} must be from 0 to 1")
        peers = tuple(ModelIndex(index) for index in range(self.models) if index != self.model)
        object.__setattr__(self, "peers", peers)

    @property
    def parked_blocks_max(self) -> int:
        return int(self.num_blocks * self.parked_kv_max)

    @property
    def models(self) -> int:
        return len(self.thresholds)

    @property
    def replicas(self) -> Replicas:
        return Replicas(self.counts or (1,) * self.models)

    @property
    def subserver(self) -> ReplicaIndex:
        """The number of this one among all."""
        return self.replicas.of(self.model)[self.replica]

    @property
    def readable_draft_max(self) -> int:
        """Longest draft that one step can verify, with the token before it."""
        return min(self.draft_max, self.batch_tokens_max - 1)

    @property
    def tokens_max(self) -> int:
        """Longest sequence that can ever run here."""
        return min(self.length_max, self.num_blocks * self.block_size)
