"""Makes a TensorRT-LLM engine of a Hugging Face directory, in its place in the model repository.

    python -m tools.build_engine --model-dir /hf/Qwen3-0.6B --name small --repository /models
    python -m tools.build_engine --model-dir /hf/Qwen3-32B --name large --repository /models --tp 2 --dry-run
    python -m tools.build_engine ... --tap -- --multi_block_mode enable      # further flags of trtllm-build

Run it inside the container that will serve, on the GPUs that will serve. It prints the exact commands,
refuses flags that our runner could not drive, then converts and builds. Exit status 0: built (or printed);
1: a command failed; 2: refused, or nothing to build with.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from router_backend.core.errors import ConfigError
from tools.engines.hugging_face import BESIDE_THE_ENGINE, problems, read_model
from tools.engines.plan import EXAMPLES, EnginePlan, Limits, commands, shell_text
from tools.engines.refusals import refusals


def planned(options: argparse.Namespace, checkpoint: Path) -> EnginePlan:
    """What the options ask for; ConfigError when the model's directory cannot be read."""
    limits = Limits(
        options.batch_max,
        options.length_max,
        options.batch_tokens_max,
        options.batch_tokens_usual,
        options.tokens_per_block,
    )
    return EnginePlan(
        model=read_model(options.model_dir),
        version_dir=options.repository / options.name / "1",
        checkpoint=options.checkpoint or checkpoint,
        ranks=options.tp,
        dtype=options.dtype,
        limits=limits,
        is_tapped=options.tap,
        examples=options.examples,
        extra=tuple(options.extra),
    )


def refused(plan: EnginePlan) -> list[str]:
    """Why this engine is not built, whatever the machine."""
    found = [*refusals(plan), *problems(plan.model, plan.ranks)]
    if plan.engine.exists():
        found.append(f"{plan.engine} exists: move it away first, an engine is never overwritten")
    return found


def lacking(plan: EnginePlan) -> list[str]:
    """What this machine has not got."""
    found = []
    if shutil.which("trtllm-build") is None:
        found.append("trtllm-build is not on PATH: run this inside the image of docker/Dockerfile")
    converter = plan.examples / plan.model.converter
    if not converter.exists():
        found.append(f"{converter} is not there: name TensorRT-LLM's examples with --examples")
    return found


def built(plan: EnginePlan) -> int:
    """Status of the first command that fails, 0 when the engine is in its place. Half an engine never is."""
    plan.version_dir.mkdir(parents=True, exist_ok=True)
    for command in commands(plan):
        begun_at = time.monotonic()
        status = subprocess.call(command)
        print(
            f"# {command[0]} ended with {status} after {time.monotonic() - begun_at:.0f} s", file=sys.stderr
        )
        if status:
            shutil.rmtree(plan.engine, ignore_errors=True)
            return status
    for name in BESIDE_THE_ENGINE:
        if (plan.model.folder / name).is_file():
            shutil.copy2(plan.model.folder / name, plan.version_dir / name)
    return 0


def described(plan: EnginePlan) -> str:
    """The commands to paste, and what the engine will cost."""
    per_token = plan.model.kv_bytes(plan.ranks)
    block = per_token * plan.limits.tokens_per_block / 2**20
    cost = f"# KV cache: {per_token:,} bytes per token and rank, {block:.2f} MiB per block"
    return "\n".join([*map(shell_text, commands(plan)), cost])


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    try:
        with tempfile.TemporaryDirectory(prefix="checkpoint-") as folder:
            return _main(options, planned(options, Path(folder) / options.name))
    except ConfigError as error:
        print(f"build_engine: {error}", file=sys.stderr)
        return 2


def _main(options: argparse.Namespace, plan: EnginePlan) -> int:
    reasons = refused(plan) or ([] if options.dry_run else lacking(plan))
    if options.json:
        print(json.dumps({"commands": commands(plan), "engine": str(plan.engine), "refusals": reasons}))
    elif not reasons:
        print(described(plan))
    if reasons:
        print("\n".join(f"build_engine: {reason}" for reason in reasons), file=sys.stderr)
        return 2
    return 0 if options.dry_run else min(built(plan), 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.build_engine",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model-dir", type=Path, required=True, help="Hugging Face directory")
    parser.add_argument("--name", required=True, help="the model's name in the deployment")
    parser.add_argument("--repository", type=Path, required=True, help="the model repository")
    parser.add_argument("--tp", type=int, default=1, help="tensor-parallel ranks, one GPU each")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16"))
    parser.add_argument("--tap", action="store_true", help="add the hidden state that router heads read")
    parser.add_argument("--checkpoint", type=Path, help="keep the converted weights here (default: deleted)")
    parser.add_argument("--examples", type=Path, default=EXAMPLES, help="(default: %(default)s)")
    _add_limits(parser)
    parser.add_argument("--dry-run", action="store_true", help="check and print the commands, run nothing")
    parser.add_argument("--json", action="store_true", help="the plan for a program, on standard output")
    parser.add_argument("extra", nargs="*", help="after --: further flags of trtllm-build")
    return parser


def _add_limits(parser: argparse.ArgumentParser) -> None:
    usual = Limits()
    for option, value, meaning in (
        ("--batch-max", usual.batch_max, "most rows of a step"),
        ("--length-max", usual.length_max, "longest sequence, prompt and answer"),
        ("--batch-tokens-max", usual.batch_tokens_max, "most tokens of a step"),
        ("--batch-tokens-usual", usual.batch_tokens_usual, "tokens of a step that kernels are tuned for"),
        ("--tokens-per-block", usual.tokens_per_block, "size of a KV block"),
    ):
        parser.add_argument(option, type=int, default=value, help=f"{meaning} (default: {value})")


if __name__ == "__main__":
    raise SystemExit(main())
