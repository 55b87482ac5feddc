"""What a client that does not read costs its neighbours: gaps in their streams, with and without it.

    python -m tools.bench_slow_reader [--neighbours 4] [--tokens 100000] [--seconds 5] [--repeat 3] [--json]

A real Triton, scripted engines of 1 ms per step, neighbours over gRPC. Windows of three kinds in turn: the
neighbours alone, beside one more client that reads, and beside one that asks for `--tokens` tokens and reads
none. The last two cost the same steps, so what differs between them is the reading alone. A gap is the time
between two responses of one answer; tokens that come together have none.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import grpc
import numpy as np
import yaml
from tritonclient.grpc import service_pb2, service_pb2_grpc

from router_backend.planner.latency import constant
from router_backend.scheduler.rounds import Mode
from tools.emulation.closed_loop import PROMPT, Client, ClosedLoopError, run_clients
from tools.emulation.deployment import DOOR, Setting, server_options
from tools.emulation.measure import gaps_s
from tools.emulation.pair import SCRIPT, EmulatedPair
from tools.triton_server import ServerError, ServerOptions, TritonServer

STEP_MS = 1.0
ANSWER = 200
"""Tokens of a neighbour's answer."""
WARM_UP_S = 0.5
KINDS = ("alone", "beside a reader", "beside a sleeper")


@dataclass(frozen=True, slots=True)
class Plan:
    neighbours: int
    tokens: int
    seconds: float
    repeat: int


@dataclass(frozen=True, slots=True)
class Row:
    """Gaps in the streams of the neighbours, in ms, over all windows of a kind."""

    kind: str
    gaps: int
    p50_ms: float
    p99_ms: float


def bench(plan: Plan) -> list[Row]:
    """ServerError or ClosedLoopError when it cannot be measured."""
    with (
        tempfile.TemporaryDirectory(prefix="tr-slow-") as name,
        TritonServer(options(plan, Path(name))) as server,
    ):
        gaps: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for _, kind in itertools.product(range(plan.repeat), KINDS):
            gaps[kind] += window(server.grpc_address, plan, kind)
    return [row(kind, gaps[kind]) for kind in KINDS]


def options(plan: Plan, folder: Path) -> ServerOptions:
    """The emulated pair with room for the long answer; text is gathered as in any deployment."""
    pair = EmulatedPair((constant(STEP_MS), constant(STEP_MS)), 0.3)
    found = server_options(Setting(pair, Mode.DELAYED, (1, 1)), folder / "run")
    script, deployment = found.repository / SCRIPT, found.repository / "deployment.yaml"
    length = 2 * plan.tokens
    script.write_text(json.dumps({**json.loads(script.read_text()), "length_max": length}))
    settings = yaml.safe_load(deployment.read_text())
    settings["models"] = [{**model, "kv_tokens": 2 * length} for model in settings["models"]]
    settings["front"] = {"tokenizer_dir": settings["front"]["tokenizer_dir"]}
    deployment.write_text(yaml.safe_dump(settings))
    return found


def window(address: str, plan: Plan, kind: str) -> list[float]:
    """Seconds between responses to the neighbours in one window."""
    clients = [Client(itertools.count(100 * k), ANSWER) for k in range(plan.neighbours)]
    extra = [Client(itertools.count(), plan.tokens)] if kind == KINDS[1] else []
    sleeping = sleeper(address, plan.tokens) if kind == KINDS[2] else contextlib.nullcontext()
    with sleeping:
        began_at = time.perf_counter() + WARM_UP_S
        asyncio.run(run_clients(address, [*clients, *extra], WARM_UP_S + plan.seconds))
    return [gap for client in clients for gap in gaps_s(client.arrivals, began_at) if gap]


def row(kind: str, gaps: Sequence[float]) -> Row:
    if not gaps:
        raise ClosedLoopError(f"{kind}: nothing came")
    p50, p99 = np.percentile(1000.0 * np.array(gaps), (50, 99))
    return Row(kind, len(gaps), float(p50), float(p99))


@contextlib.contextmanager
def sleeper(address: str, tokens: int) -> Iterator[None]:
    """Until the block ends, a stream of which nothing is read."""
    leave = threading.Event()

    def asks() -> Iterator[service_pb2.ModelInferRequest]:
        yield service_pb2.ModelInferRequest(
            model_name=DOOR,
            inputs=[
                _tensor("text_input", "BYTES", bytes_contents=[PROMPT.encode()]),
                _tensor("max_tokens", "INT32", int_contents=[tokens]),
                _tensor("stream", "BOOL", bool_contents=[True]),
            ],
        )
        leave.wait()

    with grpc.insecure_channel(address) as channel:
        call = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer(asks())
        try:
            yield
        finally:
            leave.set()
            call.cancel()


def _tensor(name: str, kind: str, **contents: object) -> service_pb2.ModelInferRequest.InferInputTensor:
    values = service_pb2.InferTensorContents(**contents)
    tensor = service_pb2.ModelInferRequest.InferInputTensor
    return tensor(name=name, datatype=kind, shape=[1], contents=values)


def as_text(rows: Sequence[Row]) -> str:
    """A table; the ratio is of the p99 to that of the neighbours alone."""
    lines = [f"{'neighbours':<18}{'gaps':>9}{'p50 ms':>9}{'p99 ms':>9}{'ratio':>8}"]
    for one in rows:
        ratio = one.p99_ms / rows[0].p99_ms
        lines.append(f"{one.kind:<18}{one.gaps:>9}{one.p50_ms:>9.2f}{one.p99_ms:>9.2f}{ratio:>8.2f}")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """0, or 1 when there is nothing to measure."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench_slow_reader",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--neighbours", type=int, default=4, help="clients that read (default: %(default)s)")
    add("--tokens", type=int, default=100_000, help="of the answer nobody reads (default: %(default)s)")
    add("--seconds", type=float, default=5.0, help="of one window (default: %(default)s)")
    add("--repeat", type=int, default=3, help="windows of each kind (default: %(default)s)")
    add("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args(argv)
    try:
        rows = bench(Plan(given.neighbours, given.tokens, given.seconds, given.repeat))
    except (ClosedLoopError, ServerError) as error:
        print(f"bench_slow_reader: {error}", file=sys.stderr)
        return 1
    print(json.dumps({"rows": [asdict(one) for one in rows]}) if given.json else as_text(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
