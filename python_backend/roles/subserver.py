"""The composition root of one model's process: engine, scheduler, three loops, transport.

Builds the parts, starts them, stops them in reverse. Must never decide about a request. The
invariant: when a loop ends by an error, the whole subserver stops being one: its requests are
closed with an error, its door refuses, and it beats no more, so that homes and peers notice.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from python_backend.agreement import Agreement
from python_backend.config import Deployment
from python_backend.loops.base import Ask, ResponsePort
from python_backend.loops.client_loop import ClientLoop
from python_backend.loops.decode_loop import BROKEN, DecodeEvent, DecodeLoop
from python_backend.loops.event_log import EventLog, Step
from python_backend.loops.handoff_loop import Address, Doors, HandoffLoop
from python_backend.loops.inbox import Inbox
from python_backend.loops.planning_loop import PlanningLoop
from python_backend.loops.stopwatch import Stopwatch
from python_backend.loops.token_request import TokenDoor
from python_backend.roles.adapting import Adapting
from python_backend.roles.agreeing import read_agreement
from python_backend.roles.connecting import open_transport
from python_backend.roles.engine import build_runner
from python_backend.roles.samples import Figures
from python_backend.roles.subserver_figures import Gauged
from python_backend.runner.base import ModelRunner, RunnerInfo
from python_backend.transport.base import HandoffTransport
from router_backend.core.replicas import ReplicaIndex
from router_backend.core.request import RequestId
from router_backend.handoff.message import Beat
from router_backend.scheduler.scheduler import Scheduler
from router_backend.scheduler.settings import SchedulerSettings

_log = logging.getLogger(__name__)

JOIN_S = 10.0

_Loop = HandoffLoop | ClientLoop | DecodeLoop | EventLog | PlanningLoop

class Subserver:
    """One model, or one replica of it.

    `start` before anything else, `stop` once; `ask`, `cancel`, `snapshot` from any thread.
    """

    def __init__(
        self,
        deployment: Deployment,
        name: str,
        runner: ModelRunner,
        transport: HandoffTransport,
        agreement: Agreement | None = None,
    ) -> None:
        """Without an `agreement`, what the runner says of itself holds for all models."""
        clock = time.monotonic
        agreed = agreement or Agreement(runner.info.vocab_size, runner.info.eos_ids)
        self.name = name
        self._clock = clock
        self.info = runner.info
        self._runner = runner
        self._transport = transport
        policies = Stopwatch(clock)
        self._scheduler = _scheduler(deployment, name, runner.info, agreed, policies)
        self._failure = threading.Event()
        self._snapshot: Figures = MappingProxyType({})
        instance = secrets.randbits(48)
        inbox: Inbox[DecodeEvent] = Inbox(clock=clock)
        door = _door(deployment, name, instance, self._scheduler.settings.tokens_max, runner.info)
        self._client = ClientLoop(door, inbox, clock)
        address = _address(deployment, name, instance, runner.info)
        self._adapting = Adapting(deployment, self._scheduler.settings.subserver, inbox, clock)
        doors = Doors(inbox, self._client.deliver, self._adapting.hear)
        self._handoff = HandoffLoop(address, transport, doors, clock)
        self._adapting.perform = self._handoff.perform
        self._decode = DecodeLoop(self._scheduler, runner, inbox, self._handoff.perform, clock)
        parts = (self._scheduler, self._decode, self._handoff, self._client, policies)
        self._gauged = Gauged(deployment.names, *parts)
        self._decode.publish = self._publish
        self._handoff.is_progressing = lambda: self._decode.busy_s() < deployment.front.stall_s
        self._decode.held = lambda: self._scheduler.roster.queues
        self._decode.farewells = self._scheduler.roster.farewells
        loops: list[_Loop] = [self._handoff, self._client, self._decode]
        notes: list[Callable[[Step], None]] = [self._adapting.note] if self._adapting.is_on else []
        if self._adapting.planning is not None:
            loops.append(self._adapting.planning)
        if deployment.event_log:
            number = self._scheduler.settings.subserver
            event_log = EventLog(Path(deployment.event_log), deployment.subservers, number)
            notes.append(event_log.note)
            loops.insert(0, event_log)
        self._decode.note = _one_of(notes)
        self._threads = {loop: self._thread(loop) for loop in loops}

    @property
    def is_healthy(self) -> bool:
        """False from the moment a loop ended by an error."""
        return not self._failure.is_set()

    def start(self) -> None:
        for thread in self._threads.values():
            thread.start()

    def stop(self) -> None:
        """Close what is open with an error, end the loops, free the engine and the socket."""
        for loop, thread in reversed(self._threads.items()):
            loop.stop()
            thread.join(JOIN_S)
            if thread.is_alive():
                _log.critical("%s does not end: leaving its engine and socket to the system", thread.name)
                return
        self._runner.close()
        self._transport.close()

    def ask(self, ask: Ask, port: ResponsePort) -> RequestId:
        """See `ClientLoop.ask`."""
        return self._client.ask(ask, port)

    def cancel(self, request_id: RequestId) -> None:
        self._client.cancel(request_id)

    def snapshot(self) -> Figures:
        """The figures of a moment at most some tenths of a second ago; never changes once returned.

        Counters and gauges of the scheduler by their own names, `launches` by reason, `kv_blocks` by
        owner, distributions, errors, traffic, and peers that are up.
        """
        return self._snapshot

    @property
    def stalled_s(self) -> float:
        """How long something has been there to run and no step has ended."""
        return self._decode.figures.stalled_s(self._clock())

    def _thread(self, loop: _Loop) -> threading.Thread:
        name = f"{self.name} {type(loop).__name__}"
        return threading.Thread(target=self._guard, args=(loop,), name=name, daemon=True)

    def _guard(self, loop: _Loop) -> None:
        """Run a loop; if it ends by an error, the error goes to the log and the subserver stops serving."""
        is_clean = False
        try:
            loop.run()
            is_clean = True
        finally:
            if not is_clean:
                self._break_down()

    def _break_down(self) -> None:
        _log.critical("%s stops serving: a loop ended by an error", self.name)
        self._decode.stop()
        self._client.fail(BROKEN)
        self._handoff.stop()
        self._failure.set()

    def _publish(self) -> None:
        self._adapting.report(len(self._scheduler.roster.live))
        self._snapshot = MappingProxyType(
            self._gauged.picture(self._clock())
            | {"peers_refused": self._transport.refused}
            | self._adapting.figures()
        )


def build_subserver(
    deployment: Deployment, name: str, repository: Path, environment: Mapping[str, str]
) -> Subserver:
    """The subserver `name` in a server's process: real engine, the deployment's transport."""
    agreement = read_agreement(deployment, repository)
    runner = build_runner(deployment, name, repository, agreement)
    paths = {key: getattr(deployment, key) for key in ("event_log", "profile")}
    placed = {key: str(repository / path) for key, path in paths.items() if path}
    transport = open_transport(deployment, repository, name, environment)
    return Subserver(deployment.model_copy(update=placed), name, runner, transport, agreement)


def _one_of(notes: list[Callable[[Step], None]]) -> Callable[[Step], None]:
    def note(step: Step) -> None:
        for each in notes:
            each(step)

    return note


def _scheduler(
    deployment: Deployment, name: str, info: RunnerInfo, agreed: Agreement, policies: Stopwatch
) -> Scheduler:
    model, index = deployment.served(name), deployment.model_of(name)
    replicas, number = deployment.replicas, ReplicaIndex(deployment.subservers.index(name))
    settings = SchedulerSettings(
        model=index,
        thresholds=deployment.standing_thresholds,
        num_blocks=info.num_blocks,
        block_size=info.block_size,
        length_max=info.length_max,
        batch_max=model.batch_max,
        batch_tokens_max=model.batch_tokens_max,
        deadline_s=deployment.deadline_ms / 1000.0,
        mode=deployment.mode,
        draft_max=info.draft_max,
        parked_kv_max=model.parked_kv_max,
        counts=replicas.counts,
        replica=replicas.of(index).index(number),
    )
    book = agreed.book(deployment, index)
    book.wrap = policies.router
    return Scheduler(settings, book)


def _address(deployment: Deployment, name: str, instance: int, info: RunnerInfo) -> Address:
    beat = Beat(
        endpoint=name,
        instance=instance,
        model=deployment.model_of(name),
        vocab_size=info.vocab_size,
        length_max=info.length_max,
        capacity_tokens=info.num_blocks * info.block_size,
        eos_ids=tuple(sorted(info.eos_ids)),
    )
    front = deployment.front
    subservers, models = deployment.subservers, len(deployment.models)
    return Address(beat, subservers, front.heartbeat_ms / 1000.0, front.peer_timeout_s, models)


def _door(deployment: Deployment, name: str, instance: int, tokens_max: int, info: RunnerInfo) -> TokenDoor:
    front = deployment.front
    open_max = front.live_max + front.queue_max
    return TokenDoor(
        name, instance, info, tokens_max, front.max_tokens_default, open_max, front.request_timeout_s
    )
