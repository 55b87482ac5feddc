"""One rank of a tensor-parallel TensorRT engine: `mpirun -n R python -m ...worker SETTINGS SOCKET`.

Contract-tested; unverified on hardware until tools.check_trtllm has run. Keeps CUDA, MPI and
TensorRT-LLM out of Triton's Python process.
"""

from __future__ import annotations

import logging
import sys

from python_backend.runner.base import ModelRunner
from python_backend.runner.ranks.worker import refuse, serve
from python_backend.runner.trtllm_runner.installation import engine_installation
from python_backend.runner.trtllm_runner.mpi_communicator import MpiCommunicator
from python_backend.runner.trtllm_runner.settings import TrtllmSettings, unpacked
from router_backend.core.errors import ConfigError

_log = logging.getLogger(__name__)


def build_rank(settings: TrtllmSettings) -> ModelRunner:
    """This rank's engine. What is missing in the installation is told before anything heavy is imported."""
    from python_backend.runner.trtllm_runner.runner import TrtllmRunner

    return TrtllmRunner(settings)


def main(settings: str, socket_path: str) -> int:
    """0 when the subserver has gone, 2 when the engine cannot be built."""
    rank = 0
    try:
        communicator = MpiCommunicator(engine_installation().mpi_comm())
        rank = communicator.rank
        engine = build_rank(unpacked(settings))
    except ConfigError as error:
        _log.error("rank %d: %s", rank, error)
        if rank == 0:
            refuse(socket_path, error)
        return 2
    serve(engine, communicator, socket_path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
