"""The adapters import what the contract lists and nothing else, and the emulator has it as it is listed."""

from __future__ import annotations

import ast
import inspect
from functools import reduce
from importlib import import_module
from typing import Any

import pytest

from python_backend.runner.trtllm_runner.contract import SYMBOLS, Design, Symbol
from tests.contract.emulated import use_emulator
from tests.source_tree import SHELL, modules

UPSTREAM = ("tensorrt", "tensorrt_llm")


def imported() -> set[str]:
    """What any module of the shell takes from TensorRT-LLM, dotted."""
    found = set()
    for module in modules(SHELL):
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in UPSTREAM:
                found |= {f"{node.module}.{alias.name}" for alias in node.names}
            if isinstance(node, ast.Import):
                found |= {a.name for a in node.names if a.name.partition(".")[0] in UPSTREAM}
    return found


def test_the_adapters_import_what_is_listed_and_nothing_else() -> None:
    listed = {f"{one.module}.{one.name.partition('.')[0]}" for one in SYMBOLS if one.module != "tensorrt"}
    assert imported() == listed - {"tensorrt_llm.__version__"} | {"tensorrt_llm"}


@pytest.mark.parametrize("symbol", SYMBOLS, ids=lambda one: f"{one.design.value}:{one.name}")
def test_the_emulator_has_every_symbol_with_its_parameters(symbol: Symbol) -> None:
    with use_emulator():
        found: Any = reduce(getattr, symbol.name.split("."), import_module(symbol.module))
        if symbol.parameters is not None:
            names = [name for name in inspect.signature(found).parameters if name != "self"]
            assert [name for name in names if name in symbol.parameters] == list(symbol.parameters)


def test_every_design_is_listed() -> None:
    assert {one.design for one in SYMBOLS} == set(Design)
