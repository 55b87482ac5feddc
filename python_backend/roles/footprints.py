"""What one subserver will take of each of its devices, from its model's files.

Reads configurations, sizes and headers, never weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from python_backend.model_settings import ModelSettings
from python_backend.roles.place import engine_dir
from python_backend.runner.heads.card import WEIGHTS_FILE
from python_backend.runner.torch_runner.devices import CPU, gpu_index
from python_backend.runner.torch_runner.footprint import EngineBytes, StepLimits, chosen_dtype, footprint
from python_backend.runner.torch_runner.model_config import load_model_config
from python_backend.runner.trtllm_runner.engine_config import load_engine_config
from python_backend.runner.trtllm_runner.footprint import engine_footprint, flow_footprint
from router_backend.planner.memory import Footprint, parse_bytes


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model as its subserver is to load it; `model_dir` is its Hugging Face directory."""

    model: ModelSettings
    repository: Path
    model_dir: Path

    @property
    def length_max(self) -> int:
        """Positions that a sequence may have."""
        if self.model.length_max is not None:
            return self.model.length_max
        if self.model.engine == "trtllm":
            return load_engine_config(engine_dir(self.model, self.repository)).max_seq_len
        return load_model_config(self.model_dir).length_max

    @property
    def block_size(self) -> int:
        if self.model.engine == "trtllm":
            return load_engine_config(engine_dir(self.model, self.repository)).tokens_per_block
        return self.model.block_size

    def footprint(self, name: str, ranks: Sequence[int], kv_tokens: int | None) -> Footprint:
        """Of those `ranks` of subserver `name`, all on one device."""
        found = self._engine_bytes(ranks[0])
        heads = [self.repository / folder / WEIGHTS_FILE for folder in self.model.heads.values()]
        return Footprint(
            name,
            len(ranks) * found.weights + sum(file.stat().st_size for file in heads if file.exists()),
            len(ranks) * found.activations,
            len(ranks) * found.kv_bytes_per_token,
            self.block_size,
            kv_tokens,
        )

    def _engine_bytes(self, rank: int) -> EngineBytes:
        model = self.model
        limits = StepLimits(model.batch_tokens_max, model.batch_max, self.length_max)
        if model.engine == "torch":
            config = load_model_config(self.model_dir)
            dtype = chosen_dtype(model.dtype, config.num_weights, model.device)
            return footprint(config.sharded(model.tensor_parallel), dtype, model.device, limits)
        workspace = parse_bytes(f"workspace of {model.name}", model.workspace)
        if model.engine == "trtllm":
            place = engine_dir(model, self.repository)
            return engine_footprint(place, load_engine_config(place), rank, limits, workspace)
        found = load_model_config(self.model_dir)
        return flow_footprint(self.model_dir, found, model.tensor_parallel, limits, workspace)


def ranks_by_device(model: ModelSettings) -> dict[str, tuple[int, ...]]:
    """On a CPU all ranks share it; on GPUs each has one, from the model's `device` on.

    `cuda` is a name of the first GPU, and TensorRT-LLM knows no other device.
    """
    ranks = range(model.tensor_parallel)
    if model.device == CPU and model.engine == "torch":
        return {CPU: tuple(ranks)}
    return {f"cuda:{gpu_index(model.device) + rank}": (rank,) for rank in ranks}
