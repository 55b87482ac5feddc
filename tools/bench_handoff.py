"""What a hand-off between two model processes costs, beside a bare ZeroMQ message of the same size.

    python -m tools.bench_handoff [--json] [--concurrency 1 16] [--seconds 4]

Two processes, each with the real handoff loop, transport, codec and inboxes; only the schedulers are
stand-ins: each takes all hand-offs that wait, lets a step pass, and hands on in one go those that the small
model lets go (each with probability 0.35) or the large one returns (all). Measured is the time from the
decision (effects given to the handoff loop) to the peer's decode inbox. The floor is one PUSH/PULL message
of as many bytes between two processes that do nothing else, as far apart in time.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import zmq

from python_backend.loops.decode_loop import DecodeEvent
from python_backend.loops.handoff_loop import Address, Doors, HandoffLoop
from python_backend.loops.inbox import Inbox
from python_backend.roles.interpreter import settle
from python_backend.transport.unix_transport import UnixTransport
from python_backend.transport.zmq_transport import ZmqTransport
from router_backend.core.effects import Effect, Send
from router_backend.core.request import ModelIndex, RequestId
from router_backend.handoff.codec import pack
from router_backend.handoff.message import Beat, Handoff
from tools.awake import HELP, cores_awake

NAMES = ("small", "large")
TRANSPORTS = {"zmq": ZmqTransport, "unix": UnixTransport}
"""What a deployment uses comes last."""
SUFFIX = (101, 102, 103)
"""Tokens of a hand-off: what a peer missed since it last had the request."""
SENT_AT = "sent_at"
LEAVING_P = (0.35, 1.0)
"""How often a step lets a request go, by model."""
WARM_UP_SHARE = 0.2
Context = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True)
class Case:
    transport: str
    concurrency: int
    seconds: float
    step_ms: float


@dataclass(frozen=True, slots=True)
class Figure:
    """Microseconds."""

    p50_us: float
    p99_us: float
    floor_p50_us: float
    concurrency: int
    transport: str


class TimedInbox(Inbox[DecodeEvent]):
    """A decode inbox that notes how long each hand-off was under way when it is enqueued."""

    def __init__(self) -> None:
        super().__init__()
        self.latencies_us: list[float] = []

    def put_all(self, items: Sequence[DecodeEvent]) -> None:
        super().put_all(items)
        now = time.perf_counter()
        sent = [float(item.meta[SENT_AT]) for item in items if isinstance(item, Handoff)]
        self.latencies_us += [1e6 * (now - at) for at in sent]


def handoff(number: int, source: int, seq: int) -> Handoff:
    """Request `number` goes from model `source` to the other one."""
    loc = 100 + len(SUFFIX)
    target = ModelIndex(1 - source)
    name = RequestId(f"{number:032x}")
    return Handoff(name, 0, ModelIndex(source), target, seq, 100, SUFFIX, (loc, loc), meta={SENT_AT: 0.0})


def returned(arrived: Handoff, now: float) -> Send:
    """The same request on its way back, at `now`."""
    back = arrived.replaced(
        source=arrived.target, target=arrived.source, seq=arrived.seq + 1, meta={SENT_AT: now}
    )
    return Send(back.target, back)


def subserver(model: int, folder: Path, case: Case, results: Connection) -> None:
    """The process of one model; model 0 begins. Its latencies go to `results`."""
    settle()
    inbox = TimedInbox()
    transport = TRANSPORTS[case.transport](folder, NAMES[model])
    address = Address(Beat(NAMES[model], model, model), NAMES, heartbeat_s=0.25, peer_timeout_s=10.0)
    loop = HandoffLoop(address, transport, Doors(inbox, lambda effect: None), time.monotonic)
    thread = threading.Thread(target=loop.run)
    thread.start()
    if model == 0:
        inbox.put_all([handoff(number, source=1, seq=0) for number in range(case.concurrency)])
        inbox.latencies_us.clear()
    _bounce(loop, inbox, model, case)
    loop.stop()
    thread.join()
    transport.close()
    results.send(inbox.latencies_us)


def _bounce(loop: HandoffLoop, inbox: TimedInbox, model: int, case: Case) -> None:
    """Step and hand on until the time is over."""
    draws = random.Random(model)
    held: list[Handoff] = []
    give_up = time.monotonic() + case.seconds
    while time.monotonic() < give_up:
        if not held:
            inbox.wait(give_up)
        held += [event for event in inbox.drain() if isinstance(event, Handoff)]
        time.sleep(case.step_ms / 1000.0)
        leaving = [one for one in held if draws.random() < LEAVING_P[model]]
        held = [one for one in held if one not in leaving]
        now = time.perf_counter()
        effects: list[Effect] = [returned(one, now) for one in leaving]
        loop.perform(effects)


def echo(folder: Path, case: Case, results: Connection) -> None:
    """The receiving end of the floor."""
    latencies_us: list[float] = []
    with zmq.Context() as context, context.socket(zmq.PULL) as pull:
        pull.bind(f"ipc://{folder / 'floor'}")
        results.send([])  # listening: what was sent before would only have waited for this process to start
        while (message := pull.recv_multipart())[0]:
            latencies_us.append(1e6 * (time.perf_counter() - float(message[0])))
    results.send(latencies_us)


def _ping(folder: Path, case: Case) -> None:
    frames = [NAMES[0].encode(), *pack(handoff(0, 0, 0))]
    stamp = f"{time.perf_counter():.6f}".encode()
    body = b"".join(frames)[len(stamp) :]
    with zmq.Context() as context, context.socket(zmq.PUSH) as push:
        push.connect(f"ipc://{folder / 'floor'}")
        give_up = time.monotonic() + case.seconds
        while time.monotonic() < give_up:
            time.sleep(case.step_ms / 1000.0)
            push.send_multipart([f"{time.perf_counter():.6f}".encode(), body])
        push.send_multipart([b"", b""])


def floor_us(folder: Path, case: Case) -> list[float]:
    """One-way times of bare messages."""
    results, end = Context.Pipe(duplex=False)
    process = Context.Process(target=echo, args=(folder, case, end))
    process.start()
    results.recv()
    _ping(folder, case)
    return _collected([process], [results])


def handoffs_us(folder: Path, case: Case) -> list[float]:
    """One-way times of hand-offs, both directions."""
    pipes = [Context.Pipe(duplex=False) for _ in NAMES]
    processes = [
        Context.Process(target=subserver, args=(model, folder, case, end))
        for model, (_, end) in enumerate(pipes)
    ]
    for process in processes:
        process.start()
    return _collected(processes, [results for results, _ in pipes])


def _collected(
    processes: Sequence[multiprocessing.process.BaseProcess], pipes: Sequence[Connection]
) -> list[float]:
    """What the processes measured, without the first part of each."""
    found: list[float] = []
    for pipe in pipes:
        latencies: list[float] = pipe.recv()
        found += latencies[round(WARM_UP_SHARE * len(latencies)) :]
    for process in processes:
        process.join()
    return found


def measured(case: Case) -> Figure:
    with tempfile.TemporaryDirectory(prefix="bench_handoff-") as name:
        folder = Path(name)
        floor, found = floor_us(folder, case), handoffs_us(folder, case)
    p50, p99 = np.percentile(found, (50, 99))
    return Figure(float(p50), float(p99), float(np.median(floor)), case.concurrency, case.transport)


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="python -m tools.bench_handoff",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = result.add_argument
    add("--json", action="store_true", help="print JSON: the last row's figure, and all in `rows`")
    add("--concurrency", type=int, nargs="+", default=[1, 16], metavar="N", help="requests handed to and fro")
    add("--transport", choices=TRANSPORTS, nargs="+", default=list(TRANSPORTS), help="default: both")
    add("--keep-awake", action="store_true", help=HELP)
    add("--seconds", type=float, default=4.0, help="length of each measurement (default 4)")
    add("--step-ms", type=float, default=3.0, help="step of the stand-in schedulers (default 3)")
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Print one figure per concurrency, the target's last; 0."""
    options = parser().parse_args(argv)
    with cores_awake(options.keep_awake):
        figures = [
            measured(Case(transport, n, options.seconds, options.step_ms))
            for transport in options.transport
            for n in options.concurrency
        ]
    if options.json:
        print(json.dumps({**asdict(figures[-1]), "rows": [*map(asdict, figures)]}))
        return 0
    print(f"{'transport':<9}{'concurrency':>12}{'p50 us':>9}{'p99 us':>9}{'floor p50 us':>14}")
    for one in figures:
        print(
            f"{one.transport:<9}{one.concurrency:>12}{one.p50_us:>9.0f}{one.p99_us:>9.0f}{one.floor_p50_us:>14.0f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
