"""An engine without a model: tokens, signals and step times from a script.

For tests, for measuring everything around the model, and for reproducing a published workload.
Every number is drawn by `router_backend.core.counter_rng.uniforms`, keyed by the request's seed and
the absolute position of the token, so an answer does not depend on batches, parking or hand-offs:

    token      tokens[position % len(tokens)] if the script lists tokens; otherwise an end token with
               probability `eos_p`, else uniform over the vocabulary without end tokens:
               draws keyed (seed, position, salt, TAG_EOS) and (seed, position, salt, TAG_TOKEN)
    uncertain  draw keyed (seed, position, model, TAG_UNCERTAIN) < uncertain_p; entropy is then
               `entropy_high`, else `entropy_low` (nats), and max_prob 0.3 or 0.99
    time       latency_ms[rows - 1] (the last entry for larger batches) + token_ms * fed tokens beyond
               one per row

With one `salt` in every script all models write the same text; with different ones a token shows
who wrote it.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from python_backend.runner.base import RunnerInfo
from router_backend.core.counter_rng import uniforms
from router_backend.core.errors import ConfigError, RunnerError
from router_backend.scheduler.batch import BatchPlan, IntArray, Needs, Row, StepOutput

TAG_TOKEN = 101
TAG_EOS = 102
TAG_UNCERTAIN = 103

SPIN_S = 0.0003
"""How long before a deadline sleeping gives way to looking at the clock: above the kernel's wake-up error."""


@dataclass(frozen=True, slots=True)
class Script:
    """The JSON file, key by key; every key but `vocab_size` has a default."""

    vocab_size: int
    length_max: int = 32768
    eos_ids: tuple[int, ...] = ()
    eos_p: float = 0.0
    """Probability that a step samples the first end token."""
    latency_ms: tuple[float, ...] = (0.0,)
    """Step time by number of rows, from one row on; a single number in the file means constant."""
    token_ms: float = 0.0
    """Extra per fed token beyond one per row: long extensions take longer."""
    tokens: tuple[int, ...] = ()
    salt: int = 0
    uncertain_p: float = 0.0
    entropy_low: float = 0.0
    entropy_high: float | None = None
    """Default ln(vocab_size), the largest there is."""
    hidden_size: int = 0
    failing_steps: frozenset[int] = frozenset()
    """Steps (counted from 1) that raise RunnerError."""

    def __post_init__(self) -> None:
        if self.vocab_size < 2:
            raise ConfigError(f"script: vocab_size {self.vocab_size} must be at least 2")
        if not self.latency_ms or min(self.latency_ms) < 0 or self.token_ms < 0:
            raise ConfigError(f"script: latency_ms {self.latency_ms}, token_ms {self.token_ms}: not negative")
        if not (0 <= self.uncertain_p <= 1 and 0 <= self.eos_p <= 1):
            raise ConfigError("script: uncertain_p and eos_p are probabilities from 0 to 1")
        if any(not 0 <= token < self.vocab_size for token in (*self.tokens, *self.eos_ids)):
            raise ConfigError(f"script: tokens and eos_ids must be below vocab_size {self.vocab_size}")
        if self.eos_p > 0 and not self.eos_ids:
            raise ConfigError("script: eos_p needs eos_ids")


def parse_script(text: str, source: str) -> Script:
    """The script in JSON `text`; ConfigError names `source` and the key."""
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{source}: not JSON: {error}") from error
    if not isinstance(values, dict) or "vocab_size" not in values:
        raise ConfigError(f"{source}: needs an object with vocab_size")
    unknown = sorted(values.keys() - {field.name for field in fields(Script)})
    if unknown:
        raise ConfigError(f"{source}: unknown key {unknown[0]!r}")
    try:
        return Script(**_typed(values))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{source}: {error}") from error


def load_script(path: Path) -> Script:
    try:
        return parse_script(path.read_text(), str(path))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}: cannot read the script") from error


def _typed(values: dict[str, Any]) -> dict[str, Any]:
    typed = dict(values)
    latency = values.get("latency_ms", 0.0)
    typed["latency_ms"] = tuple(map(float, latency if isinstance(latency, list) else [latency]))
    for key in ("tokens", "eos_ids"):
        typed[key] = tuple(map(int, values.get(key, ())))
    typed["failing_steps"] = frozenset(map(int, values.get("failing_steps", ())))
    return typed


@dataclass(frozen=True, slots=True)
class Pace:
    """How the runner lets time pass; tests give a clock that jumps."""

    clock: Callable[[], float] = time.perf_counter
    sleep: Callable[[float], None] = time.sleep

    def wait(self, until: float) -> None:
        """Return at `until` or within some microseconds after it: sleep, then spin, letting others run."""
        remaining = until - self.clock()
        while remaining > SPIN_S:
            self.sleep(remaining - SPIN_S)
            remaining = until - self.clock()
        while self.clock() < until:
            self.sleep(0)


@dataclass(frozen=True, slots=True)
class ScriptedSettings:
    """`model` is the index of this model in the deployment; pool sizes come from the deployment."""

    script: Script
    model: int
    num_blocks: int
    block_size: int
    length_max: int | None = None
    """Below the script's: this one holds."""


class ScriptedRunner:
    """See the module. KV blocks are accounted for, but there is no KV."""

    def __init__(self, settings: ScriptedSettings, pace: Pace | None = None) -> None:
        script = settings.script
        self.info = RunnerInfo(
            vocab_size=script.vocab_size,
            length_max=min(script.length_max, settings.length_max or script.length_max),
            num_blocks=settings.num_blocks,
            block_size=settings.block_size,
            eos_ids=frozenset(script.eos_ids),
            hidden_size=script.hidden_size,
        )
        self._script = script
        self._model = settings.model
        self._pace = pace or Pace()
        self._plain_ids = np.setdiff1d(np.arange(script.vocab_size), np.array(script.eos_ids, dtype=np.int64))
        self._steps = 0

    def execute(self, plan: BatchPlan) -> StepOutput:
        """The script's output for the plan, after the script's time; RunnerError at a failing step."""
        until = self._pace.clock() + self.step_ms(plan) / 1000.0
        self._steps += 1
        output = self._output(plan.sampling_rows, plan.needs)
        self._pace.wait(until)
        if self._steps in self._script.failing_steps:
            raise RunnerError(f"the script fails step {self._steps}")
        return output

    def close(self) -> None:
        return None

    def step_ms(self, plan: BatchPlan) -> float:
        latency, rows = self._script.latency_ms, len(plan.rows)
        return latency[min(rows, len(latency)) - 1] + self._script.token_ms * max(0, plan.num_tokens - rows)

    def token_at(self, seed: int, position: int) -> int:
        """The token that this model samples at absolute `position`: what tests expect."""
        return int(self._tokens([seed], [position])[0])

    def is_uncertain_at(self, seed: int, position: int) -> bool:
        return bool(self._is_uncertain([seed], [position])[0])

    def _tokens(self, seeds: list[int], positions: list[int]) -> IntArray:
        script = self._script
        if script.tokens:
            return np.array([script.tokens[position % len(script.tokens)] for position in positions])
        draws = uniforms(seeds, positions, script.salt, TAG_TOKEN)
        tokens: IntArray = self._plain_ids[(draws * len(self._plain_ids)).astype(np.int64)]
        if script.eos_p > 0:
            is_end = uniforms(seeds, positions, script.salt, TAG_EOS) < script.eos_p
            tokens = np.where(is_end, script.eos_ids[0], tokens)
        return tokens

    def _is_uncertain(self, seeds: list[int], positions: list[int]) -> np.ndarray[Any, np.dtype[np.bool_]]:
        return uniforms(seeds, positions, self._model, TAG_UNCERTAIN) < self._script.uncertain_p

    def _output(self, rows: tuple[Row, ...], needs: Needs) -> StepOutput:
        seeds, positions = [row.sampling.seed for row in rows], [row.end for row in rows]
        if not rows:
            return StepOutput(np.zeros(0, dtype=np.int64))
        script = self._script
        tokens = self._tokens(seeds, positions)
        is_uncertain = self._is_uncertain(seeds, positions)
        high = math.log(script.vocab_size) if script.entropy_high is None else script.entropy_high
        entropy = np.where(is_uncertain, high, script.entropy_low).astype(np.float32)
        max_prob = np.where(is_uncertain, 0.3, 0.99).astype(np.float32)
        topk = min(needs.topk, script.vocab_size)
        ranks = np.arange(topk)
        return StepOutput(
            tokens=tokens,
            logprobs=np.log(max_prob),
            entropy=entropy if needs.entropy else None,
            max_prob=max_prob if needs.max_prob else None,
            topk_ids=(tokens[:, None] + ranks) % script.vocab_size if topk else None,
            topk_logits=np.broadcast_to(-ranks, (len(rows), topk)).astype(np.float32) if topk else None,
            hidden=np.zeros((len(rows), script.hidden_size), dtype=np.float32) if needs.hidden else None,
        )
