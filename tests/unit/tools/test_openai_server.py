"""The command around the HTTP application: keys, ports, and its end with its parent."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
import uvicorn

import tools.openai_server as tool
from tools.openai_server import ServerFault, bound, main, read_keys, serve


def test_keys_are_the_lines_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# ours\n first \n\nsecond\n")
    assert (read_keys(file), read_keys(None)) == (("first", "second"), ())


def test_a_file_without_keys_opens_nothing(tmp_path: Path) -> None:
    empty = tmp_path / "keys"
    empty.write_text("# none\n")
    with pytest.raises(ServerFault, match="holds no key"):
        read_keys(empty)
    with pytest.raises(ServerFault, match="No such file"):
        read_keys(tmp_path / "absent")


def test_a_busy_port_is_named_with_its_cure(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        assert main(["--port", str(port)]) == 1
    error = capsys.readouterr().err
    assert f"openai port {port} cannot be used" in error
    assert "OPENAI_PORT" in error


async def _nothing(scope: object, receive: object, send: object) -> None:
    """An application that is never asked."""


def test_it_ends_when_its_parent_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool, "LOOK_S", 0.01)
    config = uvicorn.Config(_nothing, lifespan="off", log_level="error")
    with bound("127.0.0.1", 0) as listener:
        asyncio.run(serve(tool.OrderlyServer(config), listener, parent=-1))
