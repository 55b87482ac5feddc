"""From settings to a torch engine: in this process, or over several for tensor parallelism.

With several ranks this process imports no torch: all of them are children, so that a death of one is seen
within a moment and ends no server.
"""

from __future__ import annotations

from python_backend.runner.base import ModelRunner
from python_backend.runner.ranks.launching import LocalLauncher, interpreter
from python_backend.runner.ranks.ranked_runner import RankCommand, RankedRunner
from python_backend.runner.torch_runner.model_config import load_model_config
from python_backend.runner.torch_runner.settings import TorchSettings, packed

RANK_PROGRAM = "python_backend.runner.torch_runner.rank"


def build(settings: TorchSettings) -> ModelRunner:
    """The loaded engine; ConfigError names the file or the setting that is at fault."""
    if settings.tensor_parallel == 1:
        from python_backend.runner.torch_runner.runner import TorchRunner

        return TorchRunner(settings)
    load_model_config(settings.model_dir).sharded(settings.tensor_parallel)
    command = [interpreter(), "-m", RANK_PROGRAM, packed(settings)]
    return RankedRunner(LocalLauncher(settings.tensor_parallel), RankCommand(command))
