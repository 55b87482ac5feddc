"""What a message must be beyond its types, for a receiver that knows its deployment.

The codec guarantees types; here numbers must make sense before anything is allocated, appended or sent
on. A peer of the same version never fails these checks: they keep a damaged or a foreign message from
becoming a wrong index, a token that no engine has, or a number that cannot be sent on. Changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from router_backend.core.errors import RemoteProtocolError
from router_backend.core.request import ModelIndex, Request
from router_backend.handoff.message import Handoff, Report, Thresholds

COUNT_MAX = 2**31 - 1
"""No honest count of tokens, steps or hand-offs comes near."""


@dataclass(frozen=True, slots=True)
class MessageBounds:
    """Of the deployment, as model number `model` sees it; every method raises RemoteProtocolError."""

    model: ModelIndex
    models: int
    vocab_size: int

    def check_request(self, request: Request) -> None:
        """One that this deployment's engines can run."""
        _must(bool(request.prompt), "a request without a prompt")
        self._check_tokens(request.prompt)
        _must(1 <= request.max_tokens <= COUNT_MAX, f"max_tokens is {request.max_tokens}")

    def check_source(self, source: ModelIndex) -> None:
        _must(0 <= source < self.models, f"from model {source} of {self.models}")

    def check_report(self, report: Report) -> None:
        self.check_source(report.source)
        _must(len(report.sent) <= self.models, f"a report on {len(report.sent)} models of {self.models}")

    def check_thresholds(self, message: Thresholds) -> None:
        """With a term that ends."""
        self.check_source(message.source)
        _must(0 <= message.lasts_s < math.inf, f"thresholds that last {message.lasts_s} s")

    def check_handoff(self, handoff: Handoff) -> None:
        """One that is for this model and whose ledger, counts and tokens can be."""
        self.check_source(handoff.source)
        is_ours = handoff.target == self.model != handoff.source
        _must(is_ours, f"a hand-off from model {handoff.source} to {handoff.target}")
        counts = (handoff.seq, handoff.base, handoff.attempt, handoff.raw_steps)
        _must(min(counts) >= 0 and max(counts) <= COUNT_MAX, f"a hand-off that counts {counts}")
        seen, loc = handoff.seen, handoff.loc
        fits = len(seen) == self.models and min(seen) >= 0 and max(seen) <= loc and seen[self.model] == loc
        _must(fits, f"a hand-off up to {loc} after which models hold {seen}")
        self._check_tokens(handoff.token_ids)
        if handoff.request is not None:
            self.check_request(handoff.request)
            named = (handoff.request.request_id, handoff.request.epoch)
            _must(named == (handoff.request_id, handoff.epoch), f"a hand-off with the request {named}")

    def check_continuation(self, handoff: Handoff, request: Request, held: int) -> None:
        """It goes on with `request`, of which `held` tokens are here, and never takes back any."""
        _must(handoff.epoch == request.epoch, f"life {handoff.epoch} of a request in life {request.epoch}")
        least, most = max(held, request.prompt_len), request.length_max
        _must(least <= handoff.loc <= most, f"a hand-off up to {handoff.loc}, which must be {least}..{most}")

    def _check_tokens(self, token_ids: Iterable[int]) -> None:
        lowest, highest = min(token_ids, default=0), max(token_ids, default=0)
        is_known = lowest >= 0 and highest < self.vocab_size
        _must(is_known, f"tokens {lowest}..{highest}, the vocabulary ends at {self.vocab_size}")


def _must(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise RemoteProtocolError(otherwise)
