"""Kills and freezes the large model of a real Triton under mixed load; says who got a wrong text, or no end.

    python -m tools.soak --minutes 10

It starts a server of its own (the demo pair, both doors, the supervisor of `make serve`), takes the right
text of every question, then asks without a break: short and long prompts, 1 to 200 tokens, HTTP streams,
whole HTTP answers and gRPC streams; a fifth of the clients go away at a random moment. The large model is
killed every minute and stopped once for twelve seconds. Exit status 1 if a verdict does not hold.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import Progress

from router_backend.core.errors import ConfigError
from tools.metrics_page import MetricsPageError, Sample, read
from tools.serving.admin import Admin, AdminError
from tools.soaking.deployment import REPOSITORY, Served, served
from tools.soaking.faults import Fault, Strike, Striker, schedule
from tools.soaking.load import Load, SoakError, needs, now_s, references
from tools.soaking.memory import Look, look
from tools.soaking.outcomes import Tally
from tools.soaking.report import Blocks, Findings, Rest, Setup, as_json, as_text, verdicts
from tools.soaking.work import demo_prompts, questions
from tools.triton_server import ServerError

STRUCK = "large"
LOOK_S = 1.0
QUIET_S = 1.5
QUIET_S_MAX = 60.0
"""After the last client has gone, the models have so long to free everything."""
UNDER_WAY = ("live_requests", "queued_requests", "open_streams", "live")


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do, for how long."""

    seconds: float
    clients: int
    questions: int
    kill_every_s: float
    on_peer_loss: str
    seed: int

    @property
    def faults(self) -> tuple[Fault, ...]:
        return schedule(self.seconds, self.kill_every_s)


def soak(plan: Plan) -> Findings:
    """On a server that lives as long as this call; SoakError, ServerError or ConfigError if there is none."""
    with contextlib.ExitStack() as life:
        found = life.enter_context(served(plan.on_peer_loss))
        asked = questions(demo_prompts(REPOSITORY / "demo_prompts.json"), plan.questions, plan.seed)
        known = references(found.server, asked)
        if not needs(found.server, STRUCK):
            raise SoakError(f"{STRUCK} answers nobody, though nothing was killed")
        began_at = time.monotonic()
        load = Load(found.server, known, plan.seed, Tally(began_at))
        strikes, looks = under_load(plan, found, load)
        rest = at_rest(found)
        said = [(round(at - began_at, 1), line) for at, line in found.said]
        left_out = len(asked) - len(known)
        setup = Setup(
            plan.seconds, plan.clients, plan.on_peer_loss, plan.seed, plan.faults, len(known), left_out
        )
        ending_at = time.monotonic()
        life.close()
        end_s = time.monotonic() - ending_at
        return Findings(setup, load.tally, strikes, looks, rest, said, end_s)


def under_load(plan: Plan, found: Served, load: Load) -> tuple[list[Strike], list[Look]]:
    """Clients, faults and a look at the memory every second, until time is up and the last are heard."""
    striker = Striker(found.server, STRUCK, lambda: needs(found.server, STRUCK))
    with ThreadPoolExecutor(plan.clients + 1) as pool:
        try:
            jobs = [pool.submit(load.client) for _ in range(plan.clients)]
            striking = pool.submit(striker.run, plan.faults, load.tally.began_at, load.over)
            looks = watched(plan.seconds, found, load.tally, [*jobs, striking])
        finally:
            load.over.set()
        for job in jobs:
            job.result()
        return striking.result(), looks


def watched(seconds: float, found: Served, tally: Tally, jobs: Sequence[Future[Any]]) -> list[Look]:
    """One look a second; ends early when the server or a client has ended by itself."""
    looks: list[Look] = []
    ticks = threading.Event()
    with progress(seconds) as bar:
        while now_s(tally.began_at) < seconds and found.server.is_alive:
            with contextlib.suppress(OSError):  # a process ended while it was looked at
                looks.append(look(found.server, STRUCK, now_s(tally.began_at)))
            bar.update(bar.task_ids[0], completed=now_s(tally.began_at))
            ticks.wait(LOOK_S)
            for job in (job for job in jobs if job.done() and job.exception()):
                job.result()
    if not found.server.is_alive:
        raise SoakError(f"tritonserver ended by itself\n{found.server.log_tail()}")
    if not looks:
        raise SoakError("the memory of the server could not be read")
    return looks


@contextlib.contextmanager
def progress(seconds: float) -> Iterator[Progress]:
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
        bar.add_task("Soaking", total=seconds)
        yield bar


def at_rest(found: Served) -> Rest:
    """What the metrics page says once every model is heard and it has stayed quiet; or at the bound."""
    until, quiet_since = time.monotonic() + QUIET_S_MAX, time.monotonic()
    rest, ticks = Rest({}, 1), threading.Event()
    while time.monotonic() < min(until, quiet_since + QUIET_S):
        ticks.wait(0.1)
        with contextlib.suppress(MetricsPageError, AdminError):  # the server is busy: look again
            rest = rest_of(read(found.server.metrics_url), found.blocks())
            ups = Admin(found.server.http_url, found.server.metrics_url).peers_up()
            if rest.under_way or not all(ups.get(name) for name in found.deployment.names):
                quiet_since = time.monotonic()
    return rest


def rest_of(samples: Sequence[Sample], totals: dict[str, int]) -> Rest:
    """From one metrics page; `totals` are the blocks that each model was given."""
    held = {
        (one.labels["model"], one.labels["owner"]): one.value for one in samples if one.name == "kv_blocks"
    }
    blocks = {
        name: Blocks(round(held.get((name, "free"), 0)), round(held.get((name, "cached"), 0)), total)
        for name, total in totals.items()
    }
    return Rest(blocks, round(sum(one.value for one in samples if one.name in UNDER_WAY)))


def main(argv: Sequence[str] | None = None) -> int:
    """0 when every verdict holds, 1 when one does not or the soak cannot be made."""
    options = _parser().parse_args(argv)
    plan = Plan(
        60.0 * options.minutes,
        options.clients,
        options.questions,
        options.kill_every_s,
        options.on_peer_loss,
        options.seed,
    )
    try:
        with ended_by_sigterm():
            findings = soak(plan)
    except (SoakError, ServerError, ConfigError) as error:
        print(f"soak: {error}", file=sys.stderr)
        return 1
    print(json.dumps(as_json(findings), indent=2) if options.json else as_text(findings))
    return 0 if all(one.holds for one in verdicts(findings)) else 1


@contextlib.contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the soak as Ctrl-C does, so that nothing stays behind."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--minutes", type=_positive, default=10.0, help="of load (default: %(default)s)")
    add("--clients", type=_count, default=6, help="requests at a time (default: %(default)s)")
    add("--questions", type=_count, default=40, help="different ones (default: %(default)s)")
    add("--kill-every-s", type=_positive, default=60.0, help="seconds between kills (default: %(default)s)")
    add(
        "--on-peer-loss", choices=("fail", "retry"), default="fail", help="(default: %(default)s, as shipped)"
    )
    add("--seed", type=int, default=0, help="of questions and requests (default: %(default)s)")
    add("--json", action="store_true", help="print one JSON object")
    return parser


def _positive(text: str) -> float:
    found = float(text)
    if not 0 < found < float("inf"):
        raise argparse.ArgumentTypeError(f"{text}: a time greater than 0 is needed")
    return found


def _count(text: str) -> int:
    found = int(text)
    if found < 1:
        raise argparse.ArgumentTypeError(f"{text}: at least one is needed")
    return found


if __name__ == "__main__":
    sys.exit(main())
