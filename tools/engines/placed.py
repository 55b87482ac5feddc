"""An engine in its place in the model repository, looked at without TensorRT-LLM.

Reads config.json and the names of files.
"""

from __future__ import annotations

from pathlib import Path

from python_backend.config import ModelSettings
from python_backend.runner.trtllm_runner.engine_config import EngineConfig, load_engine_config
from router_backend.core.errors import ConfigError
from tools.engines.plan import ENGINE


def engine_dir(model: ModelSettings, repository: Path) -> Path:
    """Where the deployment says that the model's engine lies."""
    if model.engine_dir:
        return repository / model.engine_dir
    return repository / (model.model_dir or f"{model.name}/1") / ENGINE


def engine_problems(model: ModelSettings, repository: Path) -> list[str]:
    """Why this engine could not be loaded, each with its cure; empty when nothing speaks against it."""
    place = engine_dir(model, repository)
    try:
        config = load_engine_config(place)
    except ConfigError as error:
        return [f"model {model.name}: {error}"]
    problems = missing_ranks(place, config)
    if config.tp_size != model.tensor_parallel:
        problems.append(
            f"built for {config.tp_size} ranks, the deployment says {model.tensor_parallel}: "
            "set tensor_parallel, or build it again with --tp"
        )
    return [f"model {model.name}: {problem}" for problem in problems]


def missing_ranks(place: Path, config: EngineConfig) -> list[str]:
    """Files of ranks that are not there."""
    names = [f"rank{rank}.engine" for rank in range(config.tp_size)]
    absent = [name for name in names if not (place / name).is_file()]
    return [f"{place} has no {name}: build it with python -m tools.build_engine" for name in absent]
