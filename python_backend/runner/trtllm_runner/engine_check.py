"""Holds what an engine offers against the contract, when it is loaded. No torch, no tensorrt_llm.

Contract-tested; unverified on hardware until tools.check_trtllm has run. The invariant: an engine that
passes is fed exactly its inputs with their types; one that does not is refused with the name of the
tensor and the build flag that mends it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from python_backend.runner.trtllm_runner.contract import (
    BY_NAME,
    SAME_RELEASE,
    TENSORS,
    UNWANTED,
    WORKSPACE,
    Direction,
    EngineTensor,
    When,
)
from python_backend.runner.trtllm_runner.engine_config import EngineConfig


@dataclass(frozen=True, slots=True)
class FoundTensor:
    """One input or output as an engine describes it: -1 for a dynamic size; `largest` by its profile."""

    name: str
    direction: Direction
    dtype: str
    shape: tuple[int, ...]
    largest: tuple[int, ...] = ()
    """Empty for outputs."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What will be asked of the engine: rows, tokens and KV length of the largest step."""

    rows_max: int
    tokens_max: int
    length_max: int
    has_heads: bool = False
    """Whether hidden states are needed."""


def tensor_faults(found: Sequence[FoundTensor], config: EngineConfig, limits: Limits) -> list[str]:
    """Every breach of the contract, each with tensor and flag; empty if the engine can be driven."""
    by_name = {tensor.name: tensor for tensor in found}
    faults = [_missing(tensor) for tensor in _wanted(config, limits) if tensor.name not in by_name]
    for tensor in found:
        if tensor.name not in BY_NAME:
            faults.append(_unwanted(tensor))
        else:
            faults += _differences(tensor, BY_NAME[tensor.name])
    if WORKSPACE in by_name and config.tp_size == 1:
        faults.append(f"{WORKSPACE}: an engine of one rank has none; config.json is of another engine")
    return faults + _ranges(by_name, config, limits)


def workspace_fault(offered: int, found: Iterable[FoundTensor]) -> str:
    """Empty if the installed release allocates the all-reduce workspace as long as the engine takes it."""
    for tensor in found:
        if tensor.name == WORKSPACE and tensor.shape not in ((offered,), (-1,)):
            return (
                f"{WORKSPACE}: the engine takes {tensor.shape[0]} pointers, this release allocates "
                f"{offered}; build it with the release that runs it"
            )
    return ""


def _wanted(config: EngineConfig, limits: Limits) -> list[EngineTensor]:
    kinds = {When.ALWAYS}
    if config.tp_size > 1:
        kinds.add(When.TENSOR_PARALLEL)
    if limits.has_heads:
        kinds.add(When.TAPPED)
    return [tensor for tensor in TENSORS if tensor.when in kinds]


def _missing(tensor: EngineTensor) -> str:
    return f"{tensor.name}: the engine has no such {tensor.direction.value}; build with {tensor.flag}"


def _unwanted(tensor: FoundTensor) -> str:
    flags = [other.flag for other in UNWANTED if tensor.name.startswith(other.prefix)]
    cure = flags[0] if flags else SAME_RELEASE
    return f"{tensor.name}: this {tensor.direction.value} is not in the contract; build with {cure}"


def _differences(found: FoundTensor, wanted: EngineTensor) -> list[str]:
    faults = []
    if found.direction is not wanted.direction:
        faults.append(f"is an {found.direction.value}, not an {wanted.direction.value}")
    if found.dtype not in wanted.dtypes:
        faults.append(f"has type {found.dtype}, not {' or '.join(wanted.dtypes)}")
    if len(found.shape) not in wanted.ranks:
        ranks = " or ".join(map(str, wanted.ranks))
        faults.append(f"has {len(found.shape)} dimensions, not {ranks}")
    elif not _fits(found.shape, wanted):
        faults.append(f"has shape {list(found.shape)}, not {' x '.join(wanted.shapes[0])}")
    return [f"{found.name}: {fault}; build with {wanted.flag}" for fault in faults]


def _fits(shape: tuple[int, ...], wanted: EngineTensor) -> bool:
    """Sizes that the contract writes as numbers."""
    (named,) = (names for names in wanted.shapes if len(names) == len(shape))
    return all(
        not name.isdecimal() or size in (-1, int(name)) for name, size in zip(named, shape, strict=True)
    )


RANGES: Mapping[str, tuple[int, str]] = {
    "input_ids": (0, "--max_num_tokens"),
    "last_token_ids": (0, "--max_batch_size"),
    "kv_cache_block_offsets": (3, "--max_seq_len"),
    "cache_indirection": (2, "--max_seq_len"),
}
"""The dimension of a tensor that bounds a step, and the flag that widens it."""


def _ranges(found: Mapping[str, FoundTensor], config: EngineConfig, limits: Limits) -> list[str]:
    blocks = -(-limits.length_max // config.tokens_per_block)
    asked = {
        "input_ids": limits.tokens_max,
        "last_token_ids": limits.rows_max,
        "kv_cache_block_offsets": blocks,
        "cache_indirection": limits.length_max,
    }
    faults = []
    for name, (dimension, flag) in RANGES.items():
        largest = found[name].largest if name in found else ()
        if len(largest) > dimension and largest[dimension] < asked[name]:
            faults.append(
                f"{name}: the engine takes up to {largest[dimension]}, the deployment asks for "
                f"{asked[name]}; build with {flag} or ask for less (batch_max, batch_tokens_max, length_max)"
            )
    return faults
