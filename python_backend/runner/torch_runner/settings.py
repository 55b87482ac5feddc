"""What a deployment decides about one torch engine. Frozen; importing it loads no torch."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from python_backend.runner.torch_runner.buckets import Grid
from router_backend.core.request import ModelIndex

FIRST_MODEL = ModelIndex(0)
NO_GRAPHS = Grid((), ())


@dataclass(frozen=True, slots=True)
class TorchSettings:
    """`dtype` is auto or a key of `linears.PRECISIONS`; `kv_tokens` is the size of the KV pool in tokens.

    `length_max` None = all positions that the model was trained on. `vocab_size` None = the model's
    own real vocabulary; a smaller number is the vocabulary that all models of a deployment share,
    ids at or above it are never sampled. `model` keys the sampling draws.
    """

    model_dir: Path
    dtype: str = "float32"
    threads: int = 1
    kv_tokens: int = 65536
    block_size: int = 16
    length_max: int | None = None
    vocab_size: int | None = None
    model: ModelIndex = FIRST_MODEL
    device: str = "cpu"
    tensor_parallel: int = 1
    """Ranks, each a process with a share of every layer; on GPUs that follow each other from `device` on."""
    attention: str = "auto"
    """On a GPU: a key of `table_attention.ATTENTIONS`, or the first that is installed."""
    grid: Grid = NO_GRAPHS
    """Shapes of steps that are captured as CUDA graphs."""
    heads: tuple[tuple[str, Path], ...] = ()
    """Router heads by name, each with the folder of its artefact."""


def packed(settings: TorchSettings) -> str:
    """As text, for the command line of a rank."""
    return json.dumps(asdict(settings), default=str)


def unpacked(text: str) -> TorchSettings:
    own = json.loads(text)
    heads = tuple((name, Path(folder)) for name, folder in own.pop("heads"))
    grid = Grid(*(tuple(sizes) for sizes in own.pop("grid").values()))
    return replace(TorchSettings(Path(own.pop("model_dir")), **own), heads=heads, grid=grid)
