"""One rank of a tensor-parallel torch engine: `python -m ...rank SETTINGS SOCKET`, started by `building`.

The ranks meet in the private folder of the subserver's socket.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from python_backend.runner.ranks.local_communicator import LocalCommunicator
from python_backend.runner.ranks.worker import refuse, serve
from python_backend.runner.torch_runner.parallel import ProcessGroup
from python_backend.runner.torch_runner.runner import TorchRunner
from python_backend.runner.torch_runner.settings import unpacked
from router_backend.core.errors import ConfigError

_log = logging.getLogger(__name__)


def main(text: str, socket_path: str) -> int:
    """0 when the subserver has gone, 2 when the engine cannot be built."""
    settings, folder = unpacked(text), Path(socket_path).parent
    communicator = LocalCommunicator.of(os.environ, folder)
    group = ProcessGroup(folder, communicator.rank, communicator.size, settings.device)
    try:
        engine = TorchRunner(settings, group)
    except ConfigError as error:
        _log.error("rank %d: %s", group.rank, error)
        if group.rank == 0:
            refuse(socket_path, error)
        return 2
    serve(engine, communicator, socket_path)
    group.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
