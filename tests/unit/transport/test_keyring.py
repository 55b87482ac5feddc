"""The files of a key folder."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from python_backend.transport.keyring import read_keyring, write_keys
from router_backend.core.errors import ConfigError


def test_keys_are_private_files_and_a_pair_that_is_there_stays(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    made = write_keys(folder, ["small", "large"])
    before = read_keyring(folder, "small")
    again = write_keys(folder, ["small", "large", "router"])

    modes = {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert (made, again, modes) == (["small", "large"], ["router"], {0o600})
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    after = read_keyring(folder, "small")
    assert (after.secret, sorted(after.public)) == (before.secret, ["large", "router", "small"])
    assert [after.owner(key) for key in after.public.values()] == list(after.public)
    assert (after.owner(b"x" * 40), before.secret.decode() in repr(before)) == (None, False)


def test_a_secret_that_is_missing_or_that_others_may_read_is_refused(tmp_path: Path) -> None:
    write_keys(tmp_path, ["small"])
    with pytest.raises(ConfigError, match=r"keys: .*large.secret: No such file.*tools.make_keys"):
        read_keyring(tmp_path, "large")
    (tmp_path / "small.secret").chmod(0o640)
    with pytest.raises(ConfigError, match=r"others may read .*small.secret: chmod 600"):
        read_keyring(tmp_path, "small")


def test_halves_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    write_keys(tmp_path, ["small", "large"])
    (tmp_path / "small.public").write_bytes((tmp_path / "large.public").read_bytes())
    with pytest.raises(ConfigError, match=r"small.public does not belong to small.secret"):
        read_keyring(tmp_path, "small")
    (tmp_path / "small.public").write_text("short")
    with pytest.raises(ConfigError, match=r"small.public is not a key: it has 5 characters"):
        read_keyring(tmp_path, "small")
