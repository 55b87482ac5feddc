"""Where the sockets of one server live, and who may enter."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from python_backend.transport import directory
from router_backend.core.errors import ConfigError


def test_the_environment_comes_before_the_configuration_and_both_before_the_default(tmp_path: Path) -> None:
    environment = {directory.ENVIRONMENT_KEY: str(tmp_path / "environment")}

    assert directory.run_dir("/configured", environment, 7) == tmp_path / "environment"
    assert directory.run_dir("/configured", {}, 7) == Path("/configured")
    assert directory.run_dir("", {}, 7) == Path(tempfile.gettempdir()) / f"token_router-{os.getuid()}" / "7"


def test_a_relative_folder_is_made_absolute() -> None:
    assert directory.run_dir("run", {}, 7) == Path.cwd() / "run"


def test_a_new_folder_admits_only_its_owner(tmp_path: Path) -> None:
    folder = directory.open_run_dir(tmp_path / "base" / str(os.getpid()))

    modes = [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder.parent)]
    assert modes == [0o700, 0o700]


def test_opening_a_folder_twice_is_harmless(tmp_path: Path) -> None:
    folder = directory.open_run_dir(tmp_path / "run")

    assert directory.open_run_dir(tmp_path / "run") == folder


def test_folders_of_dead_servers_are_removed_and_others_stay(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for name in (str(ended.pid), "1", "notes"):
        (tmp_path / name).mkdir()
    (tmp_path / str(ended.pid) / "small.ipc").touch()
    tmp_path.chmod(0o700)

    directory.open_run_dir(tmp_path / str(os.getpid()))

    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["1", str(os.getpid()), "notes"])


def test_a_process_of_somebody_else_counts_as_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(pid: int, signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr(directory.os, "kill", forbidden)

    assert directory.is_alive(1)


def test_a_folder_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)

    with pytest.raises(ConfigError, match=r"others may enter .*open: chmod 700"):
        directory.open_run_dir(tmp_path / "open")


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(ConfigError, match=r"cannot make .*file: File exists"):
        directory.open_run_dir(tmp_path / "file")


def test_a_link_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")

    with pytest.raises(ConfigError, match=r"link is not a folder"):
        directory.open_run_dir(tmp_path / "link")


def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = directory.open_run_dir(tmp_path / "run")
    monkeypatch.setattr(directory.os, "getuid", lambda: os.geteuid() + 1)

    with pytest.raises(ConfigError, match=f"belongs to user {os.geteuid()}"):
        directory.open_run_dir(folder)


def test_an_endpoint_has_one_socket_file(tmp_path: Path) -> None:
    assert directory.socket_path(Path("/run/t"), "small") == Path("/run/t/small.ipc")


@pytest.mark.parametrize("name", ["", "../small", "a/b", ".hidden", "x" * 65, "small\n"])
def test_a_name_that_is_no_file_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"endpoint: "):
        directory.socket_path(Path("/run/t"), name)


def test_the_longest_path_is_107_bytes() -> None:
    fits = "/" + "d" * (107 - len("/" + "/small.ipc"))

    assert len(str(directory.socket_path(Path(fits), "small"))) == 107
    with pytest.raises(ConfigError, match=r"has 108 bytes, a socket path may have 107: set run_dir"):
        directory.socket_path(Path(fits + "d"), "small")
