"""The whole system over emulated TensorRT-LLM engines: every algorithm answers as its definition says.

As `test_policies_on_models`, in float32: hand-off, parking, delayed batches, caches evicted from pools that
are too small, and each way of feeding what a returning sequence has not seen. Engines read no drafts.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from python_backend.config import Deployment
from tests.contract import algorithms, heads
from tests.contract.algorithms import LARGE, NAMES, PAIR, SMALL
from tests.contract.emulated import Build, lay_out, use_emulator
from tests.contract.routed_system import RoutedSystem
from tests.contract.test_policies_on_models import Job, Referee, asked
from tests.tiny_models import tiny_model_dir

REQUESTS = 6
"""Of each algorithm."""
DRAFTING = {"cascade", "bild", "speculative"}
BUILD = Build(max_batch_size=8, max_num_tokens=64, max_seq_len=128, is_tapped=True)


@pytest.fixture(autouse=True)
def emulator() -> Iterator[None]:
    with use_emulator():
        yield


def deployment(folder: Path, resumes: tuple[str, str]) -> Deployment:
    plain = algorithms.deployment(2, heads.write_heads(folder, SMALL))
    dirs = [
        lay_out(folder / name, tiny_model_dir(source), BUILD)
        for name, source in zip(NAMES, (SMALL, LARGE), strict=False)
    ]
    models = [
        {**model.model_dump(), "engine": "trtllm", "model_dir": str(place), "resume": resume}
        for model, place, resume in zip(plain.models, dirs, resumes, strict=True)
    ]
    return Deployment.model_validate({**plain.model_dump(), "models": models})


def jobs(seed: int) -> list[Job]:
    rng = random.Random(seed)
    cases = {name: case for name, case in PAIR.items() if name not in DRAFTING}
    return [(name, case, asked(case, rng)) for _ in range(REQUESTS) for name, case in cases.items()]


@pytest.mark.parametrize("resumes", [("mid_block", "mid_block"), ("align", "one_by_one")], ids="-".join)
def test_every_algorithm_in_shared_batches_answers_as_its_definition_says(
    resumes: tuple[str, str], tmp_path: Path
) -> None:
    asks, referee = jobs(len(resumes[0])), Referee(2)
    with RoutedSystem(deployment(tmp_path, resumes), tmp_path) as system:
        clients = system.answers([ask for _, _, ask in asks], at_once=16)
        figures = system.settled_figures()

    referee.judge(asks, clients)
    assert sum(referee.judged.values()) > len(asks) - 5
    assert referee.authors == {0, 1} and referee.discarded > 0
    assert sum(one["parked_evictions"] for one in figures) > 0
    assert sum(one["direct_resumes"] for one in figures) > 0
    assert not any(one["runner_errors"] for one in figures)
