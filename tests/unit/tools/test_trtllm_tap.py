"""The hidden tap over stand-ins for upstream's two model classes."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from python_backend.runner.trtllm_runner.contract import HIDDEN
from tools.engines.plan import TAP_FILE


class Marked:
    """A tensor of a network under construction."""

    def __init__(self) -> None:
        self.marks: list[tuple[str, str]] = []

    def mark_output(self, name: str, dtype: str) -> None:
        self.marks.append((name, dtype))


class Upstream:
    """What a model class of TensorRT-LLM has that the tap touches."""

    config = SimpleNamespace(dtype="bfloat16")
    returned: Any = ()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.returned


@pytest.fixture
def tap(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The file loaded by its path, as trtllm-build does."""
    for family, name in (("llama", "LLaMAForCausalLM"), ("qwen", "QWenForCausalLM")):
        module = ModuleType(f"tensorrt_llm.models.{family}.model")
        setattr(module, name, Upstream)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    spec = importlib.util.spec_from_file_location("tap", TAP_FILE)
    assert spec and spec.loader
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.mark.parametrize("name", ["RoutedQWen", "RoutedLLaMA"])
def test_the_second_value_becomes_an_output_and_nothing_else_changes(tap: ModuleType, name: str) -> None:
    model = getattr(tap, name)()
    logits, hidden = Marked(), Marked()
    model.returned = (logits, hidden, None)
    assert model.forward() == (logits, hidden, None)
    assert (logits.marks, hidden.marks) == ([], [(HIDDEN, "bfloat16")])


def test_a_network_that_returns_no_hidden_state_is_refused_with_the_flag(tap: ModuleType) -> None:
    model = tap.RoutedQWen()
    model.returned = Marked()
    with pytest.raises(TypeError, match="--kv_cache_type paged"):
        model.forward()
