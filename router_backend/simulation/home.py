"""The simulated front: it owns the clients and is told what was committed.

Puts commits in order and knows when an answer has ended: its one `Close` is here and so are all the
tokens that it counts, or the home gave up waiting. Commits nothing itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from router_backend.core.effects import Close, Emit
from router_backend.core.request import Request, RequestKey
from router_backend.handoff.codec import Message
from router_backend.stream.commit_order import CommitOrder, Committed
from router_backend.stream.lives import Lives, Start


@dataclass(slots=True)
class Answer:
    """What the client of one request has received; times in seconds."""

    request: Request
    opened_at: float
    order: CommitOrder
    tokens: list[Committed] = field(default_factory=list)
    token_times: list[float] = field(default_factory=list)
    close: Close | None = None
    ended_at: float | None = None
    is_given_up: bool = False
    lives: Lives | None = None
    """In a system whose models may die; `request` is the present life then, begun by `start`."""
    start: Start | None = None
    replica: int | None = None
    """The subserver that its present life began on."""

    @property
    def token_ids(self) -> list[int]:
        return [token.token_id for token in self.tokens]

    @property
    def latency_s(self) -> float:
        assert self.ended_at is not None, f"{self.request.request_id} has not ended"
        return self.ended_at - self.opened_at


@dataclass(slots=True)
class Home:
    """All answers, open or ended."""

    answers: dict[RequestKey, Answer] = field(default_factory=dict)
    late_messages: int = 0
    client_of: dict[RequestKey, RequestKey] = field(default_factory=dict)
    """The client's request by each of its lives."""

    @property
    def unended(self) -> list[RequestKey]:
        return [key for key, answer in self.answers.items() if answer.ended_at is None]

    def open(self, request: Request, now: float) -> None:
        self.answers[request.key] = Answer(
            request, now, CommitOrder(request.max_tokens, request.sampling.logprobs)
        )
        self.client_of[request.key] = request.key

    def of_life(self, life: RequestKey) -> Answer | None:
        """The answer whose present life this is; None for a former one."""
        answer = self.answers[self.client_of[life]]
        is_between = answer.lives is not None and answer.lives.is_between
        return answer if answer.request.key == life and not is_between else None

    def hear(self, message: Message, now: float) -> None:
        """A commit or an end, in any order, perhaps twice."""
        assert isinstance(message, Emit | Close), f"{message} is not for a home"
        answer = self.of_life(message.key)
        if answer is None or answer.ended_at is not None:
            self.late_messages += 1
            return
        if isinstance(message, Emit):
            released = answer.order.add(message)
            answer.tokens += released
            answer.token_times += [now] * len(released)
        elif answer.close is None:
            answer.close = message
        if answer.close is not None and len(answer.tokens) >= answer.close.length:
            answer.ended_at = now

    def give_up(self, key: RequestKey, now: float) -> None:
        """The deadline has passed and the end has not come: the client gets an error."""
        answer = self.answers[key]
        if answer.ended_at is None:
            answer.is_given_up = True
            answer.ended_at = now
