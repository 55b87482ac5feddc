"""Model classes that give an engine one more output: the hidden state that router heads read.

`trtllm-build --model_cls_file tools/trtllm_tap.py --model_cls_name RoutedQWen` loads this file by path,
inside the TensorRT-LLM container; nothing else may import it. The second value that `forward` returns, on the
paged-KV path of releases 1.0.0 to 1.2.1, is the hidden state of each row's last token after the final norm,
[B, hidden]. Contract-tested; unverified on hardware until tools.check_trtllm has run.
"""

from __future__ import annotations

from typing import Any

from tensorrt_llm.models.llama.model import LLaMAForCausalLM
from tensorrt_llm.models.qwen.model import QWenForCausalLM

OUTPUT = "router_hidden"
"""As `trtllm_runner.contract` names it; repeated because this file is loaded alone."""


def tapped(returned: Any, dtype: str) -> Any:
    """`returned` as it is, its hidden state marked as an output of the engine."""
    if not isinstance(returned, tuple) or len(returned) < 2:
        raise TypeError(
            "forward returned no hidden state: the tap needs --kv_cache_type paged and "
            "TensorRT-LLM 1.0.0 to 1.2.1"
        )
    returned[1].mark_output(OUTPUT, dtype)
    return returned


class RoutedQWen(QWenForCausalLM):  # type: ignore[misc]  # upstream has no types
    """Qwen2 and Qwen3."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return tapped(super().forward(*args, **kwargs), self.config.dtype)


class RoutedLLaMA(LLaMAForCausalLM):  # type: ignore[misc]
    """Llama."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return tapped(super().forward(*args, **kwargs), self.config.dtype)
