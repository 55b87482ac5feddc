"""Steps that touch files: stages, COPY, and a step that fails. RUN's command line is in test_clean_root."""

from __future__ import annotations

from pathlib import Path

import pytest

import tools.image.build as building
from tools.image.build import Build, BuildError
from tools.image.clean_root import Inside
from tools.image.dockerfile import parsed
from tools.image.pip_settings import PipSettings

PIP = PipSettings("[global]\n", (Path("/wheels"),))


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """A context of three files and a Debian that is already there."""
    context = tmp_path / "context"
    for name in ("src/a.py", "src/deep/b.py", "notes.md"):
        (context / name).parent.mkdir(parents=True, exist_ok=True)
        (context / name).write_text(name)
    (context / ".dockerignore").write_text("notes.md\n")
    (tmp_path / "work" / "base-bookworm" / "etc").mkdir(parents=True)
    said: list[str] = []
    return Build(context, tmp_path / "work", {}, PIP, said.append)


def run(build: Build, text: str) -> list[str]:
    """The image's files after the steps, relative to its root."""
    image = build.run(parsed(f"FROM debian:bookworm-slim\n{text}", {}))
    return sorted(str(path.relative_to(image.root)) for path in image.root.rglob("*") if path.is_file())


def test_files_are_copied_into_the_folder_that_is_current(build: Build) -> None:
    assert run(build, "WORKDIR /opt/x\nCOPY src/ in/\nCOPY src/a.py .") == [
        *("opt/x/a.py", "opt/x/in/a.py", "opt/x/in/deep/b.py"),
    ]


def test_a_whole_context_comes_without_what_is_ignored(build: Build) -> None:
    assert run(build, "WORKDIR /opt\nCOPY . .") == ["opt/.dockerignore", "opt/src/a.py", "opt/src/deep/b.py"]


def test_a_stage_takes_the_contents_of_another_ones_folder(build: Build) -> None:
    image = run(build, "WORKDIR /made\nCOPY src/ .\nFROM debian:bookworm-slim\nCOPY --from=0 /made /opt/got")
    assert image == ["opt/got/a.py", "opt/got/deep/b.py"]


def test_a_stage_on_another_stage_keeps_its_files_and_settings(build: Build) -> None:
    text = "FROM debian:bookworm-slim AS one\nENV A=1\nWORKDIR /w\nCOPY src/ .\nFROM one\nUSER 5"
    image = build.run(parsed(text, {}))
    assert (image.settings.environment["A"], image.settings.workdir, image.settings.user) == (
        "1",
        "/w",
        "5:5",
    )
    assert (image.root / "w" / "a.py").read_text() == "src/a.py"


def test_a_copy_of_nothing_fails_with_its_line(build: Build) -> None:
    with pytest.raises(BuildError, match=r"line 2: COPY notes.md /: no such file in the context"):
        run(build, "COPY notes.md /")


def test_a_base_that_is_no_debian_cannot_be_made_here(build: Build) -> None:
    with pytest.raises(BuildError, match=r"FROM alpine: only debian:<suite>-slim"):
        build.run(parsed("FROM alpine", {}))


def test_a_run_gets_variables_and_a_failing_one_shows_what_it_printed(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Inside] = []

    def stand_in(root: Path, command: tuple[str, ...], inside: Inside) -> list[str]:
        seen.append(inside)
        return [*command]

    monkeypatch.setattr(building, "entering", stand_in)
    with pytest.raises(BuildError) as error:
        run(build, "ARG A=1\nENV B=2\nRUN --mount=type=secret,id=pip,target=/etc/pip.conf echo why; false")

    assert str(error.value).endswith("\nended with status 1:\nwhy")
    (inside,) = seen
    assert {key: inside.environment[key] for key in ("A", "B", "HOME")} == {
        "A": "1",
        "B": "2",
        "HOME": "/root",
    }
    assert (build.folder / "pip.conf", "/etc/pip.conf") in inside.binds
    assert (Path("/wheels"), "/wheels") in inside.binds
    assert (build.folder / "pip.conf").read_text() == "[global]\n"


def test_a_run_without_the_secret_sees_no_settings_of_pip(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Inside] = []
    monkeypatch.setattr(building, "entering", lambda root, command, inside: seen.append(inside) or ["true"])
    run(build, "RUN true")
    assert {target for _, target in seen[0].binds} <= {"/etc/resolv.conf", "/etc/hosts"}
