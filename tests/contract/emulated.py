"""Writes engines for the emulator in `emulator/`: what trtllm-build leaves, around a Hugging Face model.

`emulator/` goes on the path of whoever runs them (`use_emulator` here, `ENVIRONMENT` for processes); an
engine file names the model's directory and lists inputs and outputs as the contract does.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from python_backend.runner.trtllm_runner.contract import TENSORS, Direction, EngineTensor, When
from tests.source_tree import ROOT

EMULATOR = ROOT / "tests" / "contract" / "emulator"
ENVIRONMENT = {
    "PYTHONPATH": f"{ROOT}:{EMULATOR}",
    "PATH": f"{EMULATOR}:{Path(sys.executable).parent}:{os.environ['PATH']}",
}
"""For processes that must find the emulated package and its mpirun."""
VOCAB_PADDING = 32


@dataclass(frozen=True)
class Build:
    """The flags of an emulated build; `config` overrides dotted keys, `tensors` what an input or output is.

    A tensor's None leaves it out; a name that the contract does not know is added as written.
    """

    tp_size: int = 1
    tokens_per_block: int = 4
    max_batch_size: int = 16
    max_num_tokens: int = 512
    max_seq_len: int = 512
    is_tapped: bool = False
    config: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, dict[str, Any] | None] = field(default_factory=dict)


def write_engine(engine_dir: Path, model_dir: Path, build: Build | None = None) -> Path:
    """config.json and one file per rank in `engine_dir`."""
    chosen = build or Build()
    engine_dir.mkdir(parents=True, exist_ok=True)
    model = json.loads((model_dir / "config.json").read_text())
    config = _config(model, chosen)
    (engine_dir / "config.json").write_text(json.dumps(config))
    for rank in range(chosen.tp_size):
        plan = {**_shape(model, chosen), "rank": rank, "model_dir": str(model_dir)}
        plan["use_paged_context_fmha"] = config["build_config"]["plugin_config"]["use_paged_context_fmha"]
        plan["tensors"] = _tensors(model, chosen)
        (engine_dir / f"rank{rank}.engine").write_text(json.dumps(plan))
    return engine_dir


def lay_out(folder: Path, model_dir: Path, build: Build | None = None) -> Path:
    """A model's folder in a repository: what `model_dir` holds, and the engine beside it."""
    shutil.copytree(model_dir, folder, dirs_exist_ok=True)
    write_engine(folder / "engine", model_dir, build)
    return folder


def _head_dim(model: dict[str, Any]) -> int:
    return int(model.get("head_dim") or model["hidden_size"] // model["num_attention_heads"])


def _shape(model: dict[str, Any], build: Build) -> dict[str, Any]:
    return {
        "layers": model["num_hidden_layers"],
        "kv_heads": max(1, model["num_key_value_heads"] // build.tp_size),
        "head_dim": _head_dim(model),
        "tokens_per_block": build.tokens_per_block,
        "max_seq_len": build.max_seq_len,
        "tp_size": build.tp_size,
    }


def _config(model: dict[str, Any], build: Build) -> dict[str, Any]:
    plugins = {
        "gpt_attention_plugin": "float32",
        "remove_input_padding": True,
        "context_fmha": True,
        "use_paged_context_fmha": True,
        "tokens_per_block": build.tokens_per_block,
        "multiple_profiles": False,
        "reduce_fusion": False,
        "user_buffer": False,
        "gemm_allreduce_plugin": None,
        "streamingllm": False,
    }
    fields: dict[str, Any] = {
        "version": "1.2.1",
        "pretrained_config": {
            "architecture": model["architectures"][0],
            "dtype": "float32",
            "logits_dtype": "float32",
            "hidden_size": model["hidden_size"],
            "num_hidden_layers": model["num_hidden_layers"],
            "num_attention_heads": model["num_attention_heads"],
            "num_key_value_heads": model["num_key_value_heads"],
            "head_size": _head_dim(model),
            "vocab_size": model["vocab_size"],
            "mapping": {"world_size": build.tp_size, "tp_size": build.tp_size, "pp_size": 1},
            "quantization": {"quant_algo": None, "kv_cache_quant_algo": None},
        },
        "build_config": {
            "max_batch_size": build.max_batch_size,
            "max_num_tokens": build.max_num_tokens,
            "max_seq_len": build.max_seq_len,
            "max_beam_width": 1,
            "kv_cache_type": "PAGED",
            "gather_context_logits": False,
            "plugin_config": plugins,
        },
    }
    return _changed(fields, build.config)


def _changed(fields: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    changed = deepcopy(fields)
    for path, value in changes.items():
        *way, last = path.split(".")
        place = changed
        for key in way:
            place = place[key]
        place[last] = value
    return changed


def _tensors(model: dict[str, Any], build: Build) -> list[dict[str, Any]]:
    kinds = {When.ALWAYS}
    kinds |= {When.TENSOR_PARALLEL} if build.tp_size > 1 else set()
    kinds |= {When.TAPPED} if build.is_tapped else set()
    plain = {tensor.name: _tensor(tensor, model, build) for tensor in TENSORS if tensor.when in kinds}
    merged = {
        name: None
        if build.tensors.get(name, {}) is None
        else {**plain.get(name, {}), **(build.tensors.get(name) or {})}
        for name in (*plain, *(name for name in build.tensors if name not in plain))
    }
    return [{"name": name, **tensor} for name, tensor in merged.items() if tensor is not None]


def _tensor(tensor: EngineTensor, model: dict[str, Any], build: Build) -> dict[str, Any]:
    dynamic = {
        "N": build.max_num_tokens,
        "B": build.max_batch_size,
        "M": -(-build.max_seq_len // build.tokens_per_block),
        "capacity": build.max_seq_len,
    }
    fixed = {
        "P": 1,
        "beams": 1,
        "layers": model["num_hidden_layers"],
        "pointers": 7 * build.tp_size + 3,
        "vocab_padded": -(-model["vocab_size"] // VOCAB_PADDING) * VOCAB_PADDING,
        "hidden": model["hidden_size"],
    }
    names = tensor.shapes[0]
    dtype = "float32" if tensor.direction is Direction.OUTPUT else tensor.dtypes[0]
    return {
        "mode": tensor.direction.name,
        "dtype": dtype,
        "shape": [-1 if name in dynamic else fixed.get(name) or int(name) for name in names],
        "largest": [dynamic.get(name) or fixed.get(name) or int(name) for name in names],
    }


@contextmanager
def use_emulator() -> Iterator[None]:
    """The emulated package in this process, gone again afterwards."""
    before = set(sys.modules)
    torch.set_num_threads(1)  # tiny products: a second thread costs more than it takes off
    sys.path.insert(0, str(EMULATOR))
    try:
        yield
    finally:
        sys.path.remove(str(EMULATOR))
        for name in set(sys.modules) - before:
            if name.partition(".")[0] in ("tensorrt", "tensorrt_llm", "network", "paging"):
                del sys.modules[name]
