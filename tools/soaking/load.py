"""The clients of a soak: right texts before the faults, then a closed loop of requests until it is over."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tools.soaking.asking import Heard, Place, ask
from tools.soaking.outcomes import Fate, Tally
from tools.soaking.work import Asked, Question, Way, asked
from tools.triton_server import TritonServer

TOLD_PAUSE_S = 0.25
"""A client that was told of a failure comes back after this, or it would ask thousands of times in vain."""
TOGETHER = 4
PROBE_S = 3.0
"""A probe that was asked before the loss was noticed may hang until its deadline: another one is asked."""
PROBE = Question("turn lift fold push spin flip roll bend turn lift fold push 42", 4, 0.0)


class SoakError(Exception):
    """The soak cannot be made; the message says why."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A question with its right text, and how long that took when nothing else ran."""

    question: Question
    text: str
    took_s: float


def place(server: TritonServer, door: str = "token_router") -> Place:
    return Place(server.ports.http, server.ports.grpc, door)


def references(server: TritonServer, questions: Sequence[Question]) -> list[Reference]:
    """Each question's text, asked for alone; questions whose text is another one among others are left out:
    two candidates lie so close there that the order of a sum decides."""
    alone = [_whole(server, question) for question in questions]
    with ThreadPoolExecutor(TOGETHER) as pool:
        again = list(pool.map(lambda question: _whole(server, question), questions))
    found = [
        Reference(question, one.text, one.ended_at - one.asked_at)
        for question, one, other in zip(questions, alone, again, strict=True)
        if one.text == other.text
    ]
    if not found:
        raise SoakError("no question has the same answer twice, though nothing was killed")
    return found


def _whole(server: TritonServer, question: Question) -> Heard:
    heard = ask(place(server), Way.HTTP_WHOLE, question.tensors())
    if heard.error or heard.ends != 1:
        raise SoakError(f"before any fault: {heard.error or 'no answer'}")
    return heard


def needs(server: TritonServer, model: str) -> bool:
    """Whether a request that only `model` may write is answered now."""
    alone = {"routing_algorithm": "fixed", "routing_config": f'{{"mode": "never", "entry": "{model}"}}'}
    heard = ask(place(server), Way.HTTP_WHOLE, {**PROBE.tensors(), **alone}, PROBE_S)
    return heard.ends == 1 and not heard.error and bool(heard.text)


@dataclass(slots=True)
class Load:
    """What all clients of one soak share."""

    server: TritonServer
    references: Sequence[Reference]
    seed: int
    tally: Tally
    over: threading.Event = field(default_factory=threading.Event)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def client(self) -> None:
        """Ask, one request after the other, until it is over; the last one is heard to its end."""
        while not self.over.is_set():
            with self._turn:
                number = next(self._numbers)
            request = asked(number, len(self.references), self.seed)
            reference = self.references[request.question]
            heard = self._heard(request, reference)
            with self._turn:
                outcome = self.tally.count(request, heard, reference.text)
            if outcome.fate is Fate.TOLD:
                self.over.wait(TOLD_PAUSE_S)

    def _heard(self, request: Asked, reference: Reference) -> Heard:
        leave_s = None if request.leave_after is None else request.leave_after * reference.took_s
        return ask(place(self.server, request.door), request.way, reference.question.tensors(), leave_s)


def now_s(began_at: float) -> float:
    return time.monotonic() - began_at
