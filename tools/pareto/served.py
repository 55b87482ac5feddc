"""The demo pair with router heads trained for it, on a Triton of its own, and questions it never saw."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import yaml

from tools import train_router
from tools.demo_pair.task import answer_text, prompt_text, sample_chains
from tools.serving.placement import DEPLOYMENT, Wishes, place
from tools.triton_layout import ROOT
from tools.triton_server import ServerOptions, TritonServer
from tools.try_routing import DOOR, Question

HEADS = ("citer", "r2r")
FIRST_SEED = 1000
"""Far from the seeds of the task's own training and evaluation."""


def fresh_questions(seed: int, count: int) -> tuple[Question, ...]:
    """`count` questions of the demo task, the same for the same seed."""
    chains = sample_chains(np.random.default_rng(FIRST_SEED + seed), count)
    return tuple(Question(prompt_text(chains, row), answer_text(chains, row)) for row in range(count))


@contextlib.contextmanager
def serving(folder: Path, tell: Callable[[str], None]) -> Iterator[TritonServer]:
    """The server; everything is written to `folder`."""
    source, target = folder / "source", folder / "repository"
    shutil.copytree(ROOT / "model_repository", source)
    for head in HEADS:
        tell(f"training {head}")
        options = [head, str(source / _head(head)), "--deployment", str(source / DEPLOYMENT), "--json"]
        with contextlib.redirect_stdout(None):
            status = train_router.main(options)
        if status:
            raise RuntimeError(f"train_router {head} ended with {status}")
    _name_heads(source / DEPLOYMENT)
    deployment = place(source, target, Wishes())
    models = (DOOR, *deployment.subservers)
    with TritonServer(ServerOptions(target, folder / "run", load_models=models, exit_timeout_s=5)) as server:
        yield server


def _head(name: str) -> str:
    return f"small/1/heads/{name}"


def _name_heads(path: Path) -> None:
    settings = yaml.safe_load(path.read_text())
    settings["models"][0]["heads"] = {name: _head(name) for name in HEADS}
    path.write_text(yaml.safe_dump(settings, sort_keys=False))
