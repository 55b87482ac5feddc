"""Two emulated ranks of one engine, started by an emulated mpirun, under the real launcher and protocol."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
import torch

from python_backend.runner.ranks.ranked_runner import RankedRunner
from python_backend.runner.trtllm_runner.building import build
from python_backend.runner.trtllm_runner.settings import TrtllmSettings
from router_backend.core.errors import ConfigError, EngineLostError
from router_backend.scheduler.batch import BatchPlan, LaunchReason, Needs
from tests import reference
from tests.contract.emulated import ENVIRONMENT, Build, lay_out
from tests.contract.test_trtllm_random_batches import POOL_TOKENS, ROWS_MAX, World, compare
from tests.source_tree import ROOT
from tests.tiny_models import TinyModel, tiny_model_dir
from tools.triton_server import children

STEPS = 60
DEATH_KNOWN_S_MAX = 10.0
"""Two seconds, on a machine five times slower."""
MODEL = TinyModel("qwen3", seed=3)


@pytest.fixture(autouse=True)
def emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the ranks; `PMIX_RANK` is what this process would inherit as part of another MPI job."""
    for name, value in {**ENVIRONMENT, "PMIX_RANK": "3", "OMP_NUM_THREADS": "1"}.items():
        monkeypatch.setenv(name, value)
    torch.set_num_threads(1)


def settings(folder: Path, chosen: Build | None = None) -> TrtllmSettings:
    lay_out(folder / "large", tiny_model_dir(MODEL), chosen or Build(tp_size=2))
    place = folder / "large"
    return TrtllmSettings(
        place / "engine", place, POOL_TOKENS, batch_max=ROWS_MAX, batch_tokens_max=200, tensor_parallel=2
    )


def test_two_ranks_answer_as_one_and_the_death_of_one_is_known_in_time(tmp_path: Path) -> None:
    """Each rank computes from its own pool: a plan or a block table that differed would show in the sums."""
    runner = build(settings(tmp_path))
    assert isinstance(runner, RankedRunner)
    try:
        network = reference.load(tiny_model_dir(MODEL), torch.float64)
        compare(runner, World(7, torch.zeros(POOL_TOKENS)), network, STEPS)
        kill_one(runner)
    finally:
        runner.close()


def kill_one(runner: RankedRunner) -> None:
    batch = World(1, torch.zeros(POOL_TOKENS)).batch()
    plan = BatchPlan(1, tuple(row for _, row in batch), Needs(), LaunchReason.DRAIN)
    ranks = ranks_of(runner)
    os.kill(ranks[1], signal.SIGKILL)

    killed_at = time.monotonic()
    with pytest.raises(EngineLostError):
        while time.monotonic() < killed_at + 60:
            runner.execute(plan)
    took_s = time.monotonic() - killed_at
    assert took_s < DEATH_KNOWN_S_MAX
    assert not [pid for pid in ranks if os.path.exists(f"/proc/{pid}")], "a rank outlives the engine"


def ranks_of(runner: RankedRunner) -> list[int]:
    """Process ids by rank."""
    (mpirun,) = runner._workers._children  # type: ignore[attr-defined]
    found = {}
    for pid in children(mpirun.pid):
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        found[next(word for word in variables if word.startswith(b"EMULATED_MPI_RANK="))] = pid
    return [found[name] for name in sorted(found)]


def test_what_keeps_a_rank_from_loading_is_heard_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with pytest.raises(ConfigError, match=r"tensorrt_llm is not installed; .* tools.check_trtllm"):
        build(settings(tmp_path))


def test_without_mpirun_the_image_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="mpirun is not on PATH: 2 ranks need Open MPI"):
        build(settings(tmp_path))
