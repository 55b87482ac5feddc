"""`token-router`: every tool under one command, with completion for the shell.

    token-router serve        token-router bench modes --json        token-router --install-completion

A command is the tool of the same name (`python -m tools.NAME`) and takes its options; `--help` behind it
shows them. Nothing is imported before it is asked for.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import MappingProxyType

import typer

COMMANDS = MappingProxyType(
    {
        "serve": ("serve", "Start Triton with both models; Ctrl-C stops it."),
        "serve-part": ("serve_part", "Serve one host's part of a deployment."),
        "status": ("status", "Live table of a running server: models, queues, parked, thresholds, share."),
        "try": ("try_routing", "Ask the running server the demo questions under several policies."),
        "load-test": ("load_test", "Load from four clients, perf_analyzer among them, and one table."),
        "plan": ("plan_thresholds", "Throughput by threshold, and the thresholds to choose."),
        "memory": ("plan_memory", "What the models and their KV caches take of one budget."),
        "calibrate": ("calibrate", "Choose a policy's cutoff for a wished share of the large model."),
        "simulate": ("simulate", "What-if runs on the real scheduler under a manual clock."),
        "timeline": ("trace_timeline", "Picture of who ran when, from a server's event log."),
        "repository": ("make_repository", "Write every model's config.pbtxt from deployment.yaml."),
        "keys": ("make_keys", "CURVE keys for servers on several hosts."),
        "new-policy": ("new_policy", "A skeleton of your own policy with a passing test."),
        "train-router": ("train_router", "Train a CITER or R2R head on a local pair."),
        "convert-router": ("convert_router", "Bring a published router's weights into our format."),
        "convert-gguf": ("convert_gguf", "Turn a GGUF file into a Hugging Face directory."),
        "measure": ("measure_steps", "Step latency of a model by batch, context and new tokens."),
        "openai": ("openai_server", "OpenAI's HTTP API in front of a running server."),
        "build-engine": ("build_engine", "A TensorRT-LLM engine from a Hugging Face directory."),
    }
)
BENCHES = MappingProxyType(
    {
        "modes": ("bench_modes", "Four scheduling modes against the model's prediction (emulated pair)."),
        "slow-reader": ("bench_slow_reader", "What a client that does not read costs its neighbours."),
        "handoff": ("bench_handoff", "What a hand-off costs, beside a bare message."),
        "scheduler": ("bench_scheduler", "A scheduler turn by running and parked requests."),
        "engine": ("bench_engine", "Decode speed beside other engines and the memory floor."),
        "resume": ("bench_resume", "What parking and resuming costs by context."),
        "peers": ("bench_peers", "Whole systems side by side."),
        "combinations": ("bench_combinations", "Five routing algorithms by three workloads."),
        "breakdown": ("bench_breakdown", "Where the time of a small-model step goes."),
        "gpu": ("bench_gpu", "Routing on one GPU with the shapes of Qwen3-0.6B and Qwen3-32B."),
        "pareto": ("bench_pareto", "Accuracy against throughput on the demo task."),
    }
)
CHECKS = MappingProxyType(
    {
        "cases": ("cases", "The field cases, by id."),
        "soak": ("soak", "Kills and freezes under mixed load on a real Triton, with verdicts."),
        "hosts": ("try_hosts", "What several hosts cost: sockets, TCP with keys, two servers."),
        "trtllm": ("check_trtllm", "Whether TensorRT-LLM and its engines do what we rely on."),
        "fuzz": ("fuzz", "Mutated frames and requests against codec and doors."),
    }
)
PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}

app = typer.Typer(
    name="token-router",
    help="Token-level LLM routing on NVIDIA Triton.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


def _tool(module: str) -> Callable[[typer.Context], None]:
    def run(context: typer.Context) -> None:
        sys.argv[0] = f"token-router {context.info_name}"
        raise typer.Exit(importlib.import_module(f"tools.{module}").main(context.args))

    return run


def _group(help_text: str, commands: MappingProxyType[str, tuple[str, str]]) -> typer.Typer:
    group = typer.Typer(help=help_text, no_args_is_help=True)
    add(group, commands)
    return group


def add(group: typer.Typer, commands: MappingProxyType[str, tuple[str, str]]) -> None:
    """Every command of the table, in its order."""
    for name, (module, help_text) in commands.items():
        group.command(name, help=help_text, context_settings=PASSED_ON)(_tool(module))


add(app, COMMANDS)
app.add_typer(_group("Measurements; give them a quiet machine.", BENCHES), name="bench")
app.add_typer(_group("Proofs that can be repeated.", CHECKS), name="check")


def main() -> None:
    """The entry point `token-router`."""
    app()


if __name__ == "__main__":
    main()
