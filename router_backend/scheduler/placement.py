"""Which replica of each model holds which live request, as far as it is known here.

Owned by the roster of one subserver, who is told by announcements and by its own choices. Never sends
anything. Where no model has a second replica it keeps nothing and costs nothing.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

from router_backend.core.errors import RemoteProtocolError
from router_backend.core.replicas import NOWHERE, ReplicaIndex, Replicas, least_loaded
from router_backend.core.request import ModelIndex, RequestKey
from router_backend.core.sequence import Sequence
from router_backend.handoff.message import Handoff


@dataclass(slots=True)
class Placement:
    """Of subserver `own` among all of `replicas`."""

    replicas: Replicas
    own: ReplicaIndex
    is_single: bool = field(init=False)
    others: tuple[ReplicaIndex, ...] = field(init=False)
    """All other subservers, those of the same model too."""
    elsewhere: int = field(init=False, default=0)
    """Live requests that another replica of this model holds: they will not come here."""
    _load: list[int] = field(init=False)
    """Live requests by replica."""
    _held: dict[RequestKey, set[ReplicaIndex]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.is_single = self.replicas.is_single
        everybody = map(ReplicaIndex, range(len(self.replicas)))
        self.others = tuple(replica for replica in everybody if replica != self.own)
        self._load = [0] * len(self.replicas)

    @property
    def load(self) -> tuple[int, ...]:
        """Live requests by replica."""
        return tuple(self._load)

    @property
    def has_siblings(self) -> bool:
        """This model has other replicas."""
        return self.replicas.counts[self._model] > 1

    def note(self, key: RequestKey, replica: ReplicaIndex) -> None:
        """`replica` holds the live request."""
        if self.is_single:
            return
        held = self._held.setdefault(key, set())
        if replica not in held:
            held.add(replica)
            self._load[replica] += 1
            self.elsewhere += self._is_sibling(replica)

    def forget(self, key: RequestKey) -> None:
        """The request has ended."""
        for replica in self._held.pop(key, ()):
            self._load[replica] -= 1
            self.elsewhere -= self._is_sibling(replica)

    def begun_here(self) -> tuple[ReplicaIndex, ...]:
        """The places of a request that begins on this subserver."""
        if self.is_single:
            return ()
        places = [NOWHERE] * len(self.replicas.counts)
        places[self._model] = self.own
        return tuple(places)

    def settle(self, sequence: Sequence, target: ModelIndex, down: Container[ReplicaIndex]) -> ReplicaIndex:
        """The replica of `target` that gets the request: the one that holds it, else the least loaded that
        is not `down`, which holds it from now on. If all are down, one of those, for nothing."""
        if self.is_single:
            return ReplicaIndex(target)
        place = sequence.places[target]
        if place != NOWHERE:
            return place
        candidates = self.replicas.of(target)
        living = [replica for replica in candidates if replica not in down]
        chosen = least_loaded(living, self._load, sequence.request_id)
        if chosen is None:
            return candidates[0]
        sequence.places = (*sequence.places[:target], chosen, *sequence.places[target + 1 :])
        self.note(sequence.key, chosen)
        return chosen

    def sender(self, handoff: Handoff) -> ReplicaIndex:
        """The subserver that a hand-off comes from."""
        return ReplicaIndex(handoff.source) if self.is_single else handoff.places[handoff.source]

    def check(self, handoff: Handoff) -> None:
        """RemoteProtocolError unless its places can be: the sender's and ours among them."""
        places, counts = handoff.places, self.replicas.counts
        if not self.is_single and len(places) == len(counts):
            named = [(place, model) for model, place in enumerate(places) if place != NOWHERE]
            is_known = all(self._is_of(place, model) for place, model in named)
            if is_known and places[handoff.source] != NOWHERE and places[self._model] == self.own:
                return
        raise RemoteProtocolError(f"a hand-off to subserver {self.own} of a request that is at {places}")

    def check_source(self, source: ReplicaIndex) -> None:
        if not 0 <= source < len(self.replicas):
            raise RemoteProtocolError(f"from subserver {source} of {len(self.replicas)}")

    @property
    def _model(self) -> ModelIndex:
        return self.replicas.models[self.own]

    def _is_of(self, replica: int, model: int) -> bool:
        return 0 <= replica < len(self.replicas) and self.replicas.models[replica] == model

    def _is_sibling(self, replica: ReplicaIndex) -> bool:
        return replica != self.own and self.replicas.models[replica] == self._model
