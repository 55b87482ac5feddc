"""Run the scheduler without models: what-if, replay of a seed, the paper's schedule figure.

python -m tools.simulate --small-ms 6.0 --large-ms 27.9 --route-probability 0.35 --concurrency 8
python -m tools.simulate --replay SEED [MODELS [DROP_P [MODE [ON_PEER_LOSS]]]] [--replicas N,N...]
python -m tools.simulate --seeds 5000
python -m tools.simulate --figure [--threshold-3] [--plot OUT.svg]

It is the scheduler, gate, policy and messages of a server, on a clock that jumps. Models are step times.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from router_backend.core.errors import ConfigError
from router_backend.planner.latency import StepLatency
from router_backend.planner.profile import parse_profile
from router_backend.planner.routing import checked_probability
from router_backend.planner.system import checked_concurrency
from router_backend.scheduler.rounds import Mode
from router_backend.simulation.checkers import Violation
from router_backend.simulation.closed_loop import Load
from router_backend.simulation.scenario import Scenario, mortal_scenario, scenario
from router_backend.stream.lives import PeerLoss
from tools.simulated import figure, sweep
from tools.simulated.what_if import Answer, Question, answer, fast_answer
from tools.timeline.picture import draw
from tools.timeline.record import reasons_text

FAST_TOKENS, CORE_TOKENS = 5_000_000, 100_000
WARMUP_SHARE = 50
"""One token in so many is spent on warming up."""


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="python -m tools.simulate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what_if = result.add_argument_group("what-if run of a closed loop of N clients")
    add = what_if.add_argument
    add("--concurrency", type=int, metavar="N", help="requests that are live at a time")
    add("--small-ms", metavar="MS[,MS...]", help="step of the small model, by batch size from 1 on")
    add("--large-ms", metavar="MS[,MS...]", help="the same for the large model")
    add("--profile", type=Path, metavar="FILE", help="measured steps (tools.measure_steps) instead")
    add("--route-probability", type=float, metavar="P", help="small -> large; discards the small token")
    add("--return-probability", type=float, default=1.0, metavar="Q", help="large -> small (1: one token)")
    add("--mode", type=Mode, default=Mode.DELAYED, choices=list(Mode), metavar="MODE", help=_modes())
    add("--thresholds", type=int, nargs=2, metavar=("SMALL", "LARGE"), help="default: the planner's choice")
    add("--handoff-ms", type=float, default=0.0, metavar="MS", help="one message between the models (0)")
    add("--deadline-ms", type=float, default=float("inf"), metavar="MS", help="longest wait for a batch")
    add("--tokens", type=int, metavar="T", help=f"tokens in total ({CORE_TOKENS}, --fast {FAST_TOKENS})")
    add("--answer-tokens", type=int, default=256, metavar="T", help="tokens per request (256)")
    add("--seed", type=int, default=0, help="of all draws (0)")
    add("--fast", action="store_true", help="the planner's vectorised simulation instead of the core")
    others = result.add_argument_group("other jobs")
    add = others.add_argument
    add("--replay", nargs="+", metavar=("SEED", "OPTION"), help="trace of one random scenario, with checks")
    add("--replicas", metavar="N,N...", help="with --replay: of each model (one each)")
    add("--seeds", type=int, metavar="N", help="N random scenarios with faults of every kind, with checks")
    add("--first", type=int, default=0, metavar="SEED", help="with --seeds: the first one (0)")
    add("--figure", action="store_true", help="mean latencies of the paper's schedule figure, in seconds")
    add("--threshold-3", action="store_true", help="with --figure: also its variant that can hang")
    result.add_argument("--plot", type=Path, metavar="OUT", help="draw a timeline (.svg or .png)")
    result.add_argument("--json", action="store_true", help="print one JSON object")
    return result


def _modes() -> str:
    return " | ".join(mode.value for mode in Mode)


def main(argv: Sequence[str] | None = None) -> int:
    """0; 1 when a replayed seed fails; 2 for an option that cannot be used, with the reason on stderr."""
    options = parser().parse_args(argv)
    try:
        if options.replay:
            return _replay(options)
        if options.seeds is not None:
            return _sweep(options)
        return _figure(options) if options.figure else _what_if(options)
    except ConfigError as error:
        print(f"simulate: {error}", file=sys.stderr)
        return 2


def _what_if(options: argparse.Namespace) -> int:
    question = asked(options)
    if options.fast:
        if options.plot:
            raise ConfigError("--plot: --fast has no single batches to draw")
        found = fast_answer(question)
    else:
        found, timeline = answer(question)
        if options.plot:
            draw(options.plot, [timeline])
    print(json.dumps(as_document(found)) if options.json else as_text(found))
    return 0


def asked(options: argparse.Namespace) -> Question:
    """The question that the command line asks; ConfigError names the option that is wrong."""
    tokens = options.tokens or (FAST_TOKENS if options.fast else CORE_TOKENS)
    for flag in ("tokens", "answer_tokens"):
        if (getattr(options, flag) or 1) < 1:
            raise ConfigError(f"--{flag.replace('_', '-')}: must be at least 1")
    if options.handoff_ms < 0 or options.deadline_ms < 0:
        raise ConfigError("--handoff-ms and --deadline-ms: must be 0 or more")
    if options.thresholds and min(options.thresholds) < 1:
        raise ConfigError("--thresholds: must be at least 1")
    clients = checked_concurrency(int(_given(options.concurrency, "--concurrency")))
    load = Load(clients, options.answer_tokens, tokens, tokens // WARMUP_SHARE, options.seed)
    return Question(
        _latencies(options),
        checked_probability("route_probability", _given(options.route_probability, "--route-probability")),
        checked_probability("return_probability", options.return_probability),
        load,
        tuple(options.thresholds) if options.thresholds else None,
        options.mode,
        options.handoff_ms,
        options.deadline_ms,
    )


def _given(value: float | None, flag: str) -> float:
    if value is None:
        raise ConfigError(f"{flag}: missing")
    return value


def _latencies(options: argparse.Namespace) -> tuple[StepLatency, StepLatency]:
    if options.profile is None:
        return _listed("--small-ms", options.small_ms), _listed("--large-ms", options.large_ms)
    try:
        models = parse_profile(json.loads(options.profile.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(f"--profile: {options.profile}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"--profile: {options.profile} is not JSON: {error}") from error
    if len(models) != 2:
        raise ConfigError(f"--profile: 2 models are simulated, {options.profile} has {len(models)}")
    return models[0].latency, models[1].latency


def _listed(flag: str, text: str | None) -> StepLatency:
    """Step times by batch size from 1 on; the last difference goes on beyond, as in the planner."""
    if text is None:
        raise ConfigError(f"{flag}: missing (or --profile)")
    try:
        return StepLatency(tuple(enumerate(map(float, text.split(",")), 1)))
    except ValueError as error:
        raise ConfigError(f"{flag}: {error}") from error


def as_document(found: Answer) -> dict[str, object]:
    return {"simulated": True, **asdict(found), "tokens_per_wall_s": found.tokens_per_wall_s}


def as_text(found: Answer) -> str:
    name = ",".join(map(str, found.thresholds))
    lines = [f"{found.mode}, thresholds {name}, {found.n} requests ({found.method}, simulated)"]
    lines.append(f"throughput  {found.throughput:.2f} tok/s, predicted {_shown(found.predicted, '.2f')}")
    if found.ratio is not None:
        lines[-1] += f", ratio {found.ratio:.4f}"
    lines.append(
        f"token gap   p50 {_shown(found.gap_p50_ms, '.2f')} ms, p99 {_shown(found.gap_p99_ms, '.2f')} ms"
    )
    for model, batch in found.mean_batch.items():
        reasons = reasons_text(found.launches.get(model, {}))
        lines.append(f"{model:<12}mean batch {batch:.2f}; launches: {reasons}")
    rate = f"{found.tokens_per_wall_s:,.0f} tokens/s"
    lines.append(
        f"run         {found.tokens:,} tokens, {found.simulated_s:.1f} s, in {found.wall_s:.1f} s: {rate}"
    )
    return "\n".join(lines)


def _shown(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _figure(options: argparse.Namespace) -> int:
    means = figure.mean_latencies()
    stuck, drained = figure.with_threshold_3()
    if options.plot:
        draw(options.plot, figure.timelines(), "small steps")
    if options.json:
        document: dict[str, object] = {mode: float(mean) for mode, mean in means.items()}
        if options.threshold_3:
            without = {"hangs_at": stuck.at, "unended": stuck.unended}
            document["threshold_3"] = {"without_drain_rules": without, "with_drain_rules": float(drained)}
        print(json.dumps(document))
        return 0
    for mode, mean in means.items():
        print(f"{mode:<12}{mean!s:>6} = {float(mean):.4f}")
    left = " and ".join(stuck.unended)
    print(f"delayed, threshold 3: without drain rules it hangs at {stuck.at:g} with {left} unended;")
    print(f"                      with them {drained} = {float(drained):.4f}")
    return 0


def _replay(options: argparse.Namespace) -> int:
    """Print the trace of one scenario, what it was made of, and whether it passes."""
    found = _replayed(options.replay, options.replicas)
    cluster = found.cluster()
    verdict = "passes"
    try:
        found.finish(cluster)
    except (Violation, AssertionError) as error:
        verdict = f"fails at {cluster.now} s: {error!r}"
    print("\n".join(cluster.trace.lines()))
    print(found.deployment, found.faults, *found.requests, sep="\n")
    print(f"seed {found.arguments}: {verdict}; digest {cluster.trace.digest()}")
    return 0 if verdict == "passes" else 1


def _replayed(given: list[str], replicas: str | None) -> Scenario:
    try:
        seed, models, drop_p, mode, *choice = [*given, *("2", "0", "delayed")[len(given) - 1 :]]
        counts = _counts(replicas, int(models))
        if choice:
            return mortal_scenario(int(seed), int(models), float(drop_p), PeerLoss(*choice), counts)
        return scenario(int(seed), int(models), float(drop_p), Mode(mode), counts=counts)
    except (TypeError, ValueError) as error:
        message = f"--replay: SEED [MODELS [DROP_P [MODE [ON_PEER_LOSS]]]]: {error}"
        raise ConfigError(message) from error


def _counts(text: str | None, models: int) -> tuple[int, ...]:
    """Replicas of each model, as an option says it."""
    if text is None:
        return (1,) * models
    words = text.split(",")
    if len(words) != models or not all(word.isdecimal() and int(word) for word in words):
        raise ConfigError(f"--replicas: {text}: {models} models need {models} numbers from 1 on, as in 1,2")
    return tuple(map(int, words))


def _sweep(options: argparse.Namespace) -> int:
    """Run N seeds of the sweep; the first violations with the command that replays each."""
    if options.seeds < 1:
        raise ConfigError("--seeds: must be at least 1")
    found = sweep.run(range(options.first, options.first + options.seeds))
    print(json.dumps(asdict(found)) if options.json else sweep.as_text(found))
    return 1 if found.violations else 0


if __name__ == "__main__":
    sys.exit(main())
