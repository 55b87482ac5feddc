"""`python -m tools.openai_server` as a process beside a server, for tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.source_tree import ROOT
from tools.triton_server import TritonServer


@contextmanager
def openai_process(server: TritonServer, *arguments: str) -> Iterator[str]:
    """Its URL, without /v1; ends by itself after its open answers."""
    command = [sys.executable, "-m", "tools.openai_server", "--triton", server.grpc_address, "--port", "0"]
    with subprocess.Popen([*command, *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[-1].removesuffix("/v1")
        finally:
            process.terminate()
            assert process.wait(timeout=60) == 0
