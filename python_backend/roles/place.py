"""Where a Triton model finds itself: its name, its parameters, the repository and the deployment.

Reads what Triton hands to `initialize`; starts nothing. A parameter that is empty or still `${...}` (an
unfilled template) counts as unset.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from python_backend.config import Deployment, load_deployment
from python_backend.model_settings import ModelSettings
from python_backend.roles.confinement import check_confined
from python_backend.transport.directory import open_run_dir, run_dir
from router_backend.core.errors import ConfigError

DEPLOYMENT_FILE = "deployment.yaml"
ENGINE_DIR = "engine"
"""A TensorRT-LLM engine's folder in its model's; Hugging Face's small files lie beside it."""


@dataclass(frozen=True, slots=True)
class Place:
    """One Triton model instance."""

    name: str
    repository: Path
    parameters: Mapping[str, str] = field(default_factory=dict)
    instance: str = ""
    """Differs between the instances of one model."""

    def parameter(self, name: str, default: str) -> str:
        return self.parameters.get(name, default)

    def required(self, name: str) -> str:
        if name not in self.parameters:
            raise ConfigError(f"{self.name}: parameter {name!r} is missing in config.pbtxt")
        return self.parameters[name]

    def deployment(self) -> Deployment:
        """Read, and kept inside the repository."""
        deployment = load_deployment(self.repository / self.parameter("deployment", DEPLOYMENT_FILE))
        check_confined(deployment, self.repository)
        return deployment

    def tokenizer_dir(self) -> Path:
        return tokenizer_dir(self.deployment(), self.repository)


def place_of(args: Mapping[str, str]) -> Place:
    """From the arguments of Triton's `initialize`."""
    found = json.loads(args["model_config"]).get("parameters", {})
    values = {name: entry.get("string_value", "") for name, entry in found.items()}
    return Place(
        name=args["model_name"],
        repository=Path(args["model_repository"]).parent,
        parameters={name: value for name, value in values.items() if is_set(value)},
        instance=args["model_instance_name"],
    )


def is_set(value: str) -> bool:
    return bool(value) and not (value.startswith("${") and value.endswith("}"))


def model_dir(deployment: Deployment, repository: Path, name: str) -> Path:
    return own_dir(deployment.model(name), repository)


def own_dir(model: ModelSettings, repository: Path) -> Path:
    """Where the deployment says that the model's Hugging Face files lie."""
    return repository / (model.model_dir or f"{model.name}/1")


def engine_dir(model: ModelSettings, repository: Path) -> Path:
    """Where the deployment says that the model's TensorRT-LLM engine lies."""
    return repository / model.engine_dir if model.engine_dir else own_dir(model, repository) / ENGINE_DIR


def tokenizer_dir(deployment: Deployment, repository: Path) -> Path:
    """What the settings say, else the entry model's own directory."""
    configured = deployment.front.tokenizer_dir
    entry = deployment.names[deployment.entry_index]
    return repository / configured if configured else model_dir(deployment, repository, entry)


def socket_dir(deployment: Deployment) -> Path:
    """The private folder of this server's sockets, the same for all of its processes."""
    return open_run_dir(run_dir(deployment.run_dir, os.environ, os.getppid()))


def end_ids(directory: Path) -> frozenset[int]:
    """End tokens of a Hugging Face model directory."""
    found: set[int] = set()
    for name in ("config.json", "generation_config.json"):
        path = directory / name
        ids = json.loads(path.read_text()).get("eos_token_id") if path.exists() else None
        found.update(ids if isinstance(ids, list) else [] if ids is None else [ids])
    return frozenset(found)
