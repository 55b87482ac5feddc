"""The front as a process has it: its own threads, real sockets, a real tokenizer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from python_backend.config import Deployment
from python_backend.loops.base import Ask, Piece
from python_backend.roles.front import Front
from python_backend.transport.base import HandoffTransport, Peer
from python_backend.transport.directory import open_run_dir
from python_backend.transport.unix_transport import UnixTransport
from router_backend.core.effects import Close, Emit, Reason
from router_backend.core.errors import ConfigError
from router_backend.core.request import ModelIndex
from router_backend.handoff.codec import pack, unpack
from router_backend.handoff.message import Admit, Beat
from tests.unit.text.tokenizers_made_here import word_level

WAIT_S = 20.0


class Port:
    unsent = 0

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self._ended = threading.Event()

    def put(self, piece: Piece) -> None:
        self.pieces.append(piece)
        if piece.finish:
            self._ended.set()

    def wait(self) -> list[Piece]:
        assert self._ended.wait(WAIT_S), self.pieces
        return self.pieces


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    (tmp_path / "small" / "1").mkdir(parents=True)
    word_level().save(str(tmp_path / "small" / "1" / "tokenizer.json"))
    front = {"heartbeat_ms": 10, "peer_timeout_s": 60}
    settings = {"models": [{"name": "small"}], "policy": {"name": "fixed"}, "front": front}
    return Deployment.model_validate({**settings, "run_dir": str(tmp_path / "run")})


@pytest.fixture
def subserver(deployment: Deployment) -> Iterator[HandoffTransport]:
    transport = UnixTransport(open_run_dir(Path(deployment.run_dir)), "small")
    yield transport
    transport.close()


def serve_one(transport: HandoffTransport) -> None:
    """Play the model: beat until a request comes, answer it with two words."""
    beat = Beat("small", 1, 0, vocab_size=8, length_max=32, capacity_tokens=64, eos_ids=(2,))
    for _ in range(int(WAIT_S / 0.02)):
        transport.post(Peer("front"), pack(beat))
        for _, frames in transport.poll(0.02):
            message = unpack(frames)
            if isinstance(message, Admit):
                key = message.request.key
                transport.post(Peer("front"), pack(Emit("front", *key, 0, (3, 7, 2), ModelIndex(0))))
                transport.post(Peer("front"), pack(Close("front", *key, Reason.STOP, 3)))
                return


def until_up(front: Front, transport: HandoffTransport) -> None:
    """Beat until the front has heard it."""
    beat = Beat("small", 1, 0, vocab_size=8, length_max=32, capacity_tokens=64)
    for _ in range(int(WAIT_S / 0.02)):
        transport.post(Peer("front"), pack(beat))
        transport.poll(0.02)
        if front.picture().is_ready:
            return


def test_a_front_serves_a_client_over_real_sockets(
    deployment: Deployment, subserver: HandoffTransport, tmp_path: Path
) -> None:
    front = Front(deployment, tmp_path, "front")
    front.start()
    port = Port()
    try:
        until_up(front, subserver)
        front.submit(Ask(text="s0 r1 :"), port)
        serve_one(subserver)
        (piece,) = port.wait()
        assert (piece.text, piece.token_ids, piece.prompt_tokens) == ("s0 17", (3, 7, 2), 3)
        cancelled = Port()
        front.cancel(front.submit(Ask(text="s0"), cancelled))
        assert cancelled.wait()[-1].finish
    finally:
        front.stop(1.0)
    assert not front.is_running
    assert front.snapshot()['requests_total{finished="stop"}'] == 1
    late = Port()
    front.submit(Ask(text="s0"), late)
    assert late.wait()[0].finish


def test_a_front_that_stops_tells_its_clients(
    deployment: Deployment, subserver: HandoffTransport, tmp_path: Path
) -> None:
    front = Front(deployment, tmp_path, "front")
    front.start()
    until_up(front, subserver)
    ports = [Port() for _ in range(8)]
    for port in ports:
        front.submit(Ask(text="s0"), port)
    front.stop(0.05)
    codes = {port.wait()[-1].finish.code for port in ports}  # type: ignore[union-attr]
    assert codes == {"TR_SHUTDOWN"}


def test_a_front_that_never_started_can_be_stopped(deployment: Deployment, tmp_path: Path) -> None:
    Front(deployment, tmp_path, "front").stop()
    assert not (tmp_path / "run" / "front.ipc").exists()


def test_a_front_without_a_tokenizer_does_not_start(deployment: Deployment, tmp_path: Path) -> None:
    settings = {**deployment.model_dump(), "front": {"tokenizer_dir": "away"}}
    away = Deployment.model_validate(settings)
    with pytest.raises(ConfigError, match=r"away/tokenizer.json: No such file"):
        Front(away, tmp_path, "front")
