"""Building an engine. A converter and a trtllm-build that write what they are told stand in."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.unit.tools.engines.directories import SMALL, write
from tools.build_engine import main

CONVERTER = """
import sys, pathlib
pathlib.Path(sys.argv[sys.argv.index("--output_dir") + 1]).mkdir(parents=True)
"""
BUILDER = """#!/bin/sh
while [ "$1" != --output_dir ]; do shift; done
mkdir -p "$2" && echo engine > "$2/rank0.engine"
exit {status}
"""


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    model = write(tmp_path / "Qwen3-0.6B", SMALL)
    converter = tmp_path / "examples" / "models" / "core" / "qwen" / "convert_checkpoint.py"
    converter.parent.mkdir(parents=True)
    converter.write_text(CONVERTER)
    words = ("--model-dir", model, "--name", "small", "--repository", tmp_path / "models")
    return [*map(str, (*words, "--examples", tmp_path / "examples"))]


@pytest.fixture
def builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "bin" / "trtllm-build"
    program.parent.mkdir()
    program.write_text(BUILDER.format(status=0))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return program


def placed(tmp_path: Path) -> list[str]:
    folder = tmp_path / "models" / "small" / "1"
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_dry_run_prints_commands_to_paste_and_what_the_cache_costs(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--dry-run", "--checkpoint", "/ckpt", "--", "--multi_block_mode", "enable"]) == 0
    out = capsys.readouterr().out
    assert (
        f"trtllm-build \\\n  --checkpoint_dir /ckpt \\\n  --output_dir {tmp_path}/models/small/1/engine"
        in out
    )
    assert out.endswith(
        "  --multi_block_mode enable\n# KV cache: 114,688 bytes per token and rank, 3.50 MiB per block\n"
    )
    assert not (tmp_path / "models").exists()


def test_an_engine_and_the_files_beside_it_come_into_their_place(
    arguments: list[str], builder: Path, tmp_path: Path
) -> None:
    assert main(arguments) == 0
    assert placed(tmp_path) == ["config.json", "engine/rank0.engine", "tokenizer.json"]


def test_an_engine_is_never_overwritten(
    arguments: list[str], builder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (main(arguments), main(arguments)) == (0, 2)
    assert "models/small/1/engine exists: move it away first" in capsys.readouterr().err


def test_half_an_engine_is_never_left(arguments: list[str], builder: Path, tmp_path: Path) -> None:
    builder.write_text(BUILDER.format(status=3))
    assert main(arguments) == 1
    assert placed(tmp_path) == []


def test_what_the_machine_lacks_is_named_with_what_to_run(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert main([*arguments, "--examples", "/none"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "build_engine: trtllm-build is not on PATH: run this inside the image of docker/Dockerfile",
        "build_engine: /none/models/core/qwen/convert_checkpoint.py is not there: "
        "name TensorRT-LLM's examples with --examples",
    ]


def test_a_refusal_names_flag_and_cure_for_people_and_programs(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--json", "--", "--use_paged_context_fmha", "disable"]) == 2
    shown = capsys.readouterr()
    expected = "--use_paged_context_fmha disable breaks the contract: --use_paged_context_fmha enable"
    assert json.loads(shown.out)["refusals"] == [expected]
    assert shown.err == f"build_engine: {expected}\n"


def test_a_directory_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model-dir", "/none", "--name", "small", "--repository", "/models"]) == 2
    assert (
        "--model-dir: /none is no Hugging Face directory: config.json: No such file"
        in capsys.readouterr().err
    )
