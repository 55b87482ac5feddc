"""The Dockerfiles pass hadolint, and keep what their first lines promise."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.source_tree import ROOT
from tools.image.dockerfile import Dockerfile, Instruction, parsed
from tools.image.settings import ImageSettings, applied

FILES = ("Dockerfile", "Dockerfile.cpu")
DOCKER = ROOT / "docker"


def read(name: str) -> Dockerfile:
    return parsed((DOCKER / name).read_text(), {})


def final(name: str) -> ImageSettings:
    settings = ImageSettings()
    for item in read(name).stages[-1].instructions:
        settings = applied(item, settings, {})
    return settings


def steps(name: str) -> list[Instruction]:
    return [item for stage in read(name).stages for item in stage.instructions]


@pytest.mark.parametrize("name", FILES)
def test_hadolint_has_nothing_to_say(name: str) -> None:
    program = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert program, "hadolint is not installed: make setup"
    command = [program, "--config", ".hadolint.yaml", name]
    run = subprocess.run(command, cwd=DOCKER, capture_output=True, check=False, text=True)
    assert (run.returncode, run.stdout + run.stderr) == (0, "")


@pytest.mark.parametrize("name", FILES)
def test_an_image_runs_as_a_user_and_validates_through_its_entry_point(name: str) -> None:
    settings = final(name)
    assert settings.user == "10001:10001"
    assert (settings.entrypoint, settings.command) == (("docker/entrypoint.sh",), ("serve",))
    assert settings.healthcheck == ("python3", "docker/healthcheck.py")
    assert (settings.workdir, settings.ports) == ("/opt/token_router", ("8000", "8001", "8002", "8003"))


@pytest.mark.parametrize("name", FILES)
def test_no_step_brings_a_registry_or_a_secret_into_the_image(name: str) -> None:
    for item in steps(name):
        assert item.word != "ENV" or "INDEX" not in item.value
        if item.word == "RUN" and "pip install" in item.value and "--no-index" not in item.value:
            assert item.flag("mount").startswith("type=secret,id=pip,")


def test_the_gpu_image_stands_on_a_container_of_the_recommended_family_and_uses_its_triton() -> None:
    assert read("Dockerfile").stages[0].base == "nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3"
    older = parsed((DOCKER / "Dockerfile").read_text(), {"TRITON_TAG": "25.10"})
    assert older.stages[0].base == "nvcr.io/nvidia/tritonserver:25.10-trtllm-python-py3"
    assert final("Dockerfile").environment["TRITON_SERVER_ROOT"] == "/opt/tritonserver"


def test_the_gpu_image_changes_no_package_of_its_base() -> None:
    (install,) = [item for item in steps("Dockerfile") if "serve.txt" in item.value]
    assert "pip list --format=freeze > /tmp/base.txt" in install.value
    assert "-c /tmp/base.txt -r requirements/serve.txt" in install.value


def test_the_cpu_image_installs_the_pinned_versions() -> None:
    text = " ".join(item.value for item in steps("Dockerfile.cpu") if item.word == "RUN")
    assert "-r requirements/torch.txt" in text
    assert "-c requirements/constraints.txt -r requirements/serve.txt" in text
    assert "--no-deps -r requirements/triton.txt" in text


def test_the_table_of_containers_names_a_release_for_every_tag() -> None:
    table = re.findall(
        r"^#   (\d\d\.\d\d\S*.*?)  +(1\.\S+)", (DOCKER / "Dockerfile").read_text(), re.MULTILINE
    )
    assert [release for _, release in table] == ["1.2.1", "1.2.0rc8", "1.1.0", "1.2.0rc2", "1.0.0"]
