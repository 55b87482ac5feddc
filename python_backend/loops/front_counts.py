"""What the front counts, and the picture of it that the metrics thread may look at.

Owned by the front loop's thread. A snapshot is immutable and swapped as a whole, so reading one needs
no lock. Invariant: every request is counted once in `requests`, refused ones also in `rejections`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from python_backend.loops.base import Finish
from python_backend.loops.histogram import SECONDS, SHARES, Histogram, HistogramCounts
from router_backend.core.effects import Reason


@dataclass(frozen=True, slots=True)
class Gauges:
    """How things stand at this moment."""

    live: int = 0
    queued: int = 0
    """Waiting for a place, or being turned into tokens."""
    unsent: int = 0
    """Responses that clients have not taken, over all live requests."""
    peers_up: tuple[bool, ...] = ()
    is_draining: bool = False


@dataclass(frozen=True, slots=True)
class FrontSnapshot:
    """Tuples by model are in deployment order; dicts have one key per value that occurred."""

    gauges: Gauges
    requests: dict[str, int]
    """By reason: stop, length, cancelled, error, rejected."""
    rejections: dict[str, int]
    """By error code, of requests that never started."""
    errors: dict[str, int]
    """By error code, of requests that had started."""
    tokens: tuple[int, ...]
    """Committed tokens by the model that wrote them."""
    discarded: int
    handoffs: int
    stale_messages: int
    """Messages about requests that had ended, harmless."""
    bad_messages: int
    """Messages that no peer should have sent."""
    ttft_s: HistogramCounts
    inter_token_s: HistogramCounts
    e2e_s: HistogramCounts
    routed_fraction: HistogramCounts
    """Per finished request: share of tokens by other models than the entry."""

    @property
    def is_ready(self) -> bool:
        """New requests can be served by every model."""
        return all(self.gauges.peers_up) and not self.gauges.is_draining


class FrontCounts:
    def __init__(self, models: int) -> None:
        self.stale_messages = 0
        self.bad_messages = 0
        self._requests: Counter[str] = Counter()
        self._rejections: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._tokens = [0] * models
        self._discarded = 0
        self._handoffs = 0
        self._ttft = Histogram(SECONDS)
        self._inter_token = Histogram(SECONDS)
        self._e2e = Histogram(SECONDS)
        self._routed = Histogram(SHARES)

    def turn_away(self, finish: Finish) -> None:
        """A request that never started, because it was refused or because its client left."""
        if finish.reason is Reason.CANCELLED:
            self._requests[finish.reason.value] += 1
            return
        self._requests["rejected"] += 1
        self._rejections[finish.code] += 1

    def observe_first(self, wait_s: float) -> None:
        self._ttft.observe(wait_s)

    def observe_gap(self, gap_s: float, tokens: int) -> None:
        """`tokens` arrived `gap_s` after the ones before."""
        self._inter_token.observe(gap_s / tokens, tokens)

    def count_tokens(self, sources: tuple[int, ...]) -> None:
        for model in sources:
            self._tokens[model] += 1

    def finish(self, finish: Finish, e2e_s: float, routed: int) -> None:
        """A request that had started ended; `routed` of its tokens are not the entry model's."""
        self._requests[finish.reason.value] += 1
        if finish.reason is Reason.ERROR:
            self._errors[finish.code] += 1
        self._discarded += finish.discarded_tokens
        self._handoffs += finish.handoffs
        self._e2e.observe(e2e_s)
        if finish.output_tokens:
            self._routed.observe(routed / finish.output_tokens)

    def snapshot(self, gauges: Gauges) -> FrontSnapshot:
        return FrontSnapshot(
            gauges,
            dict(self._requests),
            dict(self._rejections),
            dict(self._errors),
            tuple(self._tokens),
            self._discarded,
            self._handoffs,
            self.stale_messages,
            self.bad_messages,
            self._ttft.counts(),
            self._inter_token.counts(),
            self._e2e.counts(),
            self._routed.counts(),
        )
