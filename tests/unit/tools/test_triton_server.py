"""Laying out and addressing a server, without starting one (tests/server starts them)."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from tools import triton_layout
from tools.triton_layout import (
    LOOPBACK,
    SERVER_ROOT,
    STUB,
    TOKEN_ROUTER_BACKEND,
    Ports,
    ServerError,
    chosen_ports,
    installation,
    lay_out_backends,
    server_environment,
    stub_source,
    wheel,
)
from tools.triton_server import ServerOptions, TritonServer, children, fronts, hears_everybody

PAGE = """
token_router_peer_up{door="token_router",model="small"} 1
token_router_peer_up{door="token_router",model="large"} 1.000000
token_router_peer_up{door="router",model="small"} 1
token_router_peer_up{door="router",model="large"} 0
"""


def test_free_ports_differ_and_a_given_one_is_kept() -> None:
    ports = chosen_ports(Ports())
    assert len({ports.http, ports.grpc, ports.metrics, 0}) == 4
    assert chosen_ports(ports) == ports


def test_a_taken_port_is_named_with_a_way_out() -> None:
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ServerError, match=f"grpc port {port} cannot be used .*GRPC_PORT"):
            chosen_ports(Ports(grpc=port))


def test_the_backend_folder_holds_the_stub_of_this_python_and_our_backend(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    folder = lay_out_backends(tmp_path, (TOKEN_ROUTER_BACKEND,))
    assert sorted(path.name for path in folder.iterdir()) == ["python", "token_router"]
    assert os.access(folder / "python" / STUB, os.X_OK)
    text = (folder / "token_router" / "model.py").read_text()
    assert text.startswith("from python_backend.model import TritonPythonModel")


def test_the_environment_puts_this_python_and_the_wheels_libraries_first() -> None:
    environment = server_environment({"EXTRA": "1"})
    assert environment["PATH"].split(":")[0] == str(Path(sys.executable).parent)
    assert environment["LD_LIBRARY_PATH"].split(":")[0].endswith("nvidia_pytriton.libs")
    assert environment["EXTRA"] == "1"


def test_a_missing_wheel_and_a_missing_stub_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(triton_layout, "wheel", lambda: tmp_path)
    with pytest.raises(ServerError, match="no stub for Python"):
        stub_source()
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(ServerError, match="pip install nvidia-pytriton"):
        wheel()


def test_a_containers_server_is_used_where_the_environment_names_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(SERVER_ROOT, str(tmp_path))
    with pytest.raises(ServerError, match="bin/tritonserver is not there: unset it"):
        installation()
    for name in ("bin/tritonserver", f"backends/python/{STUB}", "backends/python/libtriton_python.so"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)

    folder = lay_out_backends(tmp_path / "laid", ())

    assert installation().binary == tmp_path / "bin" / "tritonserver"
    assert sorted(path.name for path in (folder / "python").iterdir()) == ["libtriton_python.so", STUB]
    assert "nvidia_pytriton" not in server_environment({})["LD_LIBRARY_PATH"].split(":")[0]


def test_a_server_listens_where_it_is_told(tmp_path: Path) -> None:
    command = TritonServer(ServerOptions(tmp_path, tmp_path, host="0.0.0.0"))._command(tmp_path)
    assert [word for word in command if word.endswith("-address=0.0.0.0")] == [
        *("--http-address=0.0.0.0", "--grpc-address=0.0.0.0", "--metrics-address=0.0.0.0"),
    ]


def test_a_front_is_ready_when_it_hears_every_subserver() -> None:
    assert [hears_everybody(door, PAGE) for door in ("token_router", "router", "other")] == [
        True,
        False,
        False,
    ]


def test_fronts_are_found_in_the_repository(tmp_path: Path) -> None:
    for name, role in (("a", "front"), ("b", "subserver"), ("c", "front")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.pbtxt").write_text(f'value: {{ string_value: "{role}" }}')
    assert (fronts(tmp_path, None), fronts(tmp_path, ("b", "c"))) == (("a", "c"), ("c",))


def test_explicit_loading_and_extra_arguments_are_on_the_command_line(tmp_path: Path) -> None:
    options = ServerOptions(tmp_path, tmp_path, load_models=("a", "b"), arguments=("--log-verbose=1",))
    command = TritonServer(options)._command(tmp_path)
    assert command[-4:] == [
        "--model-control-mode=explicit",
        "--load-model=a",
        "--load-model=b",
        "--log-verbose=1",
    ]
    assert "--disable-auto-complete-config" in command
    assert [word for word in command if word.startswith("--http-address")] == [f"--http-address={LOOPBACK}"]


def test_a_server_that_was_not_started_can_be_killed_and_stopped_and_has_no_log(tmp_path: Path) -> None:
    others = children(os.getpid())
    server = TritonServer(ServerOptions(tmp_path, tmp_path))
    server.kill()
    server.stop()
    assert (server.is_alive, server.log_tail(), children(os.getpid())) == (False, "", others)
