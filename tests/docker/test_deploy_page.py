"""What docs/deploy.md tells a deployer is so: commands, deployment, memory plan, the model saved again."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from python_backend.config import parse_deployment
from tests.source_tree import ROOT
from tests.tiny_models import TinyModel, frozen, tiny_model_dir
from tests.unit.roles.test_memory_of_engines import write_published_pair
from tests.unit.tools.engines.directories import LARGE, SMALL, write
from tools.build_engine import main as build_engine
from tools.check_trtllm import _parser as check_parser
from tools.engines.hugging_face import HuggingFaceModel, problems, read_model, tensor_names
from tools.plan_memory import main as plan_memory

PAGE = (ROOT / "docs" / "deploy.md").read_text()


def block(language: str) -> str:
    return PAGE.split(f"```{language}\n")[1].split("```")[0]


def commands(tool: str) -> list[list[str]]:
    """Arguments of every call of a tool that stands on a line of its own."""
    found = re.findall(rf"^    python3? -m tools\.{tool} (.+)$", PAGE, re.MULTILINE)
    return [shlex.split(line, comments=True) for line in found]


@pytest.fixture
def models(tmp_path: Path) -> dict[str, HuggingFaceModel]:
    """By the names that the page uses for their directories."""
    places = {"/hf/Qwen3-0.6B-untied": SMALL, "/hf/Qwen3-32B": LARGE}
    return {name: read_model(write(tmp_path / name[1:], fields)) for name, fields in places.items()}


def test_the_builds_of_the_page_are_accepted(
    models: dict[str, HuggingFaceModel], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    builds = commands("build_engine")
    assert len(builds) == 2
    for words in builds:
        placed = [str(models[word].folder) if word in models else word for word in words]
        assert build_engine([*placed, "--dry-run"]) == 0
    assert "--tp_size 2" in capsys.readouterr().out


def test_the_check_of_the_page_is_understood() -> None:
    (words,) = commands("check_trtllm")
    assert check_parser().parse_args(words).weights == ["small=/hf/Qwen3-0.6B-untied", "large=/hf/Qwen3-32B"]


def test_the_deployment_of_the_page_is_one() -> None:
    deployment = parse_deployment(block("yaml"), "docs/deploy.md")
    assert [(model.name, model.engine, model.tensor_parallel) for model in deployment.models] == [
        ("small", "trtllm", 1),
        ("large", "trtllm", 2),
    ]


def test_the_memory_plan_is_that_of_the_deployment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (write_published_pair(tmp_path) / "deployment.yaml").write_text(block("yaml"))
    ((_, *options),) = commands("plan_memory")

    assert plan_memory([str(tmp_path / "deployment.yaml"), *options]) == 0
    told = capsys.readouterr().out.splitlines()
    assert len(told) == 5
    assert "\n".join(f"    {line}" for line in told) in PAGE


def test_a_tied_model_saved_as_the_page_says_has_an_output_layer_of_its_own(tmp_path: Path) -> None:
    source, target = (
        tiny_model_dir(TinyModel("qwen3", fields=frozen(tie_word_embeddings=True))),
        tmp_path / "new",
    )
    assert any("lm_head.weight" in problem for problem in problems(read_model(source), 1))

    text = (
        block("python").replace("/hf/Qwen3-0.6B-untied", str(target)).replace("/hf/Qwen3-0.6B", str(source))
    )
    exec(compile(text, "docs/deploy.md", "exec"), {})

    assert "lm_head.weight" in tensor_names(target)
    assert list(problems(read_model(target), 1)) == []


def test_the_containers_of_the_page_are_those_of_the_dockerfile() -> None:
    releases = re.findall(
        r"(1\.\d\.\d(?:rc\d)?)", (ROOT / "docker" / "Dockerfile").read_text().split("ARG")[0]
    )
    rows = re.findall(r"^\| \**\d\d\.\d\d[^|]*\| \**(1\.\d\.\d(?:rc\d)?)", PAGE, re.MULTILINE)
    assert rows == [release for release in dict.fromkeys(releases) if release in rows]
    assert len(rows) == 5
