"""What a TensorRT-LLM model will take of each of its GPUs, known before anything is loaded.

Reads config.json, the sizes of files and the header of one; no torch, no tensorrt_llm. KV is exact; weights
are the size of their files; what the library takes for itself (`workspace`) no file tells: the deployment
states it. Contract-tested; unverified on hardware until tools.check_trtllm has run.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import MappingProxyType

from python_backend.runner.torch_runner.footprint import EngineBytes, StepLimits
from python_backend.runner.torch_runner.model_config import ModelConfig
from python_backend.runner.trtllm_runner.engine_config import EngineConfig, engine_file
from router_backend.core.errors import ConfigError

EMBEDDING = "model.embed_tokens.weight"
"""Its type is that of the keys and values in the PyTorch flow."""
TYPE_BYTES = MappingProxyType({"float32": 4, "float16": 2, "bfloat16": 2, "F32": 4, "F16": 2, "BF16": 2})
"""By the names that trtllm-build and safetensors write."""
LOGIT_BYTES = 4 + 4 + 8
"""Of a logit: as the engine gives it, as float32, and as sampling sorts it."""


def engine_footprint(
    engine_dir: Path, config: EngineConfig, rank: int, limits: StepLimits, workspace: int
) -> EngineBytes:
    """Of one rank of a built engine; ConfigError names a file that is not there."""
    numbers = 2 * config.num_layers * config.rank_kv_heads * config.head_dim
    per_token = numbers * _bytes(config.dtype, engine_dir)
    capacity = 4 * limits.rows * config.max_seq_len  # of the input cache_indirection
    own = workspace + capacity + limits.rows * config.vocab_size * LOGIT_BYTES
    return EngineBytes(_size(engine_file(engine_dir, rank)), own, per_token)


def flow_footprint(
    model_dir: Path, config: ModelConfig, num_ranks: int, limits: StepLimits, workspace: int
) -> EngineBytes:
    """Of one of `num_ranks` ranks that read a Hugging Face directory; the weights are shared out evenly."""
    weights = sum(map(_size, model_dir.glob("*.safetensors")))
    heads = max(1, config.num_kv_heads // num_ranks)
    per_token = 2 * config.num_layers * heads * config.head_dim * _bytes(_cache_type(model_dir), model_dir)
    own = workspace + limits.rows * config.vocab_rows * LOGIT_BYTES
    return EngineBytes(-(-weights // num_ranks), own, per_token)


def _bytes(dtype: str, source: Path) -> int:
    if dtype not in TYPE_BYTES:
        raise ConfigError(f"{source}: keys and values of type {dtype} are not one of {', '.join(TYPE_BYTES)}")
    return TYPE_BYTES[dtype]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise ConfigError(
            f"{path}: {error.strerror}: build it with python -m tools.build_engine, one file per rank"
        ) from error


def _cache_type(model_dir: Path) -> str:
    """As safetensors calls it."""
    for path in sorted(model_dir.glob("*.safetensors")):
        with path.open("rb") as file:
            # A file begins with the length of its JSON header: 8 bytes, little endian.
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        if EMBEDDING in header:
            return str(header[EMBEDDING]["dtype"])
    raise ConfigError(f"{model_dir}: no *.safetensors with {EMBEDDING}")
