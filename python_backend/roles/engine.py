"""From a deployment to the runner of one of its models."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from python_backend.agreement import Agreement
from python_backend.config import Deployment
from python_backend.model_settings import ModelSettings
from python_backend.roles.agreeing import script_file
from python_backend.roles.memory import KV_TOKENS_DEFAULT, host_of, memory_plans, with_kv_tokens
from python_backend.roles.place import engine_dir, own_dir
from python_backend.runner.base import ModelRunner
from python_backend.runner.registry import runner_factory
from python_backend.runner.resuming import Resume
from python_backend.runner.scripted_runner import ScriptedSettings, load_script
from python_backend.runner.torch_runner.buckets import Grid
from python_backend.runner.torch_runner.devices import CPU, gpu_index
from python_backend.runner.torch_runner.settings import NO_GRAPHS, TorchSettings
from python_backend.runner.trtllm_runner.settings import TrtllmSettings
from router_backend.core.request import ModelIndex

_log = logging.getLogger(__name__)


def build_runner(deployment: Deployment, name: str, repository: Path, agreement: Agreement) -> ModelRunner:
    """The engine of subserver `name`, loaded; ConfigError: what is wrong with its files, or does not fit."""
    plans = memory_plans(deployment, repository, host_of(deployment, name))
    for line in [line for plan in plans for line in plan.lines()]:
        _log.info("%s", line)
    model = with_kv_tokens(deployment, plans).served(name)
    index = deployment.model_of(name)
    settings = engine_settings(model, index, repository, agreement.vocab_size)
    return runner_factory(model.engine)(settings)


def engine_settings(model: ModelSettings, index: ModelIndex, repository: Path, vocab_size: int) -> Any:
    """The frozen settings that this model's engine is built from; ids from `vocab_size` on are padding.

    Without planned `kv_tokens` the pool has the default size.
    """
    kv_tokens = model.kv_tokens or KV_TOKENS_DEFAULT
    if model.engine == "torch":
        return TorchSettings(
            model_dir=own_dir(model, repository),
            dtype=model.dtype,
            threads=model.threads,
            kv_tokens=kv_tokens,
            block_size=model.block_size,
            length_max=model.length_max,
            vocab_size=vocab_size,
            model=index,
            device=model.device,
            tensor_parallel=model.tensor_parallel,
            attention=model.attention,
            grid=Grid(model.graph_batches, model.graph_tokens) if model.device != CPU else NO_GRAPHS,
            heads=tuple((name, repository / folder) for name, folder in sorted(model.heads.items())),
        )
    if model.engine != "scripted":
        return _trtllm_settings(model, index, repository, vocab_size)
    num_blocks = kv_tokens // model.block_size
    script = load_script(repository / script_file(model), index)
    return ScriptedSettings(script, index, num_blocks, model.block_size, model.length_max)


def _trtllm_settings(
    model: ModelSettings, index: ModelIndex, repository: Path, vocab_size: int
) -> TrtllmSettings:
    folder = own_dir(model, repository)
    return TrtllmSettings(
        engine_dir=engine_dir(model, repository) if model.engine == "trtllm" else folder,
        model_dir=folder,
        kv_tokens=model.kv_tokens or KV_TOKENS_DEFAULT,
        batch_max=model.batch_max,
        batch_tokens_max=model.batch_tokens_max,
        block_size=model.block_size,
        length_max=model.length_max,
        vocab_size=vocab_size,
        model=index,
        tensor_parallel=model.tensor_parallel,
        first_gpu=gpu_index(model.device),
        resume=Resume(model.resume),
        heads=tuple((name, repository / place) for name, place in sorted(model.heads.items())),
    )
