"""An engine in its place, looked at before the server starts: what is missing or does not fit is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from python_backend.model_settings import ModelSettings
from python_backend.roles.place import engine_dir
from tests.contract.emulated import Build, lay_out
from tests.tiny_models import TinyModel, tiny_model_dir
from tools.engines.placed import engine_problems

MODEL = TinyModel("qwen3", seed=3)


def problems(tmp_path: Path, build: Build, tensor_parallel: int = 1) -> list[str]:
    lay_out(tmp_path / "small" / "1", tiny_model_dir(MODEL), build)
    model = ModelSettings(name="small", engine="trtllm", tensor_parallel=tensor_parallel)
    return engine_problems(model, tmp_path)


def test_an_engine_of_every_rank_has_no_problem(tmp_path: Path) -> None:
    assert problems(tmp_path, Build(tp_size=2), 2) == []


def test_an_engine_for_other_ranks_is_named(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, Build(tp_size=2), 1)
    assert problem.startswith("model small: built for 2 ranks, the deployment says 1: set tensor_parallel")


def test_a_missing_rank_and_a_broken_flag_are_named(tmp_path: Path) -> None:
    assert problems(tmp_path, Build()) == []
    (tmp_path / "small" / "1" / "engine" / "rank0.engine").unlink()
    (absent,) = engine_problems(ModelSettings(name="small", engine="trtllm"), tmp_path)
    assert absent.endswith("engine has no rank0.engine: build it with python -m tools.build_engine")


def test_a_flag_that_breaks_the_contract_is_named_with_its_cure(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, Build(config={"build_config.max_beam_width": 4}))
    assert "model small: " in problem
    assert "max_beam_width: 4; build with --max_beam_width 1" in problem


@pytest.mark.parametrize(
    ("fields", "place"),
    [({}, "small/1/engine"), ({"model_dir": "elsewhere"}, "elsewhere/engine"), ({"engine_dir": "e"}, "e")],
)
def test_an_engine_lies_beside_its_tokenizer_unless_the_deployment_says_otherwise(
    fields: dict[str, str], place: str
) -> None:
    model = ModelSettings(name="small", engine="trtllm", **fields)
    assert engine_dir(model, Path("/models")) == Path("/models") / place


def test_no_engine_is_told_with_what_makes_one(tmp_path: Path) -> None:
    (problem,) = engine_problems(ModelSettings(name="small", engine="trtllm"), tmp_path)
    assert "no engine here; make one with python -m tools.build_engine" in problem
