"""What one model holds of a request.

A sequence is tokens and how many of them this model's KV cache covers. Prefill, decode, a returned
suffix and recomputation after eviction are all the same thing: feed `tokens[num_computed:]`.
A sampled token is not in the KV cache until it is fed, so dropping it costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from router_backend.core.effects import PeerMessage, TokenLogprobs
from router_backend.core.replicas import ReplicaIndex
from router_backend.core.request import ModelIndex, Request, RequestId, RequestKey
from router_backend.core.state import Event, State, next_state


@dataclass(slots=True, eq=False)
class Sequence:
    """A request on one model; mutable, owned by that model's scheduler alone.

    `tokens[i]` is the token at absolute position i, prompt included. All are committed but the last
    `held + draft` of them, and the just-sampled one while a policy's `send` looks at it.
    `seen[m]` is how many tokens model m holds; it travels with every hand-off, so that no token
    is sent twice to anybody (R7).
    """

    request: Request
    model: ModelIndex
    arrival: int
    tokens: list[int]
    seen: list[int]
    state: State = State.WAITING
    num_computed: int = 0
    blocks: list[int] = field(default_factory=list)
    ready_at: float = 0.0
    """When it began to wait for a step, or for its return: at its arrival or the end of a step (seconds)."""
    held: int = 0
    """Trailing tokens that were sampled here and are not committed: nobody has been shown them."""
    draft: int = 0
    """Trailing tokens that model `drafter` wrote and this model is to verify."""
    drafter: ModelIndex | None = None
    told: list[TokenLogprobs] = field(default_factory=list)
    """Log-probabilities of the `held + draft` last tokens by their author, when the request asks for them."""
    stay: int = 0
    """Tokens sampled here since the last arrival."""
    attempt: int = 0
    """Tokens discarded so far at the next position, by any model."""
    raw_steps: int = 0
    """Tokens sampled so far, kept or not, by any model."""
    last_seq: int = -1
    """Number of the last hand-off of this request that was sent or received here."""
    owner: ReplicaIndex | None = None
    """Whom this sequence was last handed to, while it is parked."""
    places: tuple[ReplicaIndex, ...] = ()
    """The replica of each model that holds the request in this life, `NOWHERE` where none does; it travels
    with every hand-off. Empty where no model has a second replica."""
    sent: PeerMessage | None = None
    """The last hand-off sent from here, kept in case the target asks for it again."""
    published: int = 0
    """Leading blocks already offered to the prefix cache."""
    chain: bytes = b""
    """Chain hash of the published blocks."""
    router: Any = None
    """The policy instance (`router_backend.policies.base.Router`) that decides for this sequence here."""
    scratch: dict[str, Any] = field(default_factory=dict)
    """A policy's own notes about this request on this model."""
    key: RequestKey = field(init=False)

    def __post_init__(self) -> None:
        self.key = self.request.key

    @property
    def request_id(self) -> RequestId:
        return self.request.request_id

    def replica_of(self, model: ModelIndex) -> ReplicaIndex:
        """The subserver that serves the request for `model`."""
        return self.places[model] if self.places else ReplicaIndex(model)

    @property
    def num_uncomputed(self) -> int:
        return len(self.tokens) - self.num_computed

    @property
    def out_step(self) -> int:
        """Output tokens so far, committed or not; the index of the next one in the answer."""
        return len(self.tokens) - len(self.request.prompt)

    @property
    def committed_len(self) -> int:
        """Absolute length of what is committed, prompt included."""
        return len(self.tokens) - self.held - self.draft

    @property
    def num_committed(self) -> int:
        """Committed output tokens."""
        return self.committed_len - len(self.request.prompt)

    def truncate(self, length: int) -> None:
        """Forget all tokens from absolute position `length` on; their KV slots are written anew when fed."""
        del self.tokens[length:]
        self.num_computed = min(self.num_computed, length)

    def happen(self, event: Event) -> None:
        self.state = next_state(self.state, event)
