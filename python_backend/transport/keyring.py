"""CURVE keys of the endpoints: one pair each, the public halves known to all.

Owns the files of a key folder: `NAME.public` and `NAME.secret`, Z85 text. A host needs every public half and
the secret halves of its own endpoints only. The invariant: a secret half that others may read is refused.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import zmq

from router_backend.core.errors import ConfigError

KEY_CHARACTERS = 40


@dataclass(frozen=True, slots=True)
class Keyring:
    """Of the endpoint `name`; `public` holds every endpoint's public key, its own included."""

    name: str
    secret: bytes = field(repr=False)
    public: Mapping[str, bytes]

    def public_key(self, endpoint: str) -> bytes:
        if endpoint not in self.public:
            raise ConfigError(f"keys: {endpoint}.public is missing: copy it here from tools.make_keys")
        return self.public[endpoint]

    def owner(self, public_key: bytes) -> str | None:
        """The endpoint that has this public key (Z85); None for a stranger's."""
        return next((name for name, key in self.public.items() if key == public_key), None)


def read_keyring(folder: Path, name: str) -> Keyring:
    """The keys that endpoint `name` needs; ConfigError names the file that is missing or may be read."""
    public = {path.stem: _read(path) for path in sorted(folder.glob("*.public"))}
    secret = folder / f"{name}.secret"
    try:
        mode = stat.S_IMODE(secret.stat().st_mode)
    except OSError as error:
        cure = "python -m tools.make_keys DEPLOYMENT makes it"
        raise ConfigError(f"keys: {secret}: {error.strerror}: {cure}") from error
    if mode & 0o077:
        raise ConfigError(f"keys: others may read {secret}: chmod 600 it")
    ring = Keyring(name, _read(secret), public)
    if zmq.curve_public(ring.secret) != ring.public_key(name):
        raise ConfigError(f"keys: {name}.public does not belong to {name}.secret: copy both from one run")
    return ring


def write_keys(folder: Path, names: Iterable[str]) -> list[str]:
    """Make a pair for each of `names` that has none; returns those. Files 0600 in a folder 0700."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = [name for name in names if not (folder / f"{name}.secret").exists()]
    for name in made:
        public, secret = zmq.curve_keypair()
        _write(folder / f"{name}.secret", secret)
        _write(folder / f"{name}.public", public)
    return made


def _read(path: Path) -> bytes:
    key = path.read_bytes().strip()
    if len(key) != KEY_CHARACTERS:
        raise ConfigError(f"keys: {path} is not a key: it has {len(key)} characters, not {KEY_CHARACTERS}")
    return key


def _write(path: Path, key: bytes) -> None:
    """Never readable by others, not even for a moment."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(key + b"\n")
