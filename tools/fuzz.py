"""Throws damaged input at every way into the system and reports whatever is not a typed error.

Targets: `codec` (damaged frames of every message), `request` (damaged tensors and parameters at each
door), `handoff` (damaged fields in the talk of two working schedulers). Trial n of a seed is always the
same: `--only n` replays it with its traceback. With `--atheris` the codec is fuzzed by coverage
instead, where that package is installed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from python_backend.text.tokenizer import load_tokenizer
from tools.fuzzing.base import Findings, Target, fuzz
from tools.fuzzing.codec_target import CodecTarget, outcome_of_bytes
from tools.fuzzing.handoff_target import HandoffTarget
from tools.fuzzing.request_target import RequestTarget
from tools.soaking.memory import MIB

TOKENIZER = Path(__file__).resolve().parent.parent / "model_repository" / "small" / "1"
TARGETS = ("codec", "request", "handoff")


def target(name: str, tokenizer: Path = TOKENIZER) -> Target:
    """The target by its name; `tokenizer` is the model directory behind the text doors."""
    if name == "request":
        return RequestTarget(load_tokenizer(tokenizer))
    return CodecTarget() if name == "codec" else HandoffTarget()


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0 when every trial ended as it may, 1 otherwise."""
    options = _parser().parse_args(argv)
    if options.atheris:
        return _with_atheris(options.runs)
    numbers = range(options.runs) if options.only is None else [options.only]
    findings = fuzz(target(options.target, options.tokenizer), numbers, options.seed)
    print(json.dumps(_summary(options, findings)) if options.json else _table(options, findings))
    return 1 if findings.faults else 0


def _summary(options: argparse.Namespace, findings: Findings) -> dict[str, object]:
    return {
        "target": options.target,
        "runs": findings.trials,
        "seed": options.seed,
        "seconds": round(findings.seconds, 1),
        "slowest_ms": round(1000 * findings.slowest_s, 1),
        "rss_mib": [round(size / MIB, 1) for size in (findings.warm_bytes, findings.end_bytes)],
        "rows": findings.rows(),
    }


def _table(options: argparse.Namespace, findings: Findings) -> str:
    lines = [
        f"{options.target}: {findings.trials} trials of seed {options.seed} in {findings.seconds:.1f} s, "
        f"the slowest took {1000 * findings.slowest_s:.1f} ms",
        f"resident memory {findings.warm_bytes / MIB:.1f} MiB after a tenth of them, "
        f"{findings.end_bytes / MIB:.1f} MiB at the end",
    ]
    lines += [f"{count:9d}  {word}" for word, count in findings.outcomes.most_common()]
    for fault in findings.faults.values():
        again = f"python -m tools.fuzz --target {options.target} --seed {options.seed} --only {fault.number}"
        lines += [f"FAULT {fault.what}", f"  replay: {again}"]
        lines += [fault.detail] if options.only is not None else []
    return "\n".join(lines)


def _with_atheris(runs: int) -> int:
    """Coverage-guided, until a fault or the end; the package's own exit."""
    try:
        atheris = importlib.import_module("atheris")
    except ImportError:
        print("atheris is not installed: pip install atheris (or leave --atheris out)", file=sys.stderr)
        return 1
    _run_atheris(atheris, runs)
    return 0


def _take(data: bytes) -> None:
    outcome_of_bytes(data)


def _run_atheris(atheris: ModuleType, runs: int) -> None:
    atheris.Setup(["tools.fuzz", f"-runs={runs}"], _take)
    atheris.Fuzz()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz", description=__doc__)
    parser.add_argument("--target", choices=TARGETS, default="codec", help="what to throw at (default codec)")
    parser.add_argument("--runs", type=int, default=10_000, help="how many trials (default 10000)")
    parser.add_argument("--seed", type=int, default=0, help="which trials (default 0)")
    parser.add_argument("--only", type=int, help="run this one trial and show its traceback")
    parser.add_argument("--tokenizer", type=Path, default=TOKENIZER, help="model directory (request target)")
    parser.add_argument("--atheris", action="store_true", help="codec only: guided by coverage")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


if __name__ == "__main__":
    sys.exit(main())
