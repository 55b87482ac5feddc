"""Decode speed of the torch engine beside other engines and beside what the memory allows.

python -m tools.bench_engine smollm2-135m --batches 1,4,16 --contexts 512
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, product
from pathlib import Path
from typing import Any

import torch

from python_backend.runner.torch_runner.devices import ask_for_large_pages
from python_backend.runner.torch_runner.footprint import chosen_dtype
from python_backend.runner.torch_runner.model_config import load_model_config
from python_backend.runner.torch_runner.runner import TorchRunner
from router_backend.core.errors import ConfigError, RunnerError
from tools.engine_peers import PEERS, PeerAbsent, PeerJob, Source, installed_peer, peer_times_ms
from tools.peer_environments import peers_folder
from tools.step_timing import WARM_UP_STEPS, StepShape, settings_for, step_plan

EPILOG = """\
step_ms is the median of --repeats decode steps: one token for every row of the batch. Engines that run in
this process, and their batches, take turns step by step, so that a busy moment of the machine hits all of
them alike; each step that counts follows one of its own kind, as in decoding.
floor_ms is the time to read the weights once, at the bandwidth measured in the same run. Peers (vllm,
onnx_int4, llama_cpp) run in a Python of their own, which --install makes (TOKEN_ROUTER_PEERS names the
folder, .peers otherwise) or --peer names; one that cannot be measured is listed as absent with the reason.
"""
WEIGHT_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int8": 1, "int4": 0.5}
STREAM_BYTES = 512 << 20
Step = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Figure:
    engine: str
    dtype: str
    batch: int
    context: int
    step_ms: float
    tokens_per_s: float
    floor_ms: float


@dataclass(frozen=True, slots=True)
class Floor:
    """What the machine allows: `num_weights` read once per step at `bytes_per_ms`."""

    num_weights: int
    bytes_per_ms: float

    def figure(self, engine: str, dtype: str, shape: StepShape, times_ms: Sequence[float]) -> Figure:
        step_ms = statistics.median(times_ms)
        floor_ms = self.num_weights * WEIGHT_BYTES[dtype] / self.bytes_per_ms
        rate = 1e3 * shape.batch / step_ms
        rounded = (round(value, 3) for value in (step_ms, rate, floor_ms))
        return Figure(engine, dtype, shape.batch, shape.context, *rounded)


class Ours:
    """The torch engine in one number format."""

    engine = "ours"

    def __init__(self, model_dir: Path, dtype: str, threads: int, shapes: list[StepShape]) -> None:
        self.dtype = chosen_dtype(dtype, load_model_config(model_dir).num_weights)
        self._runner = TorchRunner(settings_for(model_dir, dtype, threads, shapes))

    def step_of(self, shape: StepShape) -> Step:
        plan = step_plan(shape)
        return lambda: self._runner.execute(plan)


class Transformers:
    """Greedy decoding by transformers: eager, a dynamic cache, torch's default attention."""

    engine, dtype = "transformers", "float32"

    def __init__(self, model_dir: Path) -> None:
        from transformers import AutoModelForCausalLM

        self._network = AutoModelForCausalLM.from_pretrained(str(model_dir), dtype=torch.float32).eval()

    def step_of(self, shape: StepShape) -> Step:
        cache = self._cache(shape)
        token = torch.ones((shape.batch, 1), dtype=torch.int64)

        @torch.inference_mode()
        def step() -> None:
            self._network(token, cache=cache, use_cache=True).logits.argmax(dim=-1)
            cache.crop(-1)

        return step

    @torch.inference_mode()
    def _cache(self, shape: StepShape) -> Any:
        """One prompt computed and repeated: the time of a step does not depend on what the rows say."""
        prompt = torch.arange(shape.context)[None] % 7
        cache = self._network(prompt, use_cache=True, logits_to_keep=1).past_key_values
        cache.batch_repeat_interleave(shape.batch)
        return cache


def bandwidth_bytes_per_ms(threads: int) -> float:
    """Streaming read of memory that no cache holds: the best of several passes."""
    torch.set_num_threads(threads)
    stream = torch.ones(STREAM_BYTES // 4)
    return STREAM_BYTES / min(_timed_ms(stream.sum) for _ in range(10))


def in_turns(contenders: Sequence[Any], shapes: Sequence[StepShape], repeats: int) -> list[list[float]]:
    """Milliseconds of `repeats` steps of each contender in each shape, shape by shape, all by turns."""
    steps = [contender.step_of(shape) for shape in shapes for contender in contenders]
    for step in steps:
        for _ in range(WARM_UP_STEPS):
            step()
    rounds = [[_settled_ms(step) for step in steps] for _ in range(repeats)]
    return [list(times_ms) for times_ms in zip(*rounds, strict=True)]


def _settled_ms(step: Step) -> float:
    """Of a step behind one of its own kind: the caches hold what such a step leaves."""
    step()
    return _timed_ms(step)


def _timed_ms(step: Step) -> float:
    started_at = time.perf_counter()
    step()
    return 1e3 * (time.perf_counter() - started_at)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """The whole document; ConfigError if the model cannot be loaded."""
    by_context = [[StepShape(batch, context) for batch in options.batches] for context in options.contexts]
    shapes = list(chain(*by_context))
    num_weights = load_model_config(options.model_dir).num_weights
    floor = Floor(num_weights, bandwidth_bytes_per_ms(options.threads))
    contenders: list[Any] = [
        Ours(options.model_dir, dtype, options.threads, shapes) for dtype in options.dtypes
    ]
    contenders.append(Transformers(options.model_dir))
    figures = []
    for alike in by_context:
        measured = zip(product(alike, contenders), in_turns(contenders, alike, options.repeats), strict=True)
        figures += [floor.figure(one.engine, one.dtype, shape, ms) for (shape, one), ms in measured]
    del contenders
    absent: dict[str, str] = {}
    for name in PEERS:
        try:
            figures += _peer_figures(name, options, floor, shapes)
        except PeerAbsent as reason:
            absent[name] = str(reason)
    gigabytes_per_s = round(floor.bytes_per_ms / 1e6, 1)
    rows = [asdict(figure) for figure in figures]
    return {"rows": rows, "absent": absent, "bandwidth_gb_per_s": gigabytes_per_s, "threads": options.threads}


def _peer_figures(
    name: str, options: argparse.Namespace, floor: Floor, shapes: list[StepShape]
) -> list[Figure]:
    python, model = _placed(name, options)
    answers = []
    for shape in shapes:
        job = PeerJob(model, shape.batch, shape.context, options.repeats, options.threads)
        answers.append(floor.figure(name, PEERS[name].dtype, shape, peer_times_ms(name, python, job)))
    return answers


def _placed(name: str, options: argparse.Namespace) -> tuple[str, str]:
    """Interpreter and model of a peer."""
    if name in options.peers:
        found: tuple[str, str] = options.peers[name]
        return found
    if name not in options.install:
        raise PeerAbsent(f"neither --install {name} nor --peer {name}=PYTHON:MODEL")
    source = Source(options.model_dir, options.gguf, peers_folder())
    return installed_peer(name, source, lambda line: print(f"bench_engine: {line}", file=sys.stderr))


def _names(text: str) -> list[str]:
    names = text.split(",")
    if not set(names) <= set(PEERS):
        raise argparse.ArgumentTypeError(f"{text}: of {', '.join(PEERS)}, separated by commas")
    return names


def _counts(text: str) -> list[int]:
    counts = [int(part) for part in text.split(",")]
    if min(counts) < 1:
        raise argparse.ArgumentTypeError(f"{text}: whole numbers of at least 1, separated by commas")
    return counts


def _peer(text: str) -> tuple[str, tuple[str, str]]:
    name, _, place = text.partition("=")
    python, _, model = place.partition(":")
    if name not in PEERS or not model:
        raise argparse.ArgumentTypeError(f"{text}: NAME=PYTHON:MODEL with NAME of {', '.join(PEERS)}")
    return name, (python, model)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench_engine",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("model_dir", type=Path, metavar="MODEL_DIR", help="Hugging Face directory")
    add("--dtypes", type=lambda text: text.split(","), default=["auto", "float32", "int8"], metavar="LIST",
        help="number formats of our engine (default auto,float32,int8)")  # fmt: skip
    add("--batches", type=_counts, default=[1, 4, 16], help="batch sizes (default 1,4,16)")
    add("--contexts", type=_counts, default=[512], help="cached tokens per row (default 512)")
    add("--repeats", type=int, default=15, help="steps per figure (default 15)")
    add("--threads", type=int, default=2, help="threads of every engine (default 2)")
    add("--install", type=_names, default=[], metavar="LIST",
        help="measure these peers too, each in an environment made now: " + ",".join(PEERS))  # fmt: skip
    add("--gguf", type=Path, metavar="FILE", help="the model as llama_cpp reads it")
    add("--peer", dest="peers", type=_peer, action="append", default=[], metavar="NAME=PYTHON:MODEL",
        help="measure this peer too, as it is installed; NAME: " + ", ".join(PEERS))  # fmt: skip
    add("--json", action="store_true", help="print JSON instead of a table")
    return parser


def _print_table(document: dict[str, Any]) -> None:
    print(
        f"{'engine':>12} {'dtype':>9} {'batch':>6} {'context':>8} {'step ms':>9} {'tok/s':>9} {'floor ms':>9}"
    )
    for row in document["rows"]:
        shape = f"{row['batch']:>6} {row['context']:>8}"
        figures = f"{row['step_ms']:>9.2f} {row['tokens_per_s']:>9.1f} {row['floor_ms']:>9.2f}"
        print(f"{row['engine']:>12} {row['dtype']:>9} {shape} {figures}")
    for name, reason in document["absent"].items():
        print(f"{name:>12} absent: {reason}")


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; 0, or 2 with the reason on stderr."""
    options = _parser().parse_args(argv)
    ask_for_large_pages()
    options.peers = dict(options.peers)
    try:
        document = run(options)
    except (ConfigError, RunnerError) as error:
        print(f"bench_engine: {error}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(document))
    else:
        _print_table(document)
    return 0


if __name__ == "__main__":
    sys.exit(main())
