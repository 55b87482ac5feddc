"""What a running image answers, and how it is watched. A plain process stands in for the image."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tools.image.trial as trials
from tools.image.build import Image
from tools.image.settings import ImageSettings
from tools.image.trial import Trial, TrialError, events, started, text_of

IMAGE = Image(
    Path("/clean"), ImageSettings(entrypoint=("serve",), command=("it",), healthcheck=("check",), user="7:7")
)


def test_a_stream_is_read_into_its_events_and_their_text() -> None:
    stream = events('data: {"text_output": "a"}\n\ndata: {"text_output": "b"}\n\n')
    assert (len(stream), text_of(stream)) == (2, "ab")


@pytest.mark.parametrize("lines", ["", "data: {\n", 'data: {"error": "no"}\n'])
def test_anything_else_is_an_error_that_shows_it(lines: str) -> None:
    with pytest.raises(TrialError):
        events(lines)


def ended(code: str, tmp_path: Path) -> Trial:
    log = tmp_path / "log"
    with log.open("wb") as out:
        process = subprocess.Popen([sys.executable, "-c", code], stdout=out)
        process.wait()
    return Trial(IMAGE, process, log)


def test_an_image_that_ends_by_itself_shows_its_log(tmp_path: Path) -> None:
    with pytest.raises(TrialError, match=r"ended with status 3\nno engine"):
        ended("print('no engine'); raise SystemExit(3)", tmp_path).wait_ready()


def test_an_image_must_say_how_its_health_is_checked() -> None:
    with subprocess.Popen(["true"]) as process, pytest.raises(TrialError, match="no HEALTHCHECK"):
        Trial(Image(Path("/clean"), ImageSettings()), process, Path("log")).wait_ready()


def test_an_image_without_a_first_process_shows_its_log(tmp_path: Path) -> None:
    with pytest.raises(TrialError, match=r"first process is gone\nover"):
        _ = ended("print('over')", tmp_path).first_pid


def test_an_image_is_ended_at_the_latest_when_the_trial_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = [sys.executable, "-c", "import signal; signal.pause()"]
    monkeypatch.setattr(trials, "entering", lambda root, command, inside: wait)
    with started(IMAGE, tmp_path / "log") as trial:
        assert trial.process.poll() is None
    assert trial.process.poll() is not None


def test_a_client_runs_inside_as_the_images_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trial, "first_pid", 42)
    trial = Trial(IMAGE, subprocess.Popen(["true"]), Path("log"))
    trial.process.wait()
    words = trial.joined(["ask"])
    assert words[:2] == ["nsenter", "--target=42"]
    assert "--userspec=7:7" in words
    assert words[-1] == "ask"
