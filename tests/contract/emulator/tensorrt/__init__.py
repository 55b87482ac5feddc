"""Where a deployer's check looks for the engine's own calls."""

from tensorrt_llm.runtime.session import ICudaEngine

__all__ = ["ICudaEngine"]
