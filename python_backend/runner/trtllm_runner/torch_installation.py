"""The symbols of the installed TensorRT-LLM that design 2b calls, and nothing else of it.

Contract-tested; unverified on hardware until tools.check_trtllm has run. These are private modules that
change from week to week: pin the container, and run the check after every change of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from router_backend.core.errors import ConfigError

CURE = (
    "run inside a TensorRT-LLM container whose release tools.check_trtllm passes, or use engine: trtllm with "
    "built engines (tags 25.09 to 26.07, see docs/deploy.md)"
)


@dataclass(frozen=True, slots=True)
class TorchInstallation:
    """See `contract.SYMBOLS`, design TORCH_FLOW."""

    model_config: Callable[..., Any]
    model: Callable[[Any], Any]
    metadata: Callable[..., Any]
    cache_params: Callable[..., Any]
    features: Callable[..., Any]
    cache_manager: Callable[..., Any]
    cache_config: Callable[..., Any]
    mapping: Callable[..., Any]
    self_attention: Any
    data_type: Any
    extra_attrs: Callable[[dict[str, Any]], Any]


def torch_installation() -> TorchInstallation:
    """ConfigError says what is missing and what to run."""
    try:
        from tensorrt_llm._torch.attention_backend.interface import AttentionRuntimeFeatures
        from tensorrt_llm._torch.attention_backend.utils import get_attention_backend
        from tensorrt_llm._torch.metadata import KVCacheParams
        from tensorrt_llm._torch.model_config import ModelConfig
        from tensorrt_llm._torch.models import AutoModelForCausalLM
        from tensorrt_llm._torch.pyexecutor.resource_manager import KVCacheManager
        from tensorrt_llm._torch.utils import model_extra_attrs
        from tensorrt_llm.bindings import DataType
        from tensorrt_llm.bindings.executor import KvCacheConfig
        from tensorrt_llm.bindings.internal.batch_manager import CacheType
        from tensorrt_llm.mapping import Mapping
    except ImportError as error:
        missing = "tensorrt_llm is not installed" if error.name == "tensorrt_llm" else str(error)
        raise ConfigError(f"engine trtllm_torch: {missing}; {CURE}") from error
    return TorchInstallation(
        model_config=ModelConfig.from_pretrained,
        model=AutoModelForCausalLM.from_config,
        metadata=get_attention_backend("TRTLLM").Metadata,
        cache_params=KVCacheParams,
        features=AttentionRuntimeFeatures,
        cache_manager=KVCacheManager,
        cache_config=KvCacheConfig,
        mapping=Mapping,
        self_attention=CacheType.SELF,
        data_type=DataType,
        extra_attrs=model_extra_attrs,
    )
