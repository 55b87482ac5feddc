"""From a deployment to the memory plan of each of its devices.

Every process of a host makes the same plan, so nothing of it travels; other hosts need not be known.
A scripted engine holds no KV and takes no part.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from python_backend.config import Deployment
from python_backend.roles.footprints import ModelFiles, ranks_by_device
from python_backend.roles.place import model_dir
from python_backend.runner.torch_runner.devices import usable_bytes
from router_backend.planner.memory import MemoryPlan, parse_bytes, plan_memory

KV_TOKENS_DEFAULT = 65536
"""Of a model that neither says how many nor shares a budget."""
AUTO = "auto"
HERE = ""
"""The host of a deployment that has one."""


def host_of(deployment: Deployment, subserver: str) -> str:
    """Where its peers reach `subserver`: a device is told from others by its host and its name there."""
    if deployment.transport != "tcp":
        return HERE
    return deployment.addresses[subserver].rpartition(":")[0]


def memory_plans(deployment: Deployment, repository: Path, host: str | None = None) -> tuple[MemoryPlan, ...]:
    """One plan per device of `host`, or of each host, in the order of the models.

    ConfigError with the sum where it does not fit. `auto` is what this machine has.
    """
    everywhere = dict.fromkeys(host_of(deployment, name) for name in deployment.subservers)
    hosts = everywhere if host is None else [host]
    return tuple(plan for one in hosts for plan in _plans_of(deployment, repository, one))


def with_kv_tokens(deployment: Deployment, plans: Sequence[MemoryPlan]) -> Deployment:
    """The deployment with the size of every pool filled in."""
    planned = _least(deployment, plans)
    sizes = [planned.get(model.name, model.kv_tokens or KV_TOKENS_DEFAULT) for model in deployment.models]
    models = tuple(
        model.model_copy(update={"kv_tokens": size})
        for model, size in zip(deployment.models, sizes, strict=True)
    )
    return deployment.model_copy(update={"models": models})


def _plans_of(deployment: Deployment, repository: Path, host: str) -> list[MemoryPlan]:
    seats: dict[str, dict[str, tuple[int, ...]]] = {}
    for name in deployment.subservers:
        model = deployment.served(name)
        if model.engine != "scripted" and host_of(deployment, name) == host:
            for device, ranks in ranks_by_device(model).items():
                seats.setdefault(device, {})[name] = ranks
    plans = [_plan(deployment, repository, (host, device), ranks) for device, ranks in seats.items()]
    least = _least(deployment, plans)
    most = {name: least[deployment.served(name).name] for ranks in seats.values() for name in ranks}
    return [plan.bounded(most) for plan in plans]


def _least(deployment: Deployment, plans: Sequence[MemoryPlan]) -> dict[str, int]:
    """KV tokens by model: the same for all its replicas, on all devices of each."""
    least: dict[str, int] = {}
    for planned in [model for plan in plans for model in plan.models]:
        name = deployment.served(planned.footprint.name).name
        least[name] = min(planned.kv_tokens, least.get(name, planned.kv_tokens))
    return least


def _plan(
    deployment: Deployment, repository: Path, seat: tuple[str, str], ranks: dict[str, tuple[int, ...]]
) -> MemoryPlan:
    """Of the device at `seat` (host, device), with the `ranks` of every subserver that are on it.

    Each replica has weights and a pool of its own.
    """
    host, device = seat
    budget = _budget(deployment, device)
    footprints, lengths = [], []
    for name, here in ranks.items():
        model = deployment.served(name)
        files = ModelFiles(model, repository, model_dir(deployment, repository, model.name))
        kv_tokens = model.kv_tokens if budget is not None else model.kv_tokens or KV_TOKENS_DEFAULT
        footprints.append(files.footprint(name, here, kv_tokens))
        lengths.append(files.length_max)
    title = f"{device} of {host}" if host else device
    return plan_memory(title, budget, footprints, deployment.front.live_max * min(lengths))


def _budget(deployment: Deployment, device: str) -> int | None:
    told = deployment.memory_budget
    size = told if isinstance(told, str) else told.get(device, "")
    if not size:
        return None
    return usable_bytes(device) if size == AUTO else parse_bytes("memory_budget", size)
