"""A small and a large model that exist only as step times and routing probabilities.

The routing is R-Stitch on scripted entropies: after a small step a request leaves with probability p and
its token is discarded; after a large step it returns with probability q (q = 1: the one-token return of
R2R). So the planner's matrices describe the running system exactly (arXiv:2610.12242, Appendix D).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from python_backend.runner.scripted_runner import are_uncertain
from router_backend.core.errors import ConfigError
from router_backend.planner.latency import StepLatency, constant
from router_backend.planner.profile import parse_profile
from router_backend.planner.routing import Routing, discard_and_return, discard_and_stay
from router_backend.planner.system import System

NAMES = ("small", "large")
SCRIPT = "emulated.json"
PROFILE = "emulated_profile.json"
VOCABULARY = 128
"""Of the demo pair's tokenizer, which turns the scripted tokens into text."""
HOST_MS = 0.2
"""Published step times are from launch to launch; about this much of them is scheduling on the host."""
PLAIN_TOKEN = 4
"""The one token that the script writes: any with a text will do, so that every token can be streamed."""


@dataclass(frozen=True, slots=True)
class EmulatedPair:
    """What is emulated; `a100_pair()` is the published one."""

    latencies: tuple[StepLatency, StepLatency]
    route_p: float
    return_p: float = 1.0

    def system(self) -> System:
        """The same pair as the planner sees it."""
        return System(self._routing(), self.latencies)

    def documents(self) -> dict[str, object]:
        """The files that the scripted engines play: one script for both models, and their step times."""
        profile = [_profile(name, one) for name, one in zip(NAMES, self.latencies, strict=True)]
        script = {
            "vocab_size": VOCABULARY,
            "tokens": [PLAIN_TOKEN],
            "profile": PROFILE,
            "host_ms": HOST_MS,
            "routing": [list(row) for row in self._routing().probabilities],
        }
        return {SCRIPT: script, PROFILE: {"models": profile}}

    def _routing(self) -> Routing:
        if self.return_p == 1.0:
            return discard_and_return(self.route_p)
        return discard_and_stay(self.route_p, self.return_p)


def a100_pair() -> EmulatedPair:
    """Qwen3-0.6B and 32B on two A100, R2R: 6.0 and 27.9 ms, p = 0.35 (arXiv:2610.12242, Figure 10)."""
    return EmulatedPair((constant(6.0), constant(27.9)), 0.35)


def profiled_latencies(path: Path) -> tuple[StepLatency, StepLatency]:
    """The measured step times of a small and a large model; ConfigError names what is wrong with the file."""
    try:
        profiles = parse_profile(json.loads(path.read_text()))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON: {error}") from error
    if len(profiles) != len(NAMES):
        raise ConfigError(f"{path}: {len(profiles)} models, a pair is two")
    small, large = profiles
    return small.latency, large.latency


def balanced_seeds(pair: EmulatedPair, prompt_len: int, max_tokens: int) -> Iterator[int]:
    """Seeds of requests in which exactly the expected number of small steps leave, without end.

    Stratified sampling: a run then measures the runtime, not the luck of its draws. Only for one-token
    returns are the steps independent; elsewhere every seed is as good as another.
    """
    wanted = round(pair.route_p * max_tokens)
    positions = np.arange(prompt_len, prompt_len + max_tokens)
    for seed in itertools.count():
        leaving = int(are_uncertain(np.full(max_tokens, seed), positions, 0, pair.route_p).sum())
        if leaving == wanted or pair.return_p < 1.0:
            yield seed


def _profile(name: str, latency: StepLatency) -> dict[str, object]:
    steps = [{"batch": batch, "step_ms": step_ms} for batch, step_ms in latency.points]
    return {"name": name, "steps": steps}
