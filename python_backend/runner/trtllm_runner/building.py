"""From settings to a runner: in this process for one rank, as an MPI job for several.

Contract-tested; unverified on hardware until tools.check_trtllm has run. With several ranks this process
imports neither torch nor tensorrt_llm.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from python_backend.runner.base import ModelRunner
from python_backend.runner.ranks.launching import MpiLauncher, interpreter
from python_backend.runner.ranks.ranked_runner import RankCommand, RankedRunner
from python_backend.runner.resuming import Resume, ResumingRunner
from python_backend.runner.trtllm_runner.engine_config import load_engine_config
from python_backend.runner.trtllm_runner.settings import TrtllmSettings, packed
from router_backend.core.errors import ConfigError

WORKER = "python_backend.runner.trtllm_runner.worker"
ENVIRONMENT = {"FORCE_NCCL_ALL_REDUCE_STRATEGY": "1"}
"""Plain NCCL: custom all-reduce opens memory across processes, which MPS may forbid (trtllm.md section 8)."""
VISIBLE = "CUDA_VISIBLE_DEVICES"


def build(settings: TrtllmSettings) -> ModelRunner:
    """The loaded engine; ConfigError says what is missing and what to run."""
    runner = _ranked(settings) if settings.tensor_parallel > 1 else _single(settings)
    return runner if settings.resume is Resume.MID_BLOCK else ResumingRunner(runner, settings.resume)


def _single(settings: TrtllmSettings) -> ModelRunner:
    from python_backend.runner.trtllm_runner.runner import TrtllmRunner

    return TrtllmRunner(settings)


def _ranked(settings: TrtllmSettings) -> ModelRunner:
    load_engine_config(settings.engine_dir)
    # Upstream takes a rank's number for its GPU's, so the ranks see their own GPUs only.
    command = [interpreter(), "-m", WORKER, packed(replace(settings, first_gpu=0))]
    environment = {**ENVIRONMENT, **visible_gpus(settings, os.environ)}
    return RankedRunner(MpiLauncher(settings.tensor_parallel), RankCommand(command, environment))


def visible_gpus(settings: TrtllmSettings, environment: Mapping[str, str]) -> dict[str, str]:
    """What lets the ranks see their own GPUs of those that this process may see; empty from the first on."""
    first, end = settings.first_gpu, settings.first_gpu + settings.tensor_parallel
    if first == 0:
        return {}
    seen = environment.get(VISIBLE, ",".join(map(str, range(end)))).split(",")
    if len(seen) < end:
        raise ConfigError(f"device, tensor_parallel: no GPU {end - 1}, {VISIBLE} is {','.join(seen)}")
    return {VISIBLE: ",".join(seen[first:end])}
