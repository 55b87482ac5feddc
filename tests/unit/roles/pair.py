"""Two real subservers in one process with scripted engines, and a home that collects what they commit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from python_backend.config import Deployment, parse_deployment
from python_backend.loops.base import Piece
from python_backend.roles.subserver import Subserver
from python_backend.runner.base import ModelRunner
from python_backend.runner.scripted_runner import Script, ScriptedRunner, ScriptedSettings
from python_backend.transport.base import HandoffTransport, Peer
from python_backend.transport.directory import open_run_dir
from python_backend.transport.loopback_transport import LoopbackNetwork
from python_backend.transport.unix_transport import UnixTransport
from router_backend.core.effects import Close, Emit
from router_backend.core.request import PolicySpec, Request, RequestId, Sampling
from router_backend.handoff.codec import Message, messages_of, pack, unpack
from router_backend.handoff.message import Beat

BOUND_S = 20.0
CUTOFF = 0.5
STITCHED = PolicySpec("r_stitch", (("cutoff", CUTOFF),))
ALONE = PolicySpec("fixed", (("mode", "never"),))
SMALL = Script(vocab_size=1000, salt=1, uncertain_p=0.35)
LARGE = Script(vocab_size=1000, salt=2, uncertain_p=0.5)

Maker = Callable[[str], HandoffTransport]


def deployment(peer_timeout_s: float = 10.0) -> Deployment:
    return parse_deployment(
        "models: [{name: small, kv_tokens: 4096}, {name: large, kv_tokens: 4096}]\n"
        "deadline_ms: 5\n"
        f"front: {{heartbeat_ms: 20, peer_timeout_s: {peer_timeout_s}}}\n",
        "tests",
    )


def engine(script: Script, model: int) -> ScriptedRunner:
    return ScriptedRunner(ScriptedSettings(script, model, num_blocks=256, block_size=16))


def zmq_maker(folder: Path) -> Maker:
    opened = open_run_dir(folder)
    return lambda name: UnixTransport(opened, name)


def loopback_maker(network: LoopbackNetwork) -> Maker:
    return network.endpoint


def until(condition: Callable[[], object], what: str) -> None:
    """Waits for `condition`; fails after a bound."""
    give_up, pause = time.monotonic() + BOUND_S, threading.Event()
    while not condition():
        assert time.monotonic() < give_up, f"waited {BOUND_S} s for {what}"
        pause.wait(0.002)


@dataclass
class Port:
    """A client of a subserver's own door."""

    pieces: list[Piece] = field(default_factory=list)
    unsent: int = 0

    def put(self, piece: Piece) -> None:
        self.pieces.append(piece)

    @property
    def is_finished(self) -> bool:
        return any(piece.finish for piece in self.pieces)


class Home:
    """A front without clients: beats, posts, and sorts what arrives by request."""

    def __init__(self, transport: HandoffTransport, name: str = "front") -> None:
        self.beats: list[Beat] = []
        self.emits: dict[RequestId, list[Emit]] = {}
        self.closes: dict[RequestId, list[Close]] = {}
        self._transport = transport
        self._beat = Beat(name, instance=1)
        self._beat_at = 0.0

    def close(self) -> None:
        self._transport.close()

    def tell(self, endpoint: str, message: Message) -> None:
        assert self._transport.post(Peer(endpoint), pack(message))

    def listen(self) -> None:
        if time.monotonic() > self._beat_at + 0.02:
            self._beat_at = time.monotonic()
            for endpoint in ("small", "large"):
                self.tell(endpoint, self._beat)
        letters = self._transport.poll(0.005)
        for sender, frames in ((sender, each) for sender, letter in letters for each in messages_of(letter)):
            message = unpack(frames)
            if isinstance(message, Beat):
                assert sender == message.endpoint
                self.beats.append(message)
            elif isinstance(message, Emit):
                self.emits.setdefault(message.request_id, []).append(message)
            elif isinstance(message, Close):
                self.closes.setdefault(message.request_id, []).append(message)

    def listen_until(self, condition: Callable[[], object], what: str) -> None:
        give_up = time.monotonic() + BOUND_S
        while not condition():
            assert time.monotonic() < give_up, f"listened {BOUND_S} s for {what}"
            self.listen()

    def wait_for_close(self, request_id: RequestId) -> Close:
        """The request's close, and no second one; all its tokens are there when it returns."""
        self.listen_until(lambda: request_id in self.closes, f"the end of {request_id}")
        (close,) = self.closes[request_id]
        if close.reason.value != "error":
            self.listen_until(lambda: len(self.tokens(request_id)) >= close.length, "the last commits")
        return close

    def tokens(self, request_id: RequestId) -> list[tuple[int, int]]:
        """(token, model) in order of position; commits must tile the answer."""
        emits = sorted(self.emits.get(request_id, []), key=lambda emit: emit.position)
        tokens = [(token, int(emit.model)) for emit in emits for token in emit.token_ids]
        starts = [emit.position for emit in emits]
        assert len(set(starts)) == len(starts), f"a position was committed twice: {starts}"
        return tokens


def open_pair_of(
    make: Maker, runners: tuple[ModelRunner, ModelRunner], peer_timeout_s: float = 10.0
) -> Pair:
    """Subservers `small` and `large` on transports of `make`, and their home."""
    settings = deployment(peer_timeout_s)
    named = zip(settings.names, runners, strict=True)
    subservers = [Subserver(settings, name, runner, make(name)) for name, runner in named]
    return Pair(subservers, Home(make("front")))


class Pair:
    """The subservers that live in this process, started, and a home."""

    def __init__(self, subservers: list[Subserver], home: Home) -> None:
        self.subservers = subservers
        self.home = home
        for subserver in subservers:
            subserver.start()

    @property
    def small(self) -> Subserver:
        return self.subservers[0]

    @property
    def large(self) -> Subserver:
        return self.subservers[1]

    def figure(self, name: str) -> list[float]:
        """One figure of both, as last published."""
        return [subserver.snapshot().get(name, 0) for subserver in self.subservers]  # type: ignore[misc]

    def settle(self) -> None:
        """Waits until neither holds anything of any request, by figures taken from now on."""
        names = ("live", "ready", "executing", "parked")
        stale = [subserver.snapshot() for subserver in self.subservers]

        def is_settled() -> bool:
            pairs = zip(self.subservers, stale, strict=True)
            is_fresh = all(subserver.snapshot() is not old for subserver, old in pairs)
            return is_fresh and not any(sum(self.figure(name)) for name in names)

        self.home.listen_until(is_settled, "both to be empty")

    def stop(self) -> None:
        for subserver in reversed(self.subservers):
            subserver.stop()
        self.home.close()


def ask_stitched(name: str, seed: int, max_tokens: int = 40, policy: PolicySpec = STITCHED) -> Request:
    return Request(RequestId(name), (1, 2, 3), max_tokens, sampling=Sampling(seed=seed), policy=policy)


def expected_answer(request: Request, small: ScriptedRunner, large: ScriptedRunner) -> list[tuple[int, int]]:
    """R-Stitch written down plainly, one token after the other: (token, model)."""
    seed, answer, is_large = request.sampling.seed, [], False
    for position in range(request.prompt_len, request.length_max):
        if not is_large and small.is_uncertain_at(seed, position):
            is_large = True
        writer = large if is_large else small
        answer.append((writer.token_at(seed, position), int(is_large)))
        if is_large and not large.is_uncertain_at(seed, position):
            is_large = False
    return answer
