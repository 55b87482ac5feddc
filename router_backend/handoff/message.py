"""The words that subservers exchange about a request.

`Handoff` is the paper's PeerReq (arXiv:2610.12242, section 3): it moves the right to append tokens.
The other messages never move it. Nothing that arrives after the end of a request has an effect.
"""

from __future__ import annotations

from collections.abc import Mapping

from router_backend.core.effects import TokenLogprobs
from router_backend.core.record import Record
from router_backend.core.replicas import ReplicaIndex
from router_backend.core.request import ModelIndex, OfRequest, PolicyValue, Request, RequestId

DRAFT_MAX = 32
"""Longest draft that travels: it bounds the logits that a verifying step must keep."""


class Handoff(OfRequest, Record, frozen=True):
    """Control of a request goes from `source` to `target`.

    `token_ids` is exactly the suffix that the target has not seen, starting at absolute position
    `base`; `loc` is the only truth about the length afterwards (R1). `seq` counts the hand-offs of
    the request. `seen[m]` is what model m holds after this message. `request` travels on first
    contact only. The last `provisional` tokens are a draft: written by `source`, not committed, to be
    verified by `target`.
    """

    request_id: RequestId
    epoch: int
    source: ModelIndex
    target: ModelIndex
    seq: int
    base: int
    token_ids: tuple[int, ...]
    seen: tuple[int, ...]
    attempt: int = 0
    raw_steps: int = 0
    request: Request | None = None
    meta: Mapping[str, PolicyValue] = {}
    sent_at: float = 0.0
    """When it was decided, seconds on the monotonic clock of the source's host; for measuring only."""
    provisional: int = 0
    logprobs: tuple[TokenLogprobs, ...] = ()
    """Of the draft's tokens, by their author, when the request asks for them."""
    places: tuple[ReplicaIndex, ...] = ()
    """The replica of each model that holds the request, -1 where none does; empty where every model has one
    replica only. Filled in by whoever sends, never by a policy."""

    @property
    def loc(self) -> int:
        """Absolute length after the hand-off, prompt included."""
        return self.base + len(self.token_ids)

    @property
    def committed_len(self) -> int:
        """Absolute length of what is committed."""
        return self.loc - self.provisional

    def starting_at(self, base: int, token_ids: tuple[int, ...], request: Request | None) -> Handoff:
        """The same hand-off for a target that holds only `base` tokens."""
        return self.replaced(base=base, token_ids=token_ids, request=request)


class Admitted(OfRequest, Record, frozen=True):
    """`source` has admitted a new request: one more is live."""

    request_id: RequestId
    epoch: int
    source: ReplicaIndex


class Joined(OfRequest, Record, frozen=True):
    """`source`, one of several replicas of its model, was handed a live request: no other one of them will
    be. Said to all, on first contact."""

    request_id: RequestId
    epoch: int
    source: ReplicaIndex


class Finished(OfRequest, Record, frozen=True):
    """The request has ended, for whatever reason: drop what you hold of it, one less is live.

    To the author of a draft, `kept` is the absolute length up to which its tokens were kept.
    """

    request_id: RequestId
    epoch: int
    source: ReplicaIndex
    kept: int = 0


class Nack(OfRequest, Record, frozen=True):
    """`source` received a hand-off that starts after the end of what it holds: send again from `have`."""

    request_id: RequestId
    epoch: int
    source: ReplicaIndex
    seq: int
    have: int


class Report(Record, frozen=True):
    """Barrier modes only, to the leader: `waiting` requests are ready at `source`; `sent[m]` were handed
    to model m in the step that has just ended (`is_step_over`)."""

    source: ModelIndex
    waiting: int
    sent: tuple[int, ...] = ()
    is_step_over: bool = False


class Go(Record, frozen=True):
    """Barrier modes only, from the leader: run one step with what is ready, then report."""

    source: ModelIndex


class Observation(Record, frozen=True):
    """With adaptive thresholds, to the leader, a few times a second: what `source` did since the last one.

    `destinations[m]` requests went to model m after a step of `source`, those that ended counted as going
    to the entry; `committed` tokens were kept; `live` requests are in the system. `steps` are
    (requests in the batch, number of such steps, milliseconds of all of them).
    """

    source: ModelIndex
    live: int
    destinations: tuple[int, ...]
    committed: int
    steps: tuple[tuple[int, int, float], ...]


class Thresholds(Record, frozen=True):
    """From the leader: row i of `table` holds every model's threshold while i + 1 requests are live, the
    last row also for more. In force for `lasts_s` from arrival, unless the next ones come before."""

    source: ModelIndex
    table: tuple[tuple[int, ...], ...]
    lasts_s: float


class Admit(Record, frozen=True):
    """A home gives a request to the subserver of its entry model. `answer` is what a former life of it has
    committed already (`stream/lives.py`); the first token that is wanted comes behind it."""

    request: Request
    answer: tuple[int, ...] = ()


class Abort(OfRequest, Record, frozen=True):
    """A home no longer wants the request. Sent to every subserver; idempotent."""

    request_id: RequestId
    epoch: int


class Beat(Record, frozen=True):
    """A sign of life, a few times a second, to everybody.

    `instance` is drawn at process start, so that a restart is seen as such. Subservers say what
    their engine can take; homes leave `model` at -1.
    """

    endpoint: str
    instance: int
    model: int = -1
    vocab_size: int = 0
    length_max: int = 0
    capacity_tokens: int = 0
    """KV pool size in tokens."""
    eos_ids: tuple[int, ...] = ()
