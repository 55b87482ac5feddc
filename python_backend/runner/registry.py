"""Engines by name. An engine's module, and with it torch, is imported only when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import MappingProxyType
from typing import Any, cast

from python_backend.runner.base import ModelRunner
from router_backend.core.errors import ConfigError

RunnerFactory = Callable[[Any], ModelRunner]
"""Takes the engine's own frozen settings: `TorchSettings`, `TrtllmSettings`, `ScriptedSettings`."""

ENGINES = MappingProxyType(
    {
        "torch": "python_backend.runner.torch_runner.building:build",
        "trtllm": "python_backend.runner.trtllm_runner.building:build",
        "trtllm_torch": "python_backend.runner.trtllm_runner.torch_flow:build",
        "trtllm_llm": "python_backend.runner.trtllm_runner.standard_serving:build",
        "scripted": "python_backend.runner.scripted_runner:ScriptedRunner",
    }
)


def runner_factory(engine: str) -> RunnerFactory:
    """What builds the engine's runner; ConfigError if the name is unknown or its packages are missing."""
    if engine not in ENGINES:
        raise ConfigError(f"engine: {engine!r} is not one of {', '.join(ENGINES)}")
    module, name = ENGINES[engine].split(":")
    try:
        return cast(RunnerFactory, getattr(import_module(module), name))
    except ImportError as error:
        raise ConfigError(f"engine {engine}: {error}; install what it needs") from error
