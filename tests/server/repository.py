"""The repository that the server tests serve: the committed one, and doors over a fake service beside it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import yaml

from python_backend.config import parse_deployment
from tests.source_tree import ROOT
from tools.make_repository import repository_files, write
from tools.repository.models import ModelConfig, Step, configs
from tools.repository.pbtxt import rendered
from tools.triton_layout import TOKEN_ROUTER_BACKEND
from tools.triton_server import ServerOptions

COMMITTED = ROOT / "model_repository"
BACKENDS = (TOKEN_ROUTER_BACKEND, ROOT / "tests" / "server" / "backends" / "fake_router")


def real_repository(folder: Path, **settings: object) -> Path:
    """The committed deployment with `settings` changed, its weights linked."""
    committed = yaml.safe_load((COMMITTED / "deployment.yaml").read_text())
    deployment = {**committed, "allowed_dirs": [str(COMMITTED)], **settings}
    text = yaml.safe_dump(deployment)
    folder.mkdir(parents=True)
    (folder / "deployment.yaml").write_text(text)
    for name in ("small", "large"):
        (folder / name).mkdir()
        (folder / name / "1").symlink_to(COMMITTED / name / "1")
    write(repository_files(parse_deployment(text, "test")), folder)
    return folder


def scripted_repository(folder: Path, **settings: object) -> Path:
    """The same without models: 2 ms per step, every third token of the small one is uncertain."""
    models = [{"name": name, "engine": "scripted", "script": "script.json"} for name in ("small", "large")]
    real_repository(folder, **{"models": models, **settings})
    script = {"vocab_size": 128, "length_max": 4096, "latency_ms": 2.0, "uncertain_p": 0.3}
    (folder / "script.json").write_text(json.dumps(script))
    return folder


def add_fakes(folder: Path) -> Path:
    """`fake_text`, and `fake_ensemble` over `fake_router`."""
    deployment = parse_deployment((folder / "deployment.yaml").read_text(), "test")
    real = {config.name: config for config in configs(deployment)}
    put(
        folder,
        replace(real["token_router"], name="fake_text", parameters={"door": "text"}),
        backend="fake_router",
    )
    put(
        folder,
        replace(real["router"], name="fake_router", parameters={"door": "ensemble"}),
        backend="fake_router",
    )
    parameters = {"role": "postprocessing", "router": "fake_router"}
    post = replace(real["postprocessing"], name="fake_postprocessing", parameters=parameters)
    put(folder, post)
    steps = tuple(renamed(step) for step in real["ensemble"].steps)
    put(folder, replace(real["ensemble"], name="fake_ensemble", steps=steps))
    return folder


def renamed(step: Step) -> Step:
    fakes = {"router": "fake_router", "postprocessing": "fake_postprocessing"}
    return replace(step, model=fakes.get(step.model, step.model))


def put(folder: Path, config: ModelConfig, backend: str = "token_router") -> None:
    text = rendered(config).replace('backend: "token_router"', f'backend: "{backend}"')
    (folder / config.name / "1").mkdir(parents=True)
    (folder / config.name / "config.pbtxt").write_text(text)


def options(folder: Path, run_dir: Path, **changes: object) -> ServerOptions:
    return replace(ServerOptions(folder, run_dir, backends=BACKENDS, exit_timeout_s=15), **changes)
