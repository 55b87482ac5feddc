"""An engine in its place in the model repository, looked at without TensorRT-LLM.

Reads config.json and the names of files.
"""

from __future__ import annotations

from pathlib import Path

from python_backend.model_settings import ModelSettings
from python_backend.roles.place import engine_dir
from python_backend.runner.trtllm_runner.engine_config import EngineConfig, engine_file, load_engine_config
from router_backend.core.errors import ConfigError


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
    files = [engine_file(place, rank) for rank in range(config.tp_size)]
    absent = [file.name for file in files if not file.is_file()]
    return [f"{place} has no {name}: build it with python -m tools.build_engine" for name in absent]
