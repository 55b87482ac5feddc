"""One tritonserver for all server tests of a session, and proof that it leaves nothing behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import is_running
from tests.server.openai_process import openai_process
from tests.server.repository import add_fakes, options, real_repository
from tools.triton_layout import SHM
from tools.triton_server import TritonServer


def assert_nothing_left(server: TritonServer, pids: list[int]) -> None:
    assert not list(SHM.glob(f"{server.shm_prefix}*"))
    assert not [pid for pid in pids if is_running(pid)]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """The demo pair behind both doors, and `fake_text` / `fake_ensemble`."""
    folder: Path = tmp_path_factory.mktemp("triton")
    repository = add_fakes(real_repository(folder / "repository"))
    started = TritonServer(options(repository, folder / "run"))
    with started:
        pids = list(started.stubs().values())
        yield started
    assert_nothing_left(started, pids)


@pytest.fixture(scope="session")
def openai_url(server: TritonServer) -> Iterator[str]:
    """The OpenAI server in front of `server`."""
    with openai_process(server) as url:
        yield url
