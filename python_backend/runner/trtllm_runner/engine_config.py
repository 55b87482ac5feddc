"""Reads the config.json that trtllm-build leaves beside an engine. No torch, no tensorrt_llm.

Contract-tested; unverified on hardware until tools.check_trtllm has run. Must never guess: what would
change the meaning of a tensor is read here or refused by the name of its build flag.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from python_backend.runner.trtllm_runner.contract import CONFIG_RULES, ConfigRule
from router_backend.core.errors import ConfigError

ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """One engine, all ranks of it. `version` is that of the TensorRT-LLM that built it."""

    version: str
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    hidden_size: int
    vocab_size: int
    dtype: str
    tp_size: int
    max_batch_size: int
    max_num_tokens: int
    max_seq_len: int
    tokens_per_block: int

    @property
    def rank_kv_heads(self) -> int:
        """KV heads that one rank keeps; with fewer heads than ranks each rank keeps a copy of one."""
        return max(1, self.num_kv_heads // self.tp_size)

    @property
    def blocks_per_row_max(self) -> int:
        return -(-self.max_seq_len // self.tokens_per_block)


def engine_file(engine_dir: Path, rank: int) -> Path:
    """One rank's weights and kernels."""
    return engine_dir / f"rank{rank}.engine"


def load_engine_config(engine_dir: Path) -> EngineConfig:
    """ConfigError names the file, the key and the build flag."""
    path = engine_dir / "config.json"
    try:
        fields: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"{path}: {error.strerror}: no engine here; make one with python -m tools.build_engine"
        ) from error
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON: {error}") from error
    faults = config_faults(fields)
    if faults:
        raise ConfigError(f"{path}: " + "; ".join(faults))
    try:
        return _parsed(fields)
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{path}: not what trtllm-build writes: {error!r}") from error


def config_faults(fields: Mapping[str, Any]) -> list[str]:
    """What in an engine's config.json breaks the contract, each with its flag; empty if it keeps it."""
    faults = [_fault(rule, _at(fields, rule.path)) for rule in CONFIG_RULES]
    algorithm = _at(fields, "pretrained_config.quantization.kv_cache_quant_algo")
    if algorithm not in (ABSENT, "none"):
        faults.append(f"kv_cache_quant_algo: {algorithm}: a quantised KV cache is not driven; leave it out")
    return [fault for fault in faults if fault]


def _fault(rule: ConfigRule, value: str) -> str:
    if value in rule.allowed:
        return ""
    key = rule.path.removeprefix("build_config.").removeprefix("plugin_config.")
    return f"{key}: {value}; build with {rule.flag}"


def _at(fields: Mapping[str, Any], path: str) -> str:
    """The value in lower case; `absent` where a key on the way is missing."""
    value: Any = fields
    for key in path.split("."):
        if not isinstance(value, Mapping) or key not in value:
            return ABSENT
        value = value[key]
    # Some releases write the enumeration's name with its class, "KVCacheType.PAGED".
    return str(value).lower().rpartition(".")[2] if path.endswith("kv_cache_type") else str(value).lower()


def _parsed(fields: Mapping[str, Any]) -> EngineConfig:
    model, build = fields["pretrained_config"], fields["build_config"]
    heads = int(model["num_attention_heads"])
    return EngineConfig(
        version=str(fields.get("version", "unknown")),
        num_layers=int(model["num_hidden_layers"]),
        num_heads=heads,
        num_kv_heads=int(model.get("num_key_value_heads") or heads),
        head_dim=int(model.get("head_size") or model["hidden_size"] // heads),
        hidden_size=int(model["hidden_size"]),
        vocab_size=int(model["vocab_size"]),
        dtype=str(model["dtype"]),
        tp_size=int(model["mapping"].get("tp_size", 1)),
        max_batch_size=int(build["max_batch_size"]),
        max_num_tokens=int(build["max_num_tokens"]),
        max_seq_len=int(build["max_seq_len"]),
        tokens_per_block=int(build["plugin_config"]["tokens_per_block"]),
    )
