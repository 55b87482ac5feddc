"""The model repository of an emulated pair: scripted engines behind the real front and real subservers."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import yaml

from python_backend.config import Deployment, parse_deployment
from router_backend.scheduler.rounds import Mode
from tools.emulation.pair import NAMES, SCRIPT, EmulatedPair
from tools.make_repository import repository_files, write
from tools.triton_layout import ROOT
from tools.triton_server import ServerOptions

TOKENIZER = ROOT / "model_repository" / "small" / "1"
DOOR = "token_router"


@dataclass(frozen=True, slots=True)
class Setting:
    """How a pair is run."""

    pair: EmulatedPair
    mode: Mode
    thresholds: tuple[int, ...]
    """One per model, on each of its replicas."""
    replicas: int = 1
    """Of the large model."""


def server_options(setting: Setting, run_dir: Path) -> ServerOptions:
    """What serves the pair, everything of it in `run_dir`, which is emptied first."""
    shutil.rmtree(run_dir, ignore_errors=True)
    repository = run_dir / "repository"
    loaded = (DOOR, *write_repository(setting, repository).subservers)
    return ServerOptions(repository, run_dir, load_models=loaded, exit_timeout_s=5)


def write_repository(setting: Setting, folder: Path) -> Deployment:
    """ConfigError for what no deployment can be, like replicas in a barrier mode."""
    folder.mkdir(parents=True)
    tokenizer = folder / "tokenizer"
    tokenizer.mkdir()
    for path in TOKENIZER.glob("tokenizer*.json"):
        shutil.copy(path, tokenizer)
    for name, document in setting.pair.documents().items():
        (folder / name).write_text(json.dumps(document))
    text = deployment_text(setting)
    (folder / "deployment.yaml").write_text(text)
    deployment = parse_deployment(text, "emulation")
    write(repository_files(deployment), folder)
    return deployment


def deployment_text(setting: Setting) -> str:
    """The deployment: every token is sent at once, so that gaps between tokens can be measured."""
    counts = (1, setting.replicas)
    return yaml.safe_dump(
        {
            "models": [_model(*one) for one in zip(NAMES, setting.thresholds, counts, strict=True)],
            "policy": {"name": "r_stitch", "params": {"cutoff": 0.5}},
            "mode": setting.mode.value,
            "deadline_ms": deadline_ms(setting.pair),
            "front": {"tokenizer_dir": "tokenizer", "flush_tokens": 1, "flush_ms": 0.0},
        }
    )


def deadline_ms(pair: EmulatedPair) -> float:
    """Three steps of the slower model: planner.md asks for at least 1.4 of them."""
    return 3.0 * max(latency.step_ms(1) for latency in pair.latencies)


def _model(name: str, threshold: int, replicas: int) -> dict[str, object]:
    engine = {"engine": "scripted", "script": SCRIPT, "kv_tokens": 1 << 16}
    return {"name": name, "threshold": threshold, "replicas": replicas, **engine}
