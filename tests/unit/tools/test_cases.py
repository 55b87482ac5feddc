"""The table of field cases claims nothing that a test does not prove."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

import tools.cases as tool
from tests.source_tree import ROOT, modules
from tools.cases import Case, outcomes, read_cases, result

CASES = read_cases()
IDS = (1, 4, 6, 8, 10, 12, 14, 16, 19, 21, 22, 24, 26, 28, 30, 32, 33, 35, 37, 39, 41, 43, 44, 45, 47, 50)
LATER_IDS = (52, 53, 55, 57, 59, 61, 63, 65, 67, 69, 71, 73, 75, 77, 79, 81)


def names(path: Path) -> set[str]:
    """What a test file defines or assigns at its top level."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


def case(*tests: str, is_open: bool = False) -> Case:
    return Case("F00", "t", ("U",), "https://x", tests, is_open, "")


def test_all_42_cases_are_there_with_their_threads() -> None:
    assert [found.id for found in CASES] == [f"F{number:02}" for number in (*IDS, *LATER_IDS)]
    assert all(re.fullmatch(r"https://github\.com/\S+/\d+", found.thread) for found in CASES)
    assert all(found.level and found.title for found in CASES)


@pytest.mark.parametrize("found", CASES, ids=lambda found: found.id)
def test_every_test_of_a_case_exists_and_what_is_open_says_why(found: Case) -> None:
    for test in found.tests:
        path, _, name = test.partition("::")
        assert name in names(ROOT / path), test
    assert found.tests or found.is_open
    assert found.note or not found.is_open


def test_every_test_that_is_marked_with_a_case_is_in_its_row() -> None:
    tests = {found.id: found.tests for found in CASES}
    for module in modules("tests"):
        for node in module.tree.body:
            for mark in getattr(node, "decorator_list", []):
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.case":
                    assert f"{module.where}::{node.name}" in tests[ast.literal_eval(mark.args[0])]


def test_outcomes_come_from_the_short_summary_with_parameters_under_one_name() -> None:
    report = (
        "..F.s\nPASSED tests/a.py::test_x[1-a b]\nFAILED tests/a.py::test_x[2] - AssertionError: no\n"
        "PASSED tests/a.py::TestM::runTest\nSKIPPED [1] tests/gpu/b.py:3: needs a GPU\n"
        "ERROR tests/c.py::test_y - RuntimeError\nsomething PASSED\n"
    )
    assert outcomes(report) == {
        "tests/a.py::test_x": {"passed", "failed"},
        "tests/a.py::TestM::runTest": {"passed"},
        "tests/gpu/b.py": {"skipped"},
        "tests/c.py::test_y": {"failed"},
    }


@pytest.mark.parametrize(
    ("found", "seen", "word"),
    [
        (case("tests/a.py::x"), {"tests/a.py::x": {"passed"}}, "passed"),
        (case("tests/a.py::x"), {"tests/a.py::x": {"passed", "failed"}}, "failed"),
        (case("tests/a.py::x"), {"tests/a.py::xy": {"passed"}}, "failed"),
        (case("tests/a.py::T"), {"tests/a.py::T::runTest": {"passed"}}, "passed"),
        (case("tests/a.py::x", is_open=True), {"tests/a.py::x": {"passed"}}, "open"),
        (case("tests/a.py::x", is_open=True), {"tests/a.py::x": {"failed"}}, "failed"),
        (case(is_open=True), {}, "open"),
        (replace(case("tests/a.py::x"), level=("S", "G")), {"tests/a.py::x": {"passed"}}, "needs_gpu"),
        (case("tests/gpu/g.py::x"), {"tests/gpu/g.py": {"skipped"}}, "needs_gpu"),
        (case("tests/gpu/g.py::x"), {"tests/gpu/g.py::x": {"failed"}}, "failed"),
        (case("tests/gpu/g.py::x"), {"tests/gpu/g.py::x": {"passed"}}, "passed"),
    ],
)
def test_a_case_is_what_its_tests_say(found: Case, seen: dict[str, set[str]], word: str) -> None:
    assert result(found, seen) == word


def test_a_case_runs_by_its_id(capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main(["F50", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert rows == [{"id": "F50", "level": "U", "result": "passed"}]


def test_the_table_counts_results_and_a_failure_is_an_exit_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    open_one = Case("F02", "t", ("U",), "https://x", (), True, "nobody wrote it yet")
    monkeypatch.setattr(tool, "read_cases", lambda: [case("tests/a.py::x"), open_one])
    monkeypatch.setattr(tool, "run_tests", lambda nodes: {})
    assert tool.main([]) == 1
    shown = capsys.readouterr().out
    assert "1 failed, 1 open" in shown
    assert "nobody wrote it yet" in shown


def test_the_list_shows_what_proves_a_case_and_fast_leaves_servers_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert tool.main(["F04", "--list"]) == 0
    assert "https://github.com/vllm-project/vllm/issues/3574" in capsys.readouterr().out
    assert tool.main(["--list", "--fast"]) == 0
    assert "tests/server/" not in capsys.readouterr().out


def test_an_id_that_nobody_knows_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main(["F99"]) == 2
    assert "F99: no such case; known are F01" in capsys.readouterr().err
