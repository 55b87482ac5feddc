"""One client's request in the front, from its arrival to its end."""

from __future__ import annotations

from dataclasses import dataclass

from python_backend.config import FrontSettings
from python_backend.loops.base import Ask, Finish, Piece, ResponsePort, Spell, reports
from python_backend.loops.front_counts import FrontCounts
from python_backend.loops.request_door import Ticket
from python_backend.loops.story import Story
from router_backend.core.errors import RouterError
from router_backend.core.replicas import ReplicaIndex
from router_backend.core.request import RequestId
from router_backend.stream.answer import Answer, Delivery, Terms
from router_backend.stream.lives import Lives, Start


@dataclass(slots=True, eq=False)
class OpenRequest:
    """Owned by the front loop. Has a ticket once it was read, an answer once it was started."""

    request_id: RequestId
    ask: Ask
    port: ResponsePort
    arrived_at: float
    deadline_at: float
    story: Story | None = None
    """Kept while requests are traced."""
    ticket: Ticket | None = None
    answer: Answer | None = None
    lives: Lives | None = None
    life: Start | None = None
    """What the subservers know it as; None before it started and between two lives."""
    subserver: ReplicaIndex | None = None
    """Where the life began."""
    loss: str = ""
    """How the last life was lost."""
    is_aborted: bool = False
    """The subservers were told that nobody wants it any more."""
    is_timed: bool = False
    """Somebody will look when its text is due."""
    last_token_at: float | None = None
    last_model: int | None = None
    routed: int = 0
    """Tokens by other models than the entry."""

    @property
    def prompt_tokens(self) -> int:
        return self.ticket.request.prompt_len if self.ticket else 0

    def note_start(self, now: float) -> None:
        if self.story is not None:
            self.story.started_at = now

    def observe_tokens(self, counts: FrontCounts, tokens: int, model: int, now: float) -> None:
        """So many new ones in order, the last by `model`."""
        if not tokens:
            return
        if self.last_token_at is None:
            counts.observe_first(now - self.arrived_at)
        else:
            counts.observe_gap(now - self.last_token_at, tokens, self.last_model != model)
        self.last_token_at = now
        self.last_model = model
        if self.story:
            self.story.add(model, tokens, now)

    def count_routed(self, sources: tuple[int, ...]) -> None:
        if self.ticket is not None:
            self.routed += sum(model != self.ticket.entry for model in sources)

    def is_in_life(self, epoch: int) -> bool:
        """Whether what is said of `epoch` concerns the present life."""
        return self.life is not None and self.life.request.epoch == epoch

    @property
    def seed(self) -> int | None:
        return self.ticket.request.sampling.seed if self.ticket else None

    def piece(self, delivery: Delivery, spell: Spell) -> Piece:
        return Piece(
            delivery.text,
            delivery.token_ids,
            delivery.sources,
            self.prompt_tokens,
            self._finish(delivery),
            delivery.chars,
            reports(delivery.token_ids, delivery.logprobs, spell),
        )

    def _finish(self, delivery: Delivery) -> Finish | None:
        ending = delivery.ending
        if ending is None:
            return None
        return Finish(
            ending.reason,
            ending.code,
            ending.message,
            ending.stop_text,
            self.prompt_tokens,
            ending.output_tokens,
            ending.usage.discarded,
            ending.usage.handoffs,
            self.seed,
        )


def terms_of(settings: FrontSettings, ask: Ask, ticket: Ticket) -> Terms:
    """How the answer to `ask` is to be given."""
    return Terms(
        max_tokens=ticket.request.max_tokens,
        stop=ticket.stop,
        stop_ids=ticket.request.stop_ids,
        min_tokens=ticket.request.sampling.min_tokens,
        logprobs=ticket.request.sampling.logprobs,
        echo=ticket.echo,
        is_streaming=ask.is_streaming,
        flush_tokens=settings.flush_tokens,
        flush_s=settings.flush_ms / 1000.0,
        unsent_max=settings.unsent_max,
        slow_reader_s=settings.slow_reader_s,
        commits_late_s=settings.peer_timeout_s,
    )


def explained(error: BaseException) -> tuple[str, str]:
    """(stable machine code, message) of what went wrong with a request."""
    if isinstance(error, RouterError):
        return error.code, str(error.args[0])
    return "TR_INTERNAL", f"{type(error).__name__}: {error}"
