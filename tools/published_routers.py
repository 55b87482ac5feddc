"""Reads the three published router formats into plain tensors with this project's keys.

Trusts nothing: pickles only through torch's weights-only reader, shapes only from tensors, and every
key that is missing, misshapen or unknown is named in the refusal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from python_backend.runner.heads.card import Kind
from python_backend.runner.heads.modules import R2RClassifier
from python_backend.runner.heads.named_tensors import NamedTensors
from python_backend.runner.heads.vocabulary import tokens_by_id
from router_backend.core.errors import ConfigError

R2R_MODEL = "HiddenStatesTokenLMHeadLogitsClassifier"
DEFER_TOKEN = "<|defer|>"
OUTPUT_KEY = "lm_head.weight"
BATCH_NORM_EPSILON = 1e-5
CITER_CUTOFF = 0.9
CO_LLM_CUTOFF = 0.5


@dataclass(frozen=True, slots=True)
class PublishedHead:
    """`tensors` by the keys of `python_backend.runner.heads.modules`."""

    kind: Kind
    tensors: Mapping[str, Tensor]
    hidden_size: int
    cutoff: float | None
    topk: int = 0


def read_citer(source: Path) -> PublishedHead:
    """CITER's state_dict: Linear, BatchNorm, ReLU, Linear, Linear; BatchNorm and the last two are folded."""
    tensors = NamedTensors(_state_dict(_unpickled(source), source), str(source))
    inner, size = tensors.shape("mlp.0.weight", 2)
    up, up_bias = tensors.take("mlp.0.weight", inner, size), tensors.take("mlp.0.bias", inner)
    gamma, beta = tensors.take("mlp.1.weight", inner), tensors.take("mlp.1.bias", inner)
    mean, variance = tensors.take("mlp.1.running_mean", inner), tensors.take("mlp.1.running_var", inner)
    middle = tensors.shape("mlp.4.weight", 2)[0]
    down, down_bias = tensors.take("mlp.4.weight", middle, inner), tensors.take("mlp.4.bias", middle)
    last, last_bias = tensors.take("linear.weight", 1, middle), tensors.take("linear.bias", 1)
    tensors.drop("mlp.1.num_batches_tracked")
    tensors.refuse_rest()
    if bool((variance < 0).any()):
        raise ConfigError(f"{source}: mlp.1.running_var: negative")
    scale = gamma.double() / (variance.double() + BATCH_NORM_EPSILON).sqrt()
    folded = {
        "up.weight": scale[:, None] * up.double(),
        "up.bias": scale * (up_bias.double() - mean.double()) + beta.double(),
        "output.weight": last.double() @ down.double(),
        "output.bias": last.double() @ down_bias.double() + last_bias.double(),
    }
    return PublishedHead("citer_mlp", folded, size, CITER_CUTOFF)


def read_r2r(source: Path) -> PublishedHead:
    """R2R's dict; the embedding in it (a copy of the small model's) is checked and left out."""
    saved = _unpickled(source)
    if not isinstance(saved, Mapping) or saved.get("model_type") != R2R_MODEL:
        found = saved.get("model_type") if isinstance(saved, Mapping) else type(saved).__name__
        raise ConfigError(f"{source}: model_type: {found!r} where {R2R_MODEL!r} is known")
    state = _state_dict(saved.get("state_dict"), source)
    tensors = NamedTensors(state, str(source))
    size, topk = tensors.shape("logits_projection.weight", 2)
    embedding_size = tensors.shape("combined_projection.weight", 2)[1] - 2 * size
    if embedding_size < 1:
        raise ConfigError(f"{source}: combined_projection.weight: too narrow for hidden size {size}")
    if "token_embeddings.weight" in tensors:
        rows = tensors.shape("token_embeddings.weight", 2)[0]
        tensors.take("token_embeddings.weight", rows, embedding_size)
    R2RClassifier.take(tensors, size, embedding_size)
    tensors.refuse_rest()
    kept = {key: tensor for key, tensor in state.items() if key != "token_embeddings.weight"}
    return PublishedHead("r2r_classifier", kept, size, _r2r_cutoff(saved, source), topk)


def read_co_llm(source: Path) -> PublishedHead:
    """A Hugging Face folder: the output layer's row of the defer token, by its id, never by position."""
    ids = [token_id for token_id, token in tokens_by_id(source).items() if token == DEFER_TOKEN]
    if len(ids) != 1:
        raise ConfigError(f"{source}: tokenizer.json: {len(ids)} tokens {DEFER_TOKEN!r} where 1 is needed")
    row = _output_row(source, ids[0])
    tensors = NamedTensors({OUTPUT_KEY: row}, str(source))
    size = row.shape[-1]
    return PublishedHead("defer_row", {"row": tensors.take(OUTPUT_KEY, size)}, size, CO_LLM_CUTOFF)


READERS: MappingProxyType[str, Callable[[Path], PublishedHead]] = MappingProxyType(
    {"citer": read_citer, "co_llm": read_co_llm, "r2r": read_r2r}
)


def _unpickled(source: Path) -> Any:
    try:
        return torch.load(source, map_location="cpu", weights_only=True)
    except OSError as error:
        raise ConfigError(f"{source}: {error.strerror}") from error
    except Exception as error:  # what the reader raises over a hostile file has no common base
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigError(f"{source}: not a file of plain tensors (weights_only): {reason}") from error


def _state_dict(found: Any, source: Path) -> dict[str, Tensor]:
    if not isinstance(found, Mapping) or not found:
        raise ConfigError(f"{source}: state_dict: missing or empty")
    for key, value in found.items():
        if not isinstance(value, Tensor):
            raise ConfigError(f"{source}: {key}: a {type(value).__name__} where a tensor is needed")
    return {str(key): value for key, value in found.items()}


def _r2r_cutoff(saved: Mapping[str, Any], source: Path) -> float | None:
    arguments = saved.get("common_args")
    cutoff = arguments.get("threshold") if isinstance(arguments, Mapping) else None
    if cutoff is not None and not isinstance(cutoff, int | float):
        raise ConfigError(f"{source}: common_args.threshold: {cutoff!r} is not a number")
    return None if cutoff is None else float(cutoff)


def _output_row(model_dir: Path, row: int) -> Tensor:
    """Row `row` of the output layer, read without the rest of the checkpoint."""
    path = _shard_of(model_dir)
    try:
        with safe_open(str(path), framework="pt") as shard:
            if OUTPUT_KEY not in shard.keys():  # noqa: SIM118
                raise ConfigError(f"{path}: {OUTPUT_KEY}: missing; a tied output layer has no defer row")
            rows = shard.get_slice(OUTPUT_KEY)
            count = rows.get_shape()[0]
            if row >= count:
                raise ConfigError(f"{path}: {OUTPUT_KEY}: {count} rows, none for token id {row}")
            found: Tensor = rows[row]
            return found
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{path}: not a readable safetensors file: {error}") from error


def _shard_of(model_dir: Path) -> Path:
    index = model_dir / "model.safetensors.index.json"
    if not index.exists():
        return model_dir / "model.safetensors"
    try:
        return model_dir / str(json.loads(index.read_text(encoding="utf-8"))["weight_map"][OUTPUT_KEY])
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{index}: weight_map.{OUTPUT_KEY}: missing") from error
