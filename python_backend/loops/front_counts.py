"""What the front counts, and the picture of it that the metrics thread may look at.

Owned by the front loop's thread. A snapshot is immutable and swapped as a whole, so reading one needs
no lock. Invariant: every request is counted once in `requests`, refused ones also in `rejections`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from python_backend.loops.base import Finish
from router_backend.core.effects import Reason
from router_backend.core.histogram import BRIEF, SECONDS, SHARES, SIZES, Histogram, HistogramCounts

TOO_LATE = "TR_DEADLINE"
SAME_MODEL = 'inter_token_seconds{after_handoff="no"}'
AFTER_HANDOFF = 'inter_token_seconds{after_handoff="yes"}'
FRONT_LAG = 'loop_lag_seconds{loop="front"}'


def _spreads() -> dict[str, Histogram]:
    """By the metric's name and label. `routed_fraction`: share of an answer's tokens by other models than
    the entry."""
    seconds = ("ttft_seconds", SAME_MODEL, AFTER_HANDOFF, "e2e_seconds", "cancel_latency_seconds")
    return {
        **{name: Histogram(SECONDS) for name in seconds},
        "prompt_tokens": Histogram(SIZES),
        "output_tokens": Histogram(SIZES),
        "routed_fraction": Histogram(SHARES),
        FRONT_LAG: Histogram(BRIEF),
    }


@dataclass(frozen=True, slots=True)
class Gauges:
    """How things stand at this moment."""

    live: int = 0
    queued: int = 0
    """Waiting for a place, or being turned into tokens."""
    unsent: int = 0
    """Responses that clients have not taken, over all live requests."""
    peers_up: tuple[bool, ...] = ()
    """By subserver."""
    is_draining: bool = False
    models_up: tuple[bool, ...] = ()
    """By model: one of its replicas is up."""


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
    recoveries: int
    """Lives that were begun because a model was lost."""
    deadlines: dict[str, int]
    """Requests that took longer than they may, by where they were: waiting here, or with the models."""
    spreads: dict[str, HistogramCounts]
    """By the metric's name and label."""

    @property
    def is_ready(self) -> bool:
        """New requests can be served by every model."""
        return all(self.gauges.models_up) and not self.gauges.is_draining


class FrontCounts:
    def __init__(self, models: int) -> None:
        self.stale_messages = 0
        self.bad_messages = 0
        self.recoveries = 0
        self._requests: Counter[str] = Counter()
        self._rejections: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._tokens = [0] * models
        self._discarded = 0
        self._handoffs = 0
        self._deadlines = {"queue": 0, "models": 0}
        self._spreads = _spreads()

    def include(self, name: str, spread: Histogram) -> None:
        """`spread` is kept by somebody else in this thread, and shown with the rest."""
        self._spreads[name] = spread

    def turn_away(self, finish: Finish) -> None:
        """A request that never started, because it was refused or because its client left."""
        if finish.reason is Reason.CANCELLED:
            self._requests[finish.reason.value] += 1
            return
        self._requests["rejected"] += 1
        self._rejections[finish.code] += 1
        self._deadlines["queue"] += finish.code == TOO_LATE

    def observe_first(self, wait_s: float) -> None:
        self._spreads["ttft_seconds"].observe(wait_s)

    def observe_gap(self, gap_s: float, tokens: int, is_other_model: bool) -> None:
        """`tokens` arrived `gap_s` after the ones before, which were another model's or the same one's."""
        name = AFTER_HANDOFF if is_other_model else SAME_MODEL
        self._spreads[name].observe(gap_s / tokens, tokens)

    def observe_cancel(self, wait_s: float) -> None:
        """The model that held a cancelled request has said that it ended it."""
        self._spreads["cancel_latency_seconds"].observe(wait_s)

    def observe_loop(self, late_s: float) -> None:
        """The front loop came back to its clock this late."""
        self._spreads[FRONT_LAG].observe(late_s)

    def count_tokens(self, sources: tuple[int, ...]) -> None:
        for model in sources:
            self._tokens[model] += 1

    def finish(self, finish: Finish, e2e_s: float, routed: int) -> None:
        """A request that had started ended; `routed` of its tokens are not the entry model's."""
        self._requests[finish.reason.value] += 1
        if finish.reason is Reason.ERROR:
            self._errors[finish.code] += 1
            self._deadlines["models"] += finish.code == TOO_LATE
        self._discarded += finish.discarded_tokens
        self._handoffs += finish.handoffs
        spreads = self._spreads
        spreads["e2e_seconds"].observe(e2e_s)
        spreads["prompt_tokens"].observe(finish.prompt_tokens)
        spreads["output_tokens"].observe(finish.output_tokens)
        if finish.output_tokens:
            spreads["routed_fraction"].observe(routed / finish.output_tokens)

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
            self.recoveries,
            dict(self._deadlines),
            {name: spread.counts() for name, spread in self._spreads.items()},
        )
