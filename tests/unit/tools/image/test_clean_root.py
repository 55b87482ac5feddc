"""The command lines that make a folder a machine of its own. Nothing is mounted here."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tools.image.clean_root import Inside, changed_root, entering, joining, missing

ROOT = Path("/clean")
INSIDE = Inside({"A": "1"}, "7:8", "/work")
CHANGED = [
    *("chroot", "--userspec=7:8", "/clean", "/usr/bin/env", "-i", "A=1"),
    *("/bin/sh", "-c", 'cd "$0" && exec "$@"', "/work", "run", "it"),
]


def test_a_command_sees_its_user_environment_and_folder_and_nothing_of_ours() -> None:
    assert changed_root(ROOT, ("run", "it"), INSIDE) == CHANGED


def test_a_root_has_its_own_mounts_and_processes_and_its_own_network_if_it_wants_one() -> None:
    inside = Inside({"A": "1"}, "7:8", "/work", ((Path("/here"), "/there"),), has_own_network=True)
    words = entering(ROOT, ("run", "it"), inside)

    script = words.index("-c") + 1
    assert words[:script] == [
        *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--ipc", "--net", "sh", "-c"),
    ]
    assert words[script + 1 :] == ["sh", "/clean", "1g", "own", "/here", "/there", "--", *CHANGED]
    assert "--net" not in entering(ROOT, ("run", "it"), INSIDE)


def test_a_process_can_be_joined() -> None:
    assert joining(7, ["x"]) == ["nsenter", "--target=7", "--mount", "--pid", "--net", "x"]


def test_what_is_missing_is_named_with_the_package_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "debootstrap" else f"/bin/{name}")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert missing() == [
        "debootstrap is not installed: apt-get install debootstrap",
        "only root may mount and chroot: run it with sudo",
    ]
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    assert missing() == []
