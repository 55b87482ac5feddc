"""The drawn diagram is the scheduler's table, and the committed page shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from router_backend.core.state import TRANSITIONS
from tools.draw_states import BEGIN, END, PAGE, MarkerError, diagram, drawn, main


def test_every_transition_is_on_an_arrow() -> None:
    arrows = {}
    for line in diagram().splitlines():
        pair, _, names = line.strip().partition(": ")
        arrows[pair] = set(names.split(", "))
    for (state, event), after in TRANSITIONS.items():
        assert event.value in arrows[f"{state.name} --> {after.name}"]


def test_the_diagram_starts_in_waiting_and_ends_in_finished() -> None:
    lines = [line.strip() for line in diagram().splitlines()]
    assert lines[:3] == ["```mermaid", "stateDiagram-v2", "[*] --> WAITING"]
    assert lines[-2:] == ["FINISHED --> [*]", "```"]


def test_drawing_replaces_only_what_is_between_the_markers() -> None:
    assert drawn(f"above\n{BEGIN}\nold\n{END}\nbelow\n") == f"above\n{BEGIN}\n{diagram()}\n{END}\nbelow\n"


def test_drawing_twice_changes_nothing() -> None:
    once = drawn(f"{BEGIN}{END}")
    assert drawn(once) == once


@pytest.mark.parametrize("page", ["", BEGIN, f"{END}\n{BEGIN}"])
def test_a_page_without_markers_is_refused(page: str) -> None:
    with pytest.raises(MarkerError, match="states: begin"):
        drawn(page)


def test_check_fails_on_an_old_page_and_leaves_it_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{BEGIN}\nold\n{END}\n")
    assert main(["--page", str(page), "--check"]) == 1
    assert "out of date" in capsys.readouterr().err
    assert page.read_text() == f"{BEGIN}\nold\n{END}\n"


def test_a_page_is_redrawn_and_then_passes_the_check(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{BEGIN}\nold\n{END}\n")
    assert main(["--page", str(page)]) == 0
    assert main(["--page", str(page), "--check"]) == 0


def test_a_missing_page_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--page", str(tmp_path / "none.md")]) == 1
    assert "none.md" in capsys.readouterr().err


def test_the_committed_page_is_current() -> None:
    assert drawn(PAGE.read_text()) == PAGE.read_text()
