"""What a deployment says of one of its models, and what every part of the deployment file is.

Checks a model by itself; what must hold between models is the deployment's to check.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
Device = Annotated[str, Field(pattern=r"^(cpu|cuda(:[0-9]+)?)$")]

HEADLESS = ("scripted", "trtllm_llm")
"""Engines that show no hidden states."""
PARALLEL = ("trtllm", "trtllm_llm", "torch")
"""Engines that can span devices."""


class Settings(BaseModel):
    """Of a deployment file: frozen, and an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelSettings(Settings):
    """One subserver."""

    name: Name
    engine: Literal["torch", "scripted", "trtllm", "trtllm_torch", "trtllm_llm"] = "torch"
    """trtllm: engines of TensorRT-LLM 1.0.0 to 1.2.1; trtllm_torch: its PyTorch flow, for later releases;
    trtllm_llm: one request per token through its LLM API, only to be compared with."""
    model_dir: str = ""
    """Hugging Face directory, relative to the repository; default <name>/1."""
    engine_dir: str = ""
    """trtllm: config.json and rank0.engine ..., relative to the repository; default <model_dir>/engine."""
    tensor_parallel: int = Field(1, ge=1, le=8)
    """How many GPUs hold one copy of the model, each in a process of its own."""
    resume: Literal["mid_block", "align", "one_by_one"] = "mid_block"
    """trtllm and trtllm_torch: how unseen tokens are fed behind a cache that ends inside a block."""
    script: str = ""
    """Scripted engine only: JSON file relative to the repository."""
    dtype: Literal["auto", "float32", "float16", "int8", "bfloat16", "float64"] = "auto"
    """How weights are kept; auto = float32 for a small model, float16 beyond. Sums are float32 in both."""
    device: Device = "cpu"
    """Where weights and KV live, for TensorRT-LLM the first GPU unless another is named. Models on one device
    share its memory budget."""
    workspace: str = "1GiB"
    """TensorRT-LLM: what each rank takes of its GPU beside weights, KV and logits (activations, CUDA, NCCL);
    no file of an engine tells (docs/deploy.md)."""
    replicas: int = Field(1, ge=1, le=64)
    """How many subservers have an engine and a KV pool for it: `<name>`, `<name>_2` ... (docs/hosts.md)."""
    devices: tuple[Device, ...] = ()
    """The device of each replica, where they are not all on `device`."""
    attention: Literal["auto", "flashinfer", "flash_attn", "sdpa"] = "auto"
    """On a GPU; auto = the first of these that is installed."""
    graph_batches: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    graph_tokens: tuple[int, ...] = (1, 2, 4, 8, 16)
    """On a GPU: rows, and new tokens of each, of the steps that are captured as CUDA graphs. Empty = none."""
    threads: int = Field(1, ge=1)
    kv_tokens: int | None = Field(None, ge=16)
    """Size of the KV pool; default: an equal share of the device's memory budget, or 65536 without one."""
    block_size: int = Field(16, ge=1, le=256)
    parked_kv_max: float = Field(0.9, ge=0, le=1)
    """Share of the pool that requests may keep here while they run on another model."""
    length_max: int | None = Field(None, ge=2)
    heads: dict[Name, str] = {}
    """Router heads by name: folders of `router.json` and `router.safetensors`, relative to the repository."""
    batch_max: int = Field(64, ge=1)
    batch_tokens_max: int = Field(512, ge=1)
    threshold: int = Field(1, ge=1)
    """How many requests must wait before this model starts a batch."""

    @model_validator(mode="after")
    def _bounded(self) -> ModelSettings:
        if self.threshold > self.batch_max:
            raise ValueError(f"threshold {self.threshold} exceeds batch_max {self.batch_max}")
        if self.batch_tokens_max < self.batch_max:
            raise ValueError(f"batch_tokens_max {self.batch_tokens_max} is below batch_max {self.batch_max}")
        if self.heads and self.engine in HEADLESS:
            names = ", ".join(sorted(self.heads))
            raise ValueError(f"heads: the {self.engine} engine of {self.name!r} cannot score {names}")
        if self.devices and len(self.devices) != self.replicas:
            raise ValueError(f"devices: {len(self.devices)} for {self.replicas} replicas: name one for each")
        if self.tensor_parallel > 1 and self.engine not in PARALLEL:
            raise ValueError(f"tensor_parallel: the {self.engine} engine of {self.name!r} runs on one device")
        return self
