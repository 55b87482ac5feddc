"""python -m tools.check_trtllm on emulated engines: right ones pass, wrong ones fail with tensor and flag."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from python_backend.runner.trtllm_runner.contract import SYMBOLS
from tests.contract.emulated import Build, lay_out, use_emulator
from tests.tiny_models import TinyModel, tiny_model_dir
from tools.check_trtllm import main

DEPLOYMENT = """
models:
  - {name: small, engine: trtllm, kv_tokens: 2048, batch_max: 8, batch_tokens_max: 128}
  - {name: large, engine: torch, kv_tokens: 2048}
"""
MODEL = TinyModel("qwen3", seed=3)
PROMPT = " ".join(f"w{2 + place * 7 % 90}" for place in range(40))
STRICT = ["--tolerance", "1e-5", "--steps", "2", "--prompt", PROMPT]


@pytest.fixture
def emulator(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The emulated package; where it brings no TensorRT, the class whose names are looked for."""
    with use_emulator():
        if find_spec("tensorrt") is None:
            names = [symbol.name.rpartition(".")[2] for symbol in SYMBOLS if symbol.module == "tensorrt"]
            tensorrt = ModuleType("tensorrt")
            tensorrt.ICudaEngine = type("ICudaEngine", (), dict.fromkeys(names))  # type: ignore[attr-defined]
            monkeypatch.setitem(sys.modules, "tensorrt", tensorrt)
        yield


def repository(folder: Path, build: Build | None = None) -> str:
    """A deployment of one engine and one torch model; the path of its file."""
    lay_out(folder / "small" / "1", tiny_model_dir(MODEL), build)
    (folder / "large").mkdir()
    (folder / "large" / "1").symlink_to(tiny_model_dir(MODEL))
    (folder / "deployment.yaml").write_text(DEPLOYMENT)
    return str(folder / "deployment.yaml")


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    status = main([*arguments, *STRICT, "--json"])
    return status, {row["subject"]: row for row in json.loads(capsys.readouterr().out)["verdicts"]}


def test_an_engine_that_is_right_passes(
    emulator: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([repository(tmp_path), *STRICT]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("PASS  installation: tensorrt_llm 1.2.1 on ")
    assert "PASS  small: engine: loaded; inputs and outputs are those of the contract" in lines
    assert sum(line.startswith("PASS  small: ") for line in lines) == 11, "config, engine and nine scenarios"
    assert [line for line in lines if line.startswith("FAIL")] == []
    assert lines[-2].startswith("NOTE  small: decode step: 1 rows ")
    assert lines[-1].endswith("0 failed: ready to serve")


@pytest.mark.parametrize(
    ("build", "subject", "words"),
    [
        (
            Build(tensors={"host_request_types": None}),
            "engine",
            ("host_request_types", "--gpt_attention_plugin"),
        ),
        (Build(tensors={"logits": {"dtype": "bfloat16"}}), "engine", ("logits", "--logits_dtype float32")),
        (Build(max_batch_size=4), "engine", ("last_token_ids", "--max_batch_size")),
        (
            Build(config={"build_config.plugin_config.use_paged_context_fmha": False}),
            "config.json",
            ("use_paged_context_fmha: false", "--use_paged_context_fmha enable"),
        ),
        (Build(config={"version": "1.0.0"}), "config.json", ("built by 1.0.0, but 1.2.1 is installed",)),
    ],
)
def test_an_engine_that_breaks_the_contract_fails_with_tensor_and_flag(
    emulator: None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    build: Build,
    subject: str,
    words: tuple[str, ...],
) -> None:
    status, rows = report(capsys, repository(tmp_path, build))
    row = rows[f"small: {subject}"]
    assert (status, row["outcome"]) == (1, "FAIL")
    assert [word for word in words if word not in row["detail"]] == []


def test_an_engine_that_computes_wrongly_fails_where_it_is_wrong(
    emulator: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The emulated kernel forgets the first cached token of a row that brings several new ones."""
    sys.modules.pop("network", None)
    import network  # type: ignore[import-not-found]  # on the path only here

    whole = network.Network._attended

    def forgetful(self: Any, queries: Any, layer: int, row: int, step: Any) -> Any:
        seen = step.lengths[row] - step.counts[row]
        if step.counts[row] > 1 and seen % 4:
            queries = queries * 0.5
        return whole(self, queries, layer, row, step)

    monkeypatch.setattr(network.Network, "_attended", forgetful)
    status, rows = report(capsys, repository(tmp_path))
    failing = {subject: row["detail"] for subject, row in rows.items() if row["outcome"] == "FAIL"}
    assert status == 1
    assert set(failing) == {
        "small: a prompt in two chunks, cut inside a block",
        "small: parked, back with three tokens inside a block beside decodes",
    }
    assert failing["small: parked, back with three tokens inside a block beside decodes"].endswith(
        "set `resume: align` for this model (align and one_by_one passed)"
    )


@pytest.mark.parametrize(("seed", "outcome"), [(MODEL.seed, "PASS"), (MODEL.seed + 1, "FAIL")])
def test_a_greedy_answer_is_that_of_the_llm_api_on_the_same_weights_and_no_others(
    emulator: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], seed: int, outcome: str
) -> None:
    weights = tiny_model_dir(replace(MODEL, seed=seed))
    status, rows = report(capsys, repository(tmp_path), "--weights", f"small={weights}")
    assert rows["symbols of llm_api"]["outcome"] == "PASS"
    assert rows["small: 32 greedy tokens against the LLM API"]["outcome"] == outcome
    assert status == (0 if outcome == "PASS" else 1)


def test_without_tensorrt_llm_it_says_what_is_missing_and_what_to_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([repository(tmp_path)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("check_trtllm: TensorRT-LLM is not here (No module named 'tensorrt_llm').\n")
    assert "docker compose -f docker/compose.yaml --profile gpu run --rm gpu" in told.err
    assert "python -m pytest tests -k trtllm" in told.err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ["model_repository/deployment.yaml"],
            "no model of model_repository/deployment.yaml runs on TensorRT",
        ),
        (["none.yaml"], "none.yaml: No such file or directory"),
    ],
)
def test_a_deployment_without_engines_is_told(
    capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str
) -> None:
    assert main(arguments) == 2
    assert complaint in capsys.readouterr().err
