"""An engine without a model: tokens, signals and step times from a script.

For tests, for measuring everything around the model, and for reproducing a published workload.
Every number is drawn by `router_backend.core.counter_rng.uniforms`, keyed by the request's seed and
the absolute position of the token, so an answer does not depend on batches, parking or hand-offs:

    token      tokens[position % len(tokens)] if the script lists tokens; otherwise an end token with
               probability `eos_p`, else uniform over the vocabulary without end tokens:
               draws keyed (seed, position, salt, TAG_EOS) and (seed, position, salt, TAG_TOKEN)
    uncertain  draw keyed (seed, position, model, TAG_UNCERTAIN) < uncertain_p; entropy is then
               `entropy_high`, else `entropy_low` (nats), and max_prob 0.3 or 0.99
    time       latency_ms[rows - 1] (the last entry for larger batches), or the measured curve of a
               profile, + token_ms * fed tokens beyond one per row

A published step time is from launch to launch. With `host_ms` the engine therefore leaves room for the
scheduling between two steps: a step takes its time less what has lately passed between the end of one
step and the launch of the next, `host_ms` until that has been seen. A longer pause is no scheduling.

A script has no logits: penalties, biases, bans, `min_tokens` and the sampling limits (top_k, top_p, min_p,
temperature) are accepted and change nothing. Of a drafted token, the probability is `max_prob` where the
script says the same token, and an even share of the rest elsewhere.

With one `salt` in every script all models write the same text; with different ones a token shows
who wrote it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from python_backend.runner import drafts
from python_backend.runner.base import RunnerInfo
from python_backend.runner.pace import SPIN_S, Pace
from python_backend.runner.script import Script, load_script, parse_script
from router_backend.core.counter_rng import uniforms
from router_backend.core.errors import RunnerError
from router_backend.scheduler.batch import BatchPlan, BoolArray, IntArray, Needs, Row, StepOutput

__all__ = [
    "SPIN_S",
    "Pace",
    "Script",
    "ScriptedRunner",
    "ScriptedSettings",
    "are_uncertain",
    "load_script",
    "parse_script",
]

TAG_TOKEN = 101
TAG_EOS = 102
TAG_UNCERTAIN = 103

PAUSE_MAX = 3.0
"""Pauses up to this many `host_ms` are scheduling between two steps; longer ones are idle time."""
HOST_WEIGHT = 0.1
"""Of the latest pause in the running mean."""


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
        self._ended_at = float("-inf")
        self._host_s = script.host_ms / 1000.0

    def execute(self, plan: BatchPlan) -> StepOutput:
        """The script's output for the plan, after the script's time; RunnerError at a failing step."""
        until = self._engine_until(self.step_ms(plan) / 1000.0)
        if not self._steps:
            self._pace.sharpen()
        self._steps += 1
        output = self._read(plan.sampling_rows, plan.needs)
        self._pace.wait(until)
        self._ended_at = until
        if self._steps in self._script.failing_steps:
            raise RunnerError(f"the script fails step {self._steps}")
        return output

    def close(self) -> None:
        return None

    def step_ms(self, plan: BatchPlan) -> float:
        script, rows = self._script, len(plan.rows)
        if script.curve is not None:
            step_ms = script.curve.step_ms(rows)
        else:
            step_ms = script.latency_ms[min(rows, len(script.latency_ms)) - 1]
        return step_ms + script.token_ms * max(0, plan.num_tokens - rows)

    def token_at(self, seed: int, position: int) -> int:
        """The token that this model samples at absolute `position`: what tests expect."""
        return int(self._tokens([seed], [position])[0])

    def is_uncertain_at(self, seed: int, position: int) -> bool:
        return bool(self._uncertain([seed], [position])[0])

    def _engine_until(self, step_s: float) -> float:
        """When the engine's part of a step that is launched now is over."""
        now = self._pace.clock()
        pause_s = now - self._ended_at
        if pause_s <= PAUSE_MAX * self._script.host_ms / 1000.0:
            self._host_s += HOST_WEIGHT * (pause_s - self._host_s)
        return now + max(0.0, step_s - self._host_s)

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

    def _uncertain(self, seeds: list[int], positions: list[int]) -> BoolArray:
        return are_uncertain(seeds, positions, self._model, self._script.uncertain_p)

    def _read(self, rows: tuple[Row, ...], needs: Needs) -> StepOutput:
        looks = drafts.looks(rows)
        output = self._output(looks, needs)
        if looks is rows or output.logprobs is None:
            return output
        own = np.exp(output.logprobs)
        others = (1.0 - own) / (self._script.vocab_size - 1)
        likely = np.where(drafts.drafted(rows) == output.tokens, own, others)
        return drafts.folded(rows, output, -np.log(likely))

    def _output(self, rows: Sequence[Row], needs: Needs) -> StepOutput:
        seeds, positions = [row.sampling.seed for row in rows], [row.end for row in rows]
        if not rows:
            return StepOutput(np.zeros(0, dtype=np.int64))
        script = self._script
        tokens = self._tokens(seeds, positions)
        is_uncertain = self._uncertain(seeds, positions)
        high = math.log(script.vocab_size) if script.entropy_high is None else script.entropy_high
        entropy = np.where(is_uncertain, high, script.entropy_low).astype(np.float32)
        max_prob = np.where(is_uncertain, 0.3, 0.99).astype(np.float32)
        topk = min(needs.topk, script.vocab_size)
        told = min(max(row.sampling.logprobs or 0 for row in rows), script.vocab_size)
        own, ranks = np.log(max_prob), np.arange(max(topk, told), dtype=np.float32)
        likeliest = (tokens[:, None] + np.arange(len(ranks))) % script.vocab_size
        return StepOutput(
            tokens=tokens,
            logprobs=own,
            entropy=entropy if needs.entropy else None,
            max_prob=max_prob if needs.max_prob else None,
            topk_ids=likeliest[:, :topk] if topk else None,
            topk_logits=np.broadcast_to(-ranks[:topk], (len(rows), topk)) if topk else None,
            top_ids=likeliest[:, :told] if told else None,
            top_logprobs=own[:, None] - ranks[:told] if told else None,
            hidden=np.zeros((len(rows), script.hidden_size), dtype=np.float32) if needs.hidden else None,
        )


def are_uncertain(
    seeds: npt.ArrayLike, positions: npt.ArrayLike, model: int, uncertain_p: float
) -> BoolArray:
    """bool[rows]: whether `model` is uncertain about each (seed, absolute position)."""
    return uniforms(seeds, positions, model, TAG_UNCERTAIN) < uncertain_p
