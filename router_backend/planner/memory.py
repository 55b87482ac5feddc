"""How models that share a device share its memory, before any of them is loaded.

A request that is parked on one model runs on another, so the room for tokens is worth nothing where only
one of them has it: the plan gives every model the largest *equal* number of KV tokens that fits beside the
weights and the activations of all (arXiv:2610.12242, joint KV allocation). Pure arithmetic on numbers of
bytes: reads no file and no device. Every process computes the same plan from the same files.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from collections.abc import Sequence as Sequences
from dataclasses import dataclass, replace

from router_backend.core.errors import ConfigError

UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
UNITS |= {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


@dataclass(frozen=True, slots=True)
class Footprint:
    """What one model takes of its device, in bytes."""

    name: str
    weights: int
    activations: int
    """The largest step's temporary tensors, and what a library takes for itself."""
    kv_bytes_per_token: int
    block_size: int = 16
    kv_tokens: int | None = None
    """A number that the deployment fixes; None takes the equal share."""

    @property
    def fixed_bytes(self) -> int:
        """Everything but the share."""
        return self.weights + self.activations + (self.kv_tokens or 0) * self.kv_bytes_per_token


@dataclass(frozen=True, slots=True)
class PlannedModel:
    footprint: Footprint
    kv_tokens: int

    @property
    def kv_bytes(self) -> int:
        return self.kv_tokens * self.footprint.kv_bytes_per_token

    @property
    def total(self) -> int:
        return self.footprint.weights + self.footprint.activations + self.kv_bytes


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """`budget` None: nobody has said how much there is, and nothing was checked."""

    device: str
    budget: int | None
    models: tuple[PlannedModel, ...]
    share: int
    """Tokens of every model that fixes none, were this its only device."""

    @property
    def total(self) -> int:
        return sum(model.total for model in self.models)

    def kv_tokens(self, name: str) -> int:
        """Of the model of that name."""
        return next(model.kv_tokens for model in self.models if model.footprint.name == name)

    def bounded(self, most: Mapping[str, int]) -> MemoryPlan:
        """With no more tokens for a model than `most` has by name: a pool has one size on all its devices."""
        models = [replace(one, kv_tokens=min(one.kv_tokens, most[one.footprint.name])) for one in self.models]
        return replace(self, models=tuple(models))

    def lines(self) -> list[str]:
        """Every number of the plan, a line for each model and one for their sum."""
        told = [f"memory plan of {self.device}: {told_bytes(self.total)} {self._bound}"]
        for model in self.models:
            need = model.footprint
            told.append(
                f"  {need.name}: weights {told_bytes(need.weights)} + activations "
                f"{told_bytes(need.activations)} + KV {model.kv_tokens} tokens ({self._why(model)}) x "
                f"{need.kv_bytes_per_token} B = {told_bytes(model.kv_bytes)}; "
                f"together {told_bytes(model.total)}"
            )
        return told

    def _why(self, model: PlannedModel) -> str:
        if model.footprint.kv_tokens is not None:
            return "fixed"
        return "equal share" if model.kv_tokens == self.share else "as on its fullest device"

    @property
    def _bound(self) -> str:
        if self.budget is None:
            return "(no memory_budget is set)"
        return f"of {told_bytes(self.budget)}, {told_bytes(self.budget - self.total)} left"


def plan_memory(
    device: str, budget: int | None, footprints: Sequences[Footprint], tokens_max: int | None = None
) -> MemoryPlan:
    """The plan of one device; ConfigError with the whole sum where it does not fit.

    Without a budget every footprint must fix its tokens. More than `tokens_max` tokens are of no use: every
    request that may be live, at its longest.
    """
    shared = [footprint for footprint in footprints if footprint.kv_tokens is None]
    share = 0
    if shared:
        assert budget is not None, f"{device}: a share of no budget"
        share = _share(budget - sum(footprint.fixed_bytes for footprint in footprints), shared, tokens_max)
    models = tuple(PlannedModel(one, _tokens(one, share)) for one in footprints)
    plan = MemoryPlan(device, budget, models, share)
    if budget is not None and (plan.total > budget or (shared and share < 1)):
        raise ConfigError(_refusal(device, budget, footprints))
    return plan


def parse_bytes(key: str, text: str) -> int:
    """`8GiB`, `512 MiB`, `2e9`: a number of bytes; ConfigError names `key` for anything else."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?(?:e\d+)?)\s*([A-Za-z]*)\s*", text)
    unit = UNITS.get(match[2].upper()) if match else None
    if match is None or unit is None or not float(match[1]) > 0:
        raise ConfigError(f"{key}: {text!r} is not a size such as 8GiB or 512MiB")
    return int(float(match[1]) * unit)


def told_bytes(count: int) -> str:
    """For people: three digits and a unit."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(count) >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} B"


def _share(left: int, shared: Sequences[Footprint], tokens_max: int | None) -> int:
    """Tokens for each in `left` bytes, in whole blocks of everybody."""
    unit = _unit(shared)
    units = left // (unit * sum(footprint.kv_bytes_per_token for footprint in shared))
    if tokens_max is not None:
        units = min(units, -(-tokens_max // unit))
    return max(0, units) * unit


def _unit(shared: Sequences[Footprint]) -> int:
    return math.lcm(*(footprint.block_size for footprint in shared))


def _tokens(footprint: Footprint, share: int) -> int:
    return share if footprint.kv_tokens is None else footprint.kv_tokens


def _refusal(device: str, budget: int, footprints: Sequences[Footprint]) -> str:
    shared = [footprint for footprint in footprints if footprint.kv_tokens is None]
    parts = [
        f"{one.name}: weights {told_bytes(one.weights)} + activations {told_bytes(one.activations)}"
        + (f" + KV {one.kv_tokens} x {one.kv_bytes_per_token} B" if one.kv_tokens is not None else "")
        for one in footprints
    ]
    least = 0
    if shared:
        least = _unit(shared) * sum(footprint.kv_bytes_per_token for footprint in shared)
        parts.append(f"KV of {_unit(shared)} tokens for each of {len(shared)} models: {told_bytes(least)}")
    needed = told_bytes(sum(footprint.fixed_bytes for footprint in footprints) + least)
    return (
        f"memory_budget: {device} has {told_bytes(budget)} but needs at least {needed} ({'; '.join(parts)}); "
        "raise memory_budget, lower kv_tokens, or choose a narrower dtype"
    )
