"""Does this container, with these engines, do what our adapters rely on? For the deployer, before serving.

    python3 -m tools.check_trtllm /models/deployment.yaml
    python3 -m tools.check_trtllm /models/deployment.yaml --model small --weights small=/hf/Qwen3-0.6B --json

Looks at the installation, at the names and parameters that are called, at each engine's inputs and outputs.
Then it runs the golden scenarios (chunks, parking, taking back, eviction) against computing each text in one
go, a greedy answer against the LLM API on the same weights, and times a step. Exit status 0: everything
passed; 1: something failed; 2: nothing could be checked here, with what is missing and what to run instead.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

from python_backend.agreement import Agreement
from python_backend.config import Deployment, load_deployment
from python_backend.model_settings import ModelSettings
from python_backend.roles.agreeing import read_agreement
from python_backend.roles.engine import build_runner
from python_backend.roles.place import engine_dir, model_dir
from python_backend.runner.base import ModelRunner
from python_backend.runner.trtllm_runner.contract import Design
from python_backend.runner.trtllm_runner.engine_config import load_engine_config
from python_backend.text.tokenizer import load_tokenizer
from router_backend.core.errors import ConfigError, RunnerError
from router_backend.scheduler.batch import Needs
from tools.engines.placed import missing_ranks
from tools.trtllm_check.answers import answer_verdict, greedy_readings, greedy_tokens
from tools.trtllm_check.scenarios import Words, scenario_verdicts
from tools.trtllm_check.stepper import COMPARED, Stepper
from tools.trtllm_check.symbols import symbol_verdict
from tools.trtllm_check.timing import timing_verdict
from tools.trtllm_check.verdict import Outcome, Verdict, closing, document, failed, judged

DESIGNS = {"trtllm": Design.ENGINE, "trtllm_torch": Design.TORCH_FLOW}
"""The adapter behind each engine name that this tool checks."""
REFERENCE = "trtllm_llm"
INSTEAD = """\
Run it inside the image of docker/Dockerfile, on the GPUs that will serve:
  docker compose -f docker/compose.yaml --profile gpu run --rm gpu python3 -m tools.check_trtllm
Here, without a GPU, the same rules are tested on an emulated engine:
  python -m pytest tests -k trtllm"""
PROMPT = (
    "A small model writes most of an answer and a large one the tokens that are hard. Every token has an "
    "author, every sequence keeps its cache on both sides, and what moves between them is only what the "
    "other has not seen."
)
ANSWER_TOKENS = 32


class NothingToCheck(Exception):
    """Says what is missing."""


@dataclass(frozen=True, slots=True)
class Checkup:
    """One run over one deployment."""

    deployment: Deployment
    repository: Path
    models: tuple[ModelSettings, ...]
    weights: dict[str, Path]
    prompt: str
    tolerance: float
    steps: int

    def verdicts(self) -> Iterator[Verdict]:
        """In the order in which they are found."""
        version = str(import_module("tensorrt_llm").__version__)
        yield Verdict(Outcome.PASS, "installation", f"tensorrt_llm {version} on {_devices()}")
        for design in self._designs():
            yield symbol_verdict(design)
        agreement = read_agreement(self.deployment, self.repository)
        for model in self.models:
            for verdict in self._of_model(model, agreement, version):
                yield replace(verdict, subject=f"{model.name}: {verdict.subject}")

    def _designs(self) -> list[Design]:
        """The LLM API counts only where something is compared with it."""
        own = {DESIGNS[model.engine] for model in self.models}
        return sorted(own | {Design.LLM_API} if self.weights else own)

    def _of_model(self, model: ModelSettings, agreement: Agreement, version: str) -> Iterator[Verdict]:
        folder = model_dir(self.deployment, self.repository, model.name)
        words = tuple(load_tokenizer(folder).encode(self.prompt))
        if model.engine == "trtllm":
            yield config_verdict(engine_dir(model, self.repository), version)
        reference, verdict = self._reference(model, agreement, words)
        yield from verdict
        try:
            runner = build_runner(self.deployment, model.name, self.repository, agreement)
        except ConfigError as error:
            yield Verdict(Outcome.FAIL, "engine", str(error))
            return
        try:
            yield Verdict(Outcome.PASS, "engine", "loaded; inputs and outputs are those of the contract")
            yield from self._of_runner(runner, model, Words(words, runner.info.block_size))
            if reference:
                readings = greedy_readings(runner, words, len(reference))
                yield answer_verdict(readings, reference, self.tolerance)
        except RunnerError as error:
            yield Verdict(Outcome.FAIL, "engine", f"ended in the middle of the check: {error}")
        finally:
            runner.close()

    def _of_runner(self, runner: ModelRunner, model: ModelSettings, words: Words) -> Iterator[Verdict]:
        stepper = Stepper(runner, COMPARED.union(Needs(hidden=bool(model.heads))))
        yield from scenario_verdicts(stepper, words, self.tolerance)
        yield timing_verdict(stepper, words, model.batch_max, self.steps)

    def _reference(
        self, model: ModelSettings, agreement: Agreement, words: Sequence[int]
    ) -> tuple[list[int], list[Verdict]]:
        """The LLM API's answer, computed before the engine takes the memory."""
        weights = self.weights.get(model.name)
        if weights is None:
            told = f"not compared: give its Hugging Face weights with --weights {model.name}=DIR"
            return [], [Verdict(Outcome.NOTE, "LLM API", told)]
        other = model.model_copy(
            update={"engine": REFERENCE, "model_dir": str(weights.resolve()), "heads": {}}
        )
        deployment = self.deployment.model_copy(update={"models": (other,), "entry": other.name})
        try:
            runner = build_runner(deployment, other.name, self.repository, agreement)
        except ConfigError as error:
            return [], [Verdict(Outcome.FAIL, "LLM API", str(error))]
        try:
            return greedy_tokens(runner, words, ANSWER_TOKENS), []
        finally:
            runner.close()


def config_verdict(place: Path, version: str) -> Verdict:
    """config.json against the contract, and the release that built it against the one that would run it."""
    try:
        config = load_engine_config(place)
    except ConfigError as error:
        return Verdict(Outcome.FAIL, "config.json", str(error))
    faults = missing_ranks(place, config)
    if config.version != version:
        faults.append(
            f"built by {config.version}, but {version} is installed: build it again in this container"
        )
    found = f"{config.num_layers} layers, {config.tp_size} ranks, built by {version}"
    return judged("config.json", faults, found)


def checkup(options: argparse.Namespace) -> Checkup:
    """ConfigError when the deployment cannot be read, NothingToCheck when there is nothing to look at."""
    deployment = load_deployment(options.deployment)
    chosen = tuple(
        model
        for model in deployment.models
        if model.engine in DESIGNS and (not options.model or model.name in options.model)
    )
    if not chosen:
        raise NothingToCheck(
            f"no model of {options.deployment} runs on TensorRT-LLM (engine: {' or '.join(DESIGNS)})"
            + (f" and is called {' or '.join(options.model)}" if options.model else "")
        )
    try:
        import_module("tensorrt_llm")
    except ImportError as error:
        raise NothingToCheck(f"TensorRT-LLM is not here ({error})") from error
    weights = {name: Path(folder) for name, _, folder in (word.partition("=") for word in options.weights)}
    return Checkup(
        deployment,
        options.deployment.parent,
        chosen,
        weights,
        options.prompt,
        options.tolerance,
        options.steps,
    )


def _devices() -> str:
    torch = import_module("torch")
    if not torch.cuda.is_available():
        return "no GPU: what passes below was not computed by TensorRT-LLM's kernels"
    return ", ".join(torch.cuda.get_device_name(place) for place in range(torch.cuda.device_count()))


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    found: list[Verdict] = []
    try:
        for verdict in checkup(options).verdicts():
            found.append(verdict)
            if not options.json:
                print(verdict, flush=True)
    except NothingToCheck as error:
        print(f"check_trtllm: {error}.\n{INSTEAD}", file=sys.stderr)
        return 2
    except ConfigError as error:
        print(f"check_trtllm: {error}", file=sys.stderr)
        return 2
    print(json.dumps(document(found), indent=1) if options.json else closing(found))
    return 1 if failed(found) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.check_trtllm",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "deployment",
        type=Path,
        nargs="?",
        default=Path("/models/deployment.yaml"),
        help="(default: %(default)s)",
    )
    parser.add_argument(
        "--model", action="append", default=[], metavar="NAME", help="only this one; repeatable"
    )
    parser.add_argument("--weights", action="append", default=[], metavar="NAME=DIR", help="for the LLM API")
    parser.add_argument(
        "--tolerance", type=float, default=0.02, help="relative to the largest logit (default: %(default)s)"
    )
    parser.add_argument("--prompt", default=PROMPT, help="text that the scenarios are made of")
    parser.add_argument("--steps", type=int, default=50, help="steps that are timed (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="the report for a program")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
