"""What a scripted engine plays: a JSON file, checked once, then frozen.

Owns the file's keys and their meaning; draws nothing and waits for nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from router_backend.core.errors import ConfigError
from router_backend.planner.latency import StepLatency
from router_backend.planner.profile import parse_profile, parse_routing


@dataclass(frozen=True, slots=True)
class Script:
    """The JSON file, key by key; every key but `vocab_size` has a default.

    A file may also hold `profile` and `routing`, with which one file serves every model: see `load_script`.
    """

    vocab_size: int
    length_max: int = 32768
    eos_ids: tuple[int, ...] = ()
    eos_p: float = 0.0
    """Probability that a step samples the first end token."""
    latency_ms: tuple[float, ...] = (0.0,)
    """Step time by number of rows, from one row on; a single number in the file means constant."""
    curve: StepLatency | None = None
    """Measured step times, in place of `latency_ms`; a file names them by `profile`."""
    token_ms: float = 0.0
    """Extra per fed token beyond one per row: long extensions take longer."""
    host_ms: float = 0.0
    """About how much of the step time is scheduling between two steps rather than the engine's."""
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
        if not self.latency_ms or min(self.latency_ms) < 0 or min(self.token_ms, self.host_ms) < 0:
            raise ConfigError("script: latency_ms (at least one), token_ms and host_ms: not negative")
        if not (0 <= self.uncertain_p <= 1 and 0 <= self.eos_p <= 1):
            raise ConfigError("script: uncertain_p and eos_p are probabilities from 0 to 1")
        if any(not 0 <= token < self.vocab_size for token in (*self.tokens, *self.eos_ids)):
            raise ConfigError(f"script: tokens and eos_ids must be below vocab_size {self.vocab_size}")
        if self.eos_p > 0 and not self.eos_ids:
            raise ConfigError("script: eos_p needs eos_ids")


def parse_script(text: str, source: str) -> Script:
    """The script in JSON `text`; ConfigError names `source` and the key."""
    try:
        return _script(json.loads(text), source)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{source}: not JSON: {error}") from error


def _script(values: Any, source: str) -> Script:
    if not isinstance(values, dict) or "vocab_size" not in values:
        raise ConfigError(f"{source}: needs an object with vocab_size")
    known = {field.name for field in fields(Script)}
    if not isinstance(values.get("curve"), StepLatency):
        known.discard("curve")
    unknown = sorted(values.keys() - known)
    if unknown:
        raise ConfigError(f"{source}: unknown key {unknown[0]!r}")
    try:
        return Script(**_typed(values))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{source}: {error}") from error


def load_script(path: Path, model: int = 0) -> Script:
    """The script in `path` as model `model` plays it.

    `profile` names a step profile beside the script and `routing` is a pair's matrix P, both as
    `router_backend.planner.profile` reads them: the model takes its own entry, and is uncertain as often as
    its row says: r_stitch then leaves the small model with P[0][1] and stays on the large one with P[1][1].
    """
    try:
        values = json.loads(path.read_text())
        if isinstance(values, dict):
            values = _placed(values, path, model)
        return _script(values, str(path))
    except OSError as error:
        where = error.filename or path
        raise ConfigError(f"{where}: {error.strerror}: cannot read the script") from error
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}: not JSON: {error}") from error


def _placed(values: dict[str, Any], path: Path, model: int) -> dict[str, Any]:
    placed = {key: value for key, value in values.items() if key not in ("profile", "routing")}
    try:
        if "profile" in values:
            profiles = parse_profile(json.loads((path.parent / values["profile"]).read_text()))
            placed["curve"] = profiles[model].latency
        if "routing" in values:
            placed["uncertain_p"] = parse_routing(values).probabilities[model][1]
    except IndexError as error:
        raise ConfigError(f"{path}: profile and routing say nothing of model {model}") from error
    return placed


def _typed(values: dict[str, Any]) -> dict[str, Any]:
    typed = dict(values)
    latency = values.get("latency_ms", 0.0)
    typed["latency_ms"] = tuple(map(float, latency if isinstance(latency, list) else [latency]))
    for key in ("tokens", "eos_ids"):
        typed[key] = tuple(map(int, values.get(key, ())))
    typed["failing_steps"] = frozenset(map(int, values.get("failing_steps", ())))
    return typed
