"""What a message must be beyond its types, for a receiver that knows its deployment.

The codec guarantees types; here numbers must make sense before anything is allocated, appended or sent
on. A peer of the same version never fails these checks: they keep a damaged or a foreign message from
becoming a wrong index, a token that no engine has, or a number that cannot be sent on. Changes nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from router_backend.core.errors import RemoteProtocolError
from router_backend.core.request import ModelIndex, Request
from router_backend.handoff.message import DRAFT_MAX, Admit, Handoff, Report, Thresholds

COUNT_MAX = 2**31 - 1
"""No honest count of tokens, steps or hand-offs comes near."""


@dataclass(frozen=True, slots=True)
class MessageBounds:
    """Of the deployment, as model number `model` sees it; every method raises RemoteProtocolError."""

    model: ModelIndex
    models: int
    vocab_size: int

    def check_admission(self, admit: Admit) -> None:
        """A request that this deployment's engines can run, with something left to write."""
        _check_size(admit.request)
        self._check_tokens(admit.request.prompt)
        self._check_tokens(admit.answer)
        written, wanted = len(admit.answer), admit.request.max_tokens
        if written >= wanted:
            raise RemoteProtocolError(f"{written} tokens of an answer of {wanted} are written already")

    def check_source(self, source: ModelIndex) -> None:
        if not 0 <= source < self.models:
            raise RemoteProtocolError(f"from model {source} of {self.models}")

    def check_report(self, report: Report) -> None:
        self.check_source(report.source)
        if len(report.sent) > self.models:
            raise RemoteProtocolError(f"a report on {len(report.sent)} models of {self.models}")

    def check_thresholds(self, message: Thresholds) -> None:
        """With a term that ends."""
        self.check_source(message.source)
        if not 0 <= message.lasts_s < math.inf:
            raise RemoteProtocolError(f"thresholds that last {message.lasts_s} s")

    def check_handoff(self, handoff: Handoff) -> None:
        """One that is for this model and whose ledger, counts and tokens can be.

        Runs on every hand-off while the next batch waits for it: no text is made before it is needed.
        """
        self.check_source(handoff.source)
        if not handoff.source != self.model == handoff.target:
            raise RemoteProtocolError(f"a hand-off from model {handoff.source} to {handoff.target}")
        counts = (handoff.seq, handoff.base, handoff.attempt, handoff.raw_steps)
        if min(counts) < 0 or max(counts) > COUNT_MAX:
            raise RemoteProtocolError(f"a hand-off that counts {counts}")
        seen, loc = handoff.seen, handoff.base + len(handoff.token_ids)
        if len(seen) != self.models or min(seen) < 0 or not loc == max(seen) == seen[self.model]:
            raise RemoteProtocolError(f"a hand-off up to {loc} after which models hold {seen}")
        self._check_tokens(handoff.token_ids)
        if handoff.provisional and not 0 < handoff.provisional <= min(DRAFT_MAX, len(handoff.token_ids)):
            raise RemoteProtocolError(f"{handoff.provisional} of {len(handoff.token_ids)} tokens as a draft")
        if handoff.logprobs and len(handoff.logprobs) != handoff.provisional:
            raise RemoteProtocolError(f"{len(handoff.logprobs)} logprobs of {handoff.provisional} tokens")
        if handoff.request is not None:
            _check_first(handoff, handoff.request)

    def check_continuation(self, handoff: Handoff, request: Request, held: int) -> None:
        """It goes on with `request`, of which `held` committed tokens are here, and never takes back any."""
        if handoff.epoch != request.epoch:
            raise RemoteProtocolError(f"life {handoff.epoch} of a request in life {request.epoch}")
        least, most = max(held, len(request.prompt)), request.length_max
        if not (least <= handoff.committed_len and handoff.loc <= most):
            raise RemoteProtocolError(f"a hand-off up to {handoff.loc}, which must be {least}..{most}")

    def _check_tokens(self, token_ids: tuple[int, ...]) -> None:
        if token_ids and (min(token_ids) < 0 or max(token_ids) >= self.vocab_size):
            found = f"tokens {min(token_ids)}..{max(token_ids)}"
            raise RemoteProtocolError(f"{found}, the vocabulary ends at {self.vocab_size}")


def _check_size(request: Request) -> None:
    if not request.prompt:
        raise RemoteProtocolError("a request without a prompt")
    if not 1 <= request.max_tokens <= COUNT_MAX:
        raise RemoteProtocolError(f"max_tokens is {request.max_tokens}")


def _check_first(handoff: Handoff, request: Request) -> None:
    """The request that comes along on first contact is the one whose tokens come."""
    _check_size(request)
    named = (request.request_id, request.epoch)
    if named != (handoff.request_id, handoff.epoch):
        raise RemoteProtocolError(f"a hand-off with the request {named}")
    if handoff.base != 0 or handoff.token_ids[: len(request.prompt)] != request.prompt:
        raise RemoteProtocolError(f"a hand-off from {handoff.base} whose tokens are not its request's prompt")
