"""The trial of an image: its steps, what it says where it cannot be made, and its findings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tools.try_image as tool
from tools.image.build import BuildError
from tools.try_image import Findings, main, shown

FOUND = Findings(61.5, 1500, 7.5, " spin flip", 3, 12, 4.5, 0)


def test_a_dry_run_prints_every_step_and_needs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "[build] FROM debian:bookworm-slim"
    assert lines[-2:] == ['[1] ENTRYPOINT ["docker/entrypoint.sh"]', '[1] CMD ["serve"]']


def test_a_dry_run_for_a_program_knows_build_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--dry-run", "--json", "--build-arg", "BASE_IMAGE=debian:trixie-slim"]) == 0
    assert json.loads(capsys.readouterr().out)[0] == "[build] FROM debian:trixie-slim"


def test_a_machine_that_cannot_do_it_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tool, "missing", lambda: ["debootstrap is not installed"])
    assert main([]) == 2
    assert capsys.readouterr().err == (
        "try_image: this machine cannot do it:\ndebootstrap is not installed\n"
    )


@pytest.fixture
def able(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool, "missing", list)


def test_findings_are_told_and_the_folder_goes_away(
    able: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tool, "tried", lambda options, folder, file: FOUND)
    assert main(["--work", str(tmp_path)]) == 0
    assert capsys.readouterr().out == shown(FOUND) + "\n"
    assert list(tmp_path.iterdir()) == []

    assert main(["--work", str(tmp_path), "--json", "--keep"]) == 0
    assert json.loads(capsys.readouterr().out)["answer"] == " spin flip"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_step_that_fails_is_told_and_the_folder_goes_away(
    able: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(options: object, folder: Path, file: object) -> Findings:
        raise BuildError("line 3: RUN false")

    monkeypatch.setattr(tool, "tried", failing)
    assert main(["--work", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "try_image: line 3: RUN false\n"
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--file", "no/Dockerfile"]) == 1
    assert "no/Dockerfile" in capsys.readouterr().err
