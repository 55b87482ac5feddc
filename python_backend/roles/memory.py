"""From a deployment to the memory plan of each of its devices.

Reads configurations of models, never weights. Every process of a server makes the same plan, so nothing of it
travels. A scripted engine holds no KV and takes no part, nor does one that plans its memory by itself.
"""

from __future__ import annotations

from pathlib import Path

from python_backend.config import Deployment, ModelSettings
from python_backend.roles.place import model_dir
from python_backend.runner.heads.card import WEIGHTS_FILE
from python_backend.runner.torch_runner.devices import CPU, gpu_index, usable_bytes
from python_backend.runner.torch_runner.footprint import StepLimits, chosen_dtype, footprint
from python_backend.runner.torch_runner.model_config import load_model_config
from router_backend.planner.memory import Footprint, MemoryPlan, parse_bytes, plan_memory

KV_TOKENS_DEFAULT = 65536
"""Of a model that neither says how many nor shares a budget."""
AUTO = "auto"


def memory_plans(deployment: Deployment, repository: Path) -> tuple[MemoryPlan, ...]:
    """One plan per device, in the order of the models; ConfigError with the sum where it does not fit."""
    by_device: dict[str, list[str]] = {}
    for name in deployment.subservers:
        model = deployment.served(name)
        if model.engine == "torch":
            for device in _devices(model):
                by_device.setdefault(device, []).append(name)
    return tuple(_plan(deployment, repository, device, names) for device, names in by_device.items())


def with_kv_tokens(deployment: Deployment, plans: tuple[MemoryPlan, ...]) -> Deployment:
    """The deployment with the size of every pool filled in: the same for all replicas of a model."""
    planned: dict[str, int] = {}
    for planned_model in [model for plan in plans for model in plan.models]:
        name = deployment.served(planned_model.footprint.name).name
        planned[name] = min(planned_model.kv_tokens, planned.get(name, planned_model.kv_tokens))
    sizes = [planned.get(model.name, model.kv_tokens or KV_TOKENS_DEFAULT) for model in deployment.models]
    models = tuple(
        model.model_copy(update={"kv_tokens": size})
        for model, size in zip(deployment.models, sizes, strict=True)
    )
    return deployment.model_copy(update={"models": models})


def _plan(deployment: Deployment, repository: Path, device: str, names: list[str]) -> MemoryPlan:
    """`names` are subservers: every replica has weights and a pool of its own."""
    budget = _budget(deployment, device)
    footprints = [_footprint(deployment, repository, name, budget) for name in names]
    lengths = [_length_max(deployment, repository, deployment.served(name)) for name in names]
    tokens_max = deployment.front.live_max * min(lengths)
    return plan_memory(device, budget, footprints, tokens_max)


def _devices(model: ModelSettings) -> list[str]:
    """One for each rank on GPUs; on a CPU all ranks share it. `cuda` is a name of the first GPU."""
    if model.device == CPU:
        return [CPU]
    return [f"cuda:{gpu_index(model.device) + rank}" for rank in range(model.tensor_parallel)]


def _budget(deployment: Deployment, device: str) -> int | None:
    told = deployment.memory_budget
    size = told if isinstance(told, str) else told.get(device, "")
    if not size:
        return None
    return usable_bytes(device) if size == AUTO else parse_bytes(size)


def _length_max(deployment: Deployment, repository: Path, model: ModelSettings) -> int:
    return model.length_max or load_model_config(model_dir(deployment, repository, model.name)).length_max


def _footprint(
    deployment: Deployment, repository: Path, name: str, budget: int | None
) -> Footprint:
    model = deployment.served(name)
    config = load_model_config(model_dir(deployment, repository, model.name))
    length_max = _length_max(deployment, repository, model)
    limits = StepLimits(model.batch_tokens_max, model.batch_max, length_max)
    dtype = chosen_dtype(model.dtype, config.num_weights, model.device)
    found = footprint(config.sharded(model.tensor_parallel), dtype, model.device, limits)
    here = model.tensor_parallel if model.device == CPU else 1
    heads = [repository / folder / WEIGHTS_FILE for folder in model.heads.values()]
    return Footprint(
        name,
        here * found.weights + sum(file.stat().st_size for file in heads if file.exists()),
        here * found.activations,
        here * found.kv_bytes_per_token,
        model.block_size,
        model.kv_tokens if budget is not None else model.kv_tokens or KV_TOKENS_DEFAULT,
    )
