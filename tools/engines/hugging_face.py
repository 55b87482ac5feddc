"""What a Hugging Face directory says about itself before an engine is made of it.

Reads config.json and the names of tensors; loads no weights. A problem is one sentence with its cure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from router_backend.core.errors import ConfigError

FAMILIES = {
    "qwen3": "qwen",
    "qwen2": "qwen",
    "llama": "llama",
}
"""Model types that `convert_checkpoint.py` of 1.0.0 to 1.2.1 converts and our runner drives, and the folder
of their converter below `models/core`."""
TAPS = {"qwen": "RoutedQWen", "llama": "RoutedLLaMA"}
"""Classes of `tools/trtllm_tap.py` by that folder."""
BESIDE_THE_ENGINE = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
)
"""What the front and the agreement between the models read; the weights are in the engine."""
BF16_BYTES = 2


@dataclass(frozen=True, slots=True)
class HuggingFaceModel:
    """The numbers of config.json that a build depends on."""

    folder: Path
    model_type: str
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    length_max: int
    is_tied: bool

    @property
    def converter(self) -> str:
        """Relative to TensorRT-LLM's examples."""
        return f"models/core/{FAMILIES[self.model_type]}/convert_checkpoint.py"

    @property
    def tap(self) -> str:
        return TAPS[FAMILIES[self.model_type]]

    def kv_bytes(self, ranks: int) -> int:
        """Bytes of KV cache per token on each rank, in bfloat16."""
        heads = max(1, self.kv_heads // ranks)
        return self.layers * 2 * heads * self.head_size * BF16_BYTES


def read_model(folder: Path) -> HuggingFaceModel:
    """ConfigError names the file and the key that is missing."""
    path = folder / "config.json"
    try:
        fields = json.loads(path.read_text())
    except OSError as error:
        raise ConfigError(
            f"--model-dir: {folder} is no Hugging Face directory: config.json: {error.strerror}"
        ) from error
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON: {error}") from error
    if fields.get("model_type") not in FAMILIES:
        raise ConfigError(
            f"{path}: model_type: {fields.get('model_type')!r} is not one of {', '.join(FAMILIES)}: "
            "serve it with the engine torch"
        )
    try:
        return _read(folder, fields)
    except KeyError as error:
        raise ConfigError(f"{path}: {error.args[0]} is missing") from error


def _read(folder: Path, fields: Mapping[str, Any]) -> HuggingFaceModel:
    heads = int(fields["num_attention_heads"])
    return HuggingFaceModel(
        folder=folder,
        model_type=str(fields["model_type"]),
        layers=int(fields["num_hidden_layers"]),
        heads=heads,
        kv_heads=int(fields.get("num_key_value_heads", heads)),
        head_size=int(fields.get("head_dim") or fields["hidden_size"] // heads),
        length_max=int(fields["max_position_embeddings"]),
        is_tied=bool(fields.get("tie_word_embeddings", False)),
    )


def problems(model: HuggingFaceModel, ranks: int) -> Iterator[str]:
    """Why this directory would not become an engine on `ranks` ranks."""
    if not (model.folder / "tokenizer.json").is_file():
        yield f"{model.folder} has no tokenizer.json: the front reads it; save the tokenizer there"
    names = tensor_names(model.folder)
    if not names:
        yield f"{model.folder} has no *.safetensors: download the weights, or save them as safetensors"
    elif model.is_tied and "lm_head.weight" not in names:
        yield (
            f"{model.folder}: lm_head.weight is not in the safetensors and the converter does not tie it to "
            "the embedding: load the model, set tie_word_embeddings to False, give lm_head a copy of the "
            "embedding and save it again"
        )
    for word, count in (("num_attention_heads", model.heads), ("num_key_value_heads", model.kv_heads)):
        if count % ranks:
            yield f"--tp {ranks} does not divide {word} {count}: choose a divisor"


def tensor_names(folder: Path) -> frozenset[str]:
    """Of every safetensors file; only headers are read."""
    return frozenset(name for path in sorted(folder.glob("*.safetensors")) for name in _header(path))


def _header(path: Path) -> list[str]:
    """A safetensors file begins with the length of its JSON header, 8 bytes, little endian."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        return [name for name in json.loads(file.read(size)) if name != "__metadata__"]
