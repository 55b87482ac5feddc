"""The life of one answer at its home: commits in, responses out, one end.

Ties together order, text, stop strings, coalescing and the reader's credit. Performs nothing: it
returns what to send, and `text` is the only thing that it asks. Invariant: exactly one delivery has
an ending, it is the last, and the joined text of all deliveries does not depend on how they were cut.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from router_backend.core.effects import Close, Emit, Reason, TokenLogprobs, Usage
from router_backend.core.request import ModelIndex
from router_backend.stream.coalescer import Bundle, Coalescer
from router_backend.stream.commit_order import CommitOrder, Committed
from router_backend.stream.reader_credit import Credit, ReaderCredit
from router_backend.stream.stop_strings import StopStrings


class TextSource(Protocol):
    """Turns an answer's tokens into text, one after the other."""

    def step(self, token_id: int) -> str:
        """The text that is complete with this token and was not before; often empty."""
        ...

    def finish(self) -> str:
        """The text of what never became complete."""
        ...


@dataclass(frozen=True, slots=True)
class Terms:
    """How an answer is to be given."""

    max_tokens: int
    stop: tuple[str, ...] = ()
    stop_ids: frozenset[int] = frozenset()
    """Tokens that end the answer and have no text in it."""
    min_tokens: int = 0
    """A stop string that one of so many first tokens completes ends nothing."""
    logprobs: int | None = None
    """How many top tokens come with each token's log-probability; None = neither."""
    echo: str = ""
    """Put in front of the answer's text."""
    is_streaming: bool = False
    flush_tokens: int = 8
    flush_s: float = 0.02
    unsent_max: int = 256
    slow_reader_s: float = 30.0
    commits_late_s: float = 2.0
    """How long commits may still arrive after the close that counts them."""
    usage_late_s: float = 0.25
    """How long a stop string's ending waits for the aborted models to say what the answer cost."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How the answer ended. `output_tokens` counts committed tokens up to the one that completed a stop."""

    reason: Reason
    code: str = ""
    message: str = ""
    stop_text: str = ""
    output_tokens: int = 0
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class Delivery:
    """One response. `sources` has the model of each token, `logprobs` an entry for each or none at all."""

    text: str = ""
    token_ids: tuple[int, ...] = ()
    sources: tuple[ModelIndex, ...] = ()
    ending: Ending | None = None
    chars: tuple[int, ...] = ()
    """Characters of the answer per token. They divide the joined text of all deliveries behind the echo; what
    a stop string takes away is counted and not sent."""
    logprobs: tuple[TokenLogprobs, ...] = ()


class Answer:
    """One request's answer; every method returns the responses that became ready."""

    def __init__(self, terms: Terms, text: TextSource) -> None:
        self.is_finished = False
        self._terms = terms
        self._text = text
        self._order = CommitOrder(terms.max_tokens, terms.logprobs)
        self._stops = StopStrings(terms.stop)
        self._coalescer = Coalescer(terms.flush_tokens, terms.flush_s)
        self._credit = ReaderCredit(terms.unsent_max, terms.slow_reader_s)
        self._echo = terms.echo
        self._count = 0
        self._close: Close | None = None
        self._late_at = 0.0

    @property
    def is_closed(self) -> bool:
        """The subservers have ended the request themselves: there is nothing to abort."""
        return self._close is not None

    @property
    def wants_abort(self) -> bool:
        """A stop string has ended the text, but the models do not know yet."""
        return bool(self._stops.matched) and not self.is_closed

    @property
    def due_at(self) -> float:
        """When text that is here may leave; infinite if none is, or if nothing leaves before the end."""
        is_held = self._terms.is_streaming and not self.is_finished
        return self._coalescer.due_at if is_held else float("inf")

    def is_stranded(self, now: float) -> bool:
        """It was closed, but commits that the close counts never came."""
        is_open = self._close is not None and not self.is_finished and not self._stops.matched
        return is_open and now >= self._late_at

    def begin_again(self) -> list[int]:
        """Forget all but the tokens that came in order; returns those: another life begins with them."""
        self._close = None
        self._order.drop_ahead()
        return self._order.token_ids

    @property
    def output_tokens(self) -> int:
        return self._count

    def on_emit(self, emit: Emit, unsent: int, now: float) -> list[Delivery]:
        """Commits arrived; raises RemoteProtocolError where they cannot belong to this answer."""
        if self.is_finished or self._stops.matched:
            return []
        for token in self._order.add(emit):
            self._append(token)
            if self._stops.matched:
                return self._stopped(now)
        return self._settled() or self._flushed(unsent, now)

    def on_close(self, close: Close, now: float) -> list[Delivery]:
        """The subservers ended the request; commits may still be under way."""
        if self.is_finished or self.is_closed:
            return []
        self._close = close
        if self._stops.matched:
            return self.end(Reason.STOP)
        self._late_at = now + self._terms.commits_late_s
        if close.reason in (Reason.ERROR, Reason.CANCELLED):
            return self.end(close.reason, *split_code(close.message))
        return self._settled()

    def on_tick(self, unsent: int, now: float) -> list[Delivery]:
        """Time passed."""
        if self.is_finished:
            return []
        if self._stops.matched:
            return self.end(Reason.STOP) if now >= self._late_at else []
        if self._close is not None and self.is_stranded(now):
            missing = f"tokens {self._order.length}..{self._close.length} of the answer never arrived"
            return self.end(Reason.ERROR, "TR_PROTOCOL", missing)
        return self._flushed(unsent, now)

    def end(self, reason: Reason, code: str = "", message: str = "") -> list[Delivery]:
        """The last response, with all text that is safe to show; nothing after the first call."""
        if self.is_finished:
            return []
        self.is_finished = True
        self._coalescer.add_text(self._screened(self._text.finish()) + self._stops.finish())
        usage = self._close.usage if self._close else Usage()
        if self._stops.matched and reason is not Reason.CANCELLED:
            ending = Ending(Reason.STOP, "", "", self._stops.matched, self._count, usage)
        else:
            ending = Ending(reason, code, message, "", self._count, usage)
        return [_delivery(self._bundle(float("inf")), ending)]

    def _append(self, token: Committed) -> None:
        self._count += 1
        text = "" if token.token_id in self._terms.stop_ids else self._text.step(token.token_id)
        self._coalescer.add(self._screened(text), token, len(text))

    def _screened(self, text: str) -> str:
        """What of the latest token's `text` is safe to show."""
        if self._count <= self._terms.min_tokens:
            return self._stops.pass_over(text)
        return self._stops.feed(text)

    def _stopped(self, now: float) -> list[Delivery]:
        """The text is complete; only its price may be unknown."""
        if self.is_closed:
            return self.end(Reason.STOP)
        self._late_at = now + self._terms.usage_late_s
        has_text = self._terms.is_streaming and self._coalescer.due_at < float("inf")
        return [_delivery(self._bundle(now), None)] if has_text else []

    def _settled(self) -> list[Delivery]:
        if self._close is None or self._order.length < self._close.length:
            return []
        return self.end(self._close.reason)

    def _flushed(self, unsent: int, now: float) -> list[Delivery]:
        if not self._terms.is_streaming:
            return []
        credit = self._credit.observe(unsent, now)
        if credit is Credit.CANCEL:
            slow = f"{unsent} responses were not read for {self._terms.slow_reader_s:g} s"
            return self.end(Reason.CANCELLED, "TR_SLOW_READER", slow)
        if credit is Credit.HOLD or now < self._coalescer.due_at:
            return []
        return [_delivery(self._bundle(now), None)]

    def _bundle(self, now: float) -> Bundle:
        bundle = self._coalescer.take(now)
        echo, self._echo = self._echo, ""
        return bundle._replace(text=echo + bundle.text)


def _delivery(bundle: Bundle, ending: Ending | None) -> Delivery:
    return Delivery(bundle.text, bundle.token_ids, bundle.sources, ending, bundle.chars, bundle.logprobs)


def split_code(message: str) -> tuple[str, str]:
    """(stable machine code, rest) of an error message that starts with `TR_...: `."""
    code, colon, rest = message.partition(": ")
    if colon and code.startswith("TR_") and " " not in code:
        return code, rest
    return ("TR_ERROR" if message else ""), message
