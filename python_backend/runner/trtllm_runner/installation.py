"""The symbols of the installed TensorRT-LLM that design 1 calls, and nothing else of it.

Contract-tested; unverified on hardware until tools.check_trtllm has run. Importing this module imports
nothing of TensorRT-LLM; `engine_installation` does, which also loads its plugins.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from router_backend.core.errors import ConfigError

CURE = (
    "run inside Triton's TensorRT-LLM container (tags 25.09 to 26.07, see docs/deploy.md); "
    "python -m tools.check_trtllm says what else is missing"
)


@dataclass(frozen=True, slots=True)
class EngineInstallation:
    """See `contract.SYMBOLS`, design ENGINE."""

    version: str
    open_session: Callable[[bytes], Any]
    tensor_info: Callable[..., Any]
    trt_dtype: Callable[[Any], Any]
    torch_dtype: Callable[[Any], Any]
    mpi_comm: Callable[[], Any]
    mapping: Callable[..., Any]
    reducer: Any


def engine_installation() -> EngineInstallation:
    """ConfigError says what is missing and what to run."""
    try:
        import tensorrt_llm
        from tensorrt_llm._utils import mpi_comm, torch_dtype_to_trt, trt_dtype_to_torch
        from tensorrt_llm.mapping import Mapping
        from tensorrt_llm.plugin.plugin import CustomAllReduceHelper
        from tensorrt_llm.runtime.session import Session, TensorInfo
    except ImportError as error:
        raise ConfigError(f"engine trtllm: {_what(error)}; {CURE}") from error
    return EngineInstallation(
        version=tensorrt_llm.__version__,
        open_session=Session.from_serialized_engine,
        tensor_info=TensorInfo,
        trt_dtype=torch_dtype_to_trt,
        torch_dtype=trt_dtype_to_torch,
        mpi_comm=mpi_comm,
        mapping=Mapping,
        reducer=CustomAllReduceHelper,
    )


def _what(error: ImportError) -> str:
    """A release after 1.2.1 has the package but not its TensorRT flow."""
    if error.name == "tensorrt_llm":
        return "tensorrt_llm is not installed"
    return f"{error}: releases after 1.2.1 cannot run engines, use engine: trtllm_torch"
