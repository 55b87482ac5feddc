"""Names and parameters of an installation against the contract. Modules made here stand in."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from python_backend.runner.trtllm_runner.contract import Design, Symbol
from tools.trtllm_check.symbols import symbol_verdict
from tools.trtllm_check.verdict import Outcome


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("installed")

    def run(inputs: object, outputs: object) -> None: ...

    def open_(**options: object) -> None: ...

    module.run, module.open = run, open_  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "installed", module)


def judged(
    name: str, parameters: tuple[str, ...] | None = None, module: str = "installed"
) -> tuple[Outcome, str]:
    verdict = symbol_verdict(Design.ENGINE, [Symbol(Design.ENGINE, module, name, parameters)])
    return verdict.outcome, verdict.detail.partition(";")[0]


def test_names_that_are_there_with_their_parameters_pass() -> None:
    assert judged("run", ("inputs",)) == (Outcome.PASS, "1 of 1, as we call them")
    assert judged("open", ("whatever",))[0] is Outcome.PASS, "it takes any name"


def test_what_is_missing_is_named_with_the_cure() -> None:
    assert judged("run", ("stream",)) == (Outcome.FAIL, "installed.run has no parameter stream")
    assert judged("stop") == (Outcome.FAIL, "installed.stop is missing")
    assert judged("run.engine") == (Outcome.FAIL, "installed.run.engine is missing")
    assert judged("x", module="not_installed") == (
        Outcome.FAIL,
        "not_installed.x is missing (No module named 'not_installed')",
    )
    verdict = symbol_verdict(Design.ENGINE, [Symbol(Design.ENGINE, "installed", "stop")])
    assert verdict.detail.endswith("on a later release use engine: trtllm_torch")


def test_code_that_tells_no_signature_is_believed_until_it_runs() -> None:
    symbol = Symbol(Design.ENGINE, "builtins", "iter", ("whatever",))
    assert symbol_verdict(Design.ENGINE, [symbol]).outcome is Outcome.PASS


def test_symbols_of_another_design_are_not_asked_for() -> None:
    symbol = Symbol(Design.LLM_API, "not_installed", "LLM")
    assert symbol_verdict(Design.ENGINE, [symbol]).detail == "0 of 0, as we call them"
