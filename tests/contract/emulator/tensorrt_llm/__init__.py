"""Stands in for TensorRT-LLM in tests: the symbols of `trtllm_runner.contract`, and nothing beside them.

On the path only where a test puts it. `Session` reads nothing but the engine's tensors.
"""

__version__ = "1.2.1"


def __getattr__(name: str) -> object:
    """The LLM API is loaded when it is asked for."""
    if name in ("LLM", "SamplingParams"):
        from tensorrt_llm import llmapi

        return getattr(llmapi, name)
    raise AttributeError(name)
