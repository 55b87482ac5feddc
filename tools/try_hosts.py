"""What several hosts cost: the same requests on one host over sockets, over TCP with keys, and on two hosts.

    python -m tools.try_hosts --delay-ms 2 --loss 0.01

The second host is a network namespace of this machine behind a wire that delays and loses packets (it needs
root, iproute2 and /dev/net/tun). Models are scripted (2 ms per step): what differs is the way of the
messages. An answer is exact if it is the same text on every arrangement.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from tools.hosts.pair_of_hosts import FAR, NEAR, addresses, near_server, two_hosts, write_deployment
from tools.hosts.wire import Weather, Wire, WireError
from tools.triton_server import LOOPBACK, ServerError, TritonServer

PROMPT = "turn lift fold push spin flip roll bend turn lift fold push 42"
ANSWER_S_MAX = 300.0


@dataclass(frozen=True, slots=True)
class Load:
    clients: int = 8
    requests: int = 24
    tokens: int = 100


@dataclass(frozen=True, slots=True)
class Row:
    """One arrangement; `exact` of `requests` answers are those of the first arrangement."""

    arrangement: str
    requests: int
    exact: int
    tokens_per_s: float


def main(argv: Sequence[str] | None = None) -> int:
    """0; 1 when an answer differs; 2 when there can be no second host here, with the reason on stderr."""
    options = _parser().parse_args(argv)
    load = Load(options.clients, options.requests, options.tokens)
    weather = Weather(options.delay_ms / 1000.0, options.loss, options.seed)
    try:
        rows = measure(load, weather)
    except (WireError, ServerError) as error:
        print(f"try_hosts: {error}", file=sys.stderr)
        return 2
    print(json.dumps({"rows": [asdict(row) for row in rows]}) if options.json else as_text(rows))
    return 0 if all(row.exact == row.requests for row in rows) else 1


def measure(load: Load, weather: Weather) -> list[Row]:
    """Every arrangement in turn."""
    rows: list[Row] = []
    expected: list[str] = []
    for name, arrangement in (
        ("one host, sockets", one_host(is_tcp=False)),
        ("one host, TCP with keys", one_host(is_tcp=True)),
        (f"two hosts, {weather.delay_s * 1000:g} ms, {weather.loss_p:.0%} loss", apart(weather)),
    ):
        with arrangement as server:
            answers(server, Load(load.clients, load.clients, 4))
            began_at = time.monotonic()
            found = answers(server, load)
            took_s = time.monotonic() - began_at
        expected = expected or found
        exact = sum(text == wanted for text, wanted in zip(found, expected, strict=True))
        rows.append(Row(name, load.requests, exact, load.requests * load.tokens / took_s))
    return rows


@contextlib.contextmanager
def one_host(is_tcp: bool) -> Iterator[TritonServer]:
    with tempfile.TemporaryDirectory(prefix="tr-") as name:
        places = addresses(LOOPBACK, LOOPBACK) if is_tcp else {}
        deployment = write_deployment(Path(name) / "whole", places)
        with near_server(deployment, Path(name) / "near", (*NEAR, *FAR)) as server:
            yield server


@contextlib.contextmanager
def apart(weather: Weather) -> Iterator[TritonServer]:
    with (
        tempfile.TemporaryDirectory(prefix="tr-") as name,
        Wire(weather) as wire,
        two_hosts(wire, Path(name)) as server,
    ):
        yield server


def answers(server: TritonServer, load: Load) -> list[str]:
    """The text of each request, by seed."""
    with ThreadPoolExecutor(load.clients) as pool:
        return list(pool.map(lambda seed: _answer(server, seed, load.tokens), range(load.requests)))


def _answer(server: TritonServer, seed: int, tokens: int) -> str:
    body = {"text_input": PROMPT, "max_tokens": tokens, "ignore_eos": True, "seed": seed}
    connection = http.client.HTTPConnection(LOOPBACK, server.ports.http, timeout=ANSWER_S_MAX)
    try:
        connection.request("POST", "/v2/models/token_router/generate", json.dumps(body))
        found = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    return str(found.get("text_output", found))


def as_text(rows: Sequence[Row]) -> str:
    lines = [f"{'arrangement':<32}{'exact':>8}{'tokens/s':>10}"]
    for row in rows:
        lines.append(f"{row.arrangement:<32}{f'{row.exact}/{row.requests}':>8}{row.tokens_per_s:>10.1f}")
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.try_hosts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--delay-ms", type=float, default=2.0, help="of a packet, each way (2)")
    add("--loss", type=float, default=0.01, help="share of packets that are lost, each way (0.01)")
    add("--seed", type=int, default=0, help="of the losses (0)")
    add("--clients", type=int, default=8, help="requests at a time (8)")
    add("--requests", type=int, default=24, help="in total (24)")
    add("--tokens", type=int, default=100, help="per answer (100)")
    add("--json", action="store_true", help="print one JSON object")
    return parser


if __name__ == "__main__":
    sys.exit(main())
