"""Does the installed TensorRT-LLM have the names that our adapters call, with the parameters they pass.

Imports what the contract lists and calls nothing of it.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from python_backend.runner.trtllm_runner.contract import SYMBOLS, Design, Symbol
from tools.trtllm_check.verdict import Verdict, judged

CURES = {
    Design.ENGINE: "engines need TensorRT-LLM 1.0.0 to 1.2.1; on a later release use engine: trtllm_torch",
    Design.TORCH_FLOW: "this adapter follows 1.0.0 to 1.2.1; on another release its calls must be compared",
    Design.LLM_API: "only the comparison with the LLM API needs it",
}


def symbol_verdict(design: Design, symbols: Sequence[Symbol] = SYMBOLS) -> Verdict:
    """One line about every symbol of one design."""
    own = [symbol for symbol in symbols if symbol.design is design]
    faults = [fault for symbol in own if (fault := _fault(symbol))]
    cure = [CURES[design]] if faults else []
    return judged(f"symbols of {design.value}", faults + cure, f"{len(own)} of {len(own)}, as we call them")


def _fault(symbol: Symbol) -> str:
    name = f"{symbol.module}.{symbol.name}"
    try:
        found = _found(symbol)
    except ImportError as error:
        return f"{name} is missing ({error})"
    except AttributeError:
        return f"{name} is missing"
    absent = _absent(found, symbol.parameters or ())
    return f"{name} has no parameter {', '.join(absent)}" if absent else ""


def _found(symbol: Symbol) -> Any:
    found = import_module(symbol.module)
    for part in symbol.name.split("."):
        found = getattr(found, part)
    return found


def _absent(found: Any, wanted: Sequence[str]) -> list[str]:
    """Parameters that `found` does not take. Compiled code tells nothing; it shows when it runs."""
    try:
        parameters = inspect.signature(found).parameters
    except (TypeError, ValueError):
        return []
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return []
    return [name for name in wanted if name not in parameters]
