"""From a deployment to an artefact that its small model serves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from python_backend.runner.heads.loading import load_head
from router_backend.core.errors import ConfigError
from tests.source_tree import ROOT
from tests.tiny_models import TinyModel, tiny_model_dir
from tools import calibrate
from tools.train_router import embedding, main

REPOSITORY = ROOT / "model_repository"


def deployment(folder: Path, **small: Any) -> Path:
    models = [
        {"name": name, "model_dir": str(REPOSITORY / name / "1"), "kv_tokens": 4096}
        for name in ("small", "large")
    ]
    models[0] |= small
    (folder / "deployment.yaml").write_text(yaml.safe_dump({"models": models}))
    return folder / "deployment.yaml"


@pytest.mark.parametrize("algorithm", ["citer", "r2r"])
def test_a_trained_head_is_served_and_beats_the_small_model_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], algorithm: str
) -> None:
    out = tmp_path / "heads" / algorithm
    size = ("--demo", "120", "--epochs", "8", "--width", "32", "--blocks", "1", "--json")
    assert main([algorithm, str(out), "--deployment", str(deployment(tmp_path)), *size]) == 0
    cuts = json.loads(capsys.readouterr().out)

    assert cuts["chosen"]["recall"] >= 0.95
    assert [cut["recall"] for cut in cuts["cuts"]] == sorted(cut["recall"] for cut in cuts["cuts"])
    card = load_head(out, 96, torch.zeros(128, 96)).card
    assert (card.cutoff, card.share_at_cutoff) == (cuts["chosen"]["cutoff"], cuts["chosen"]["share"])
    served = deployment(tmp_path, heads={algorithm: f"heads/{algorithm}"})
    where = ("--deployment", str(served), "--limit", "20")
    asked = ("--policy", algorithm, "--cutoffs", str(card.cutoff), "--baseline", "--json")
    assert calibrate.main([*where, *asked]) == 0
    found = {point["policy"]: point for point in json.loads(capsys.readouterr().out)["points"]}
    assert found[algorithm]["accuracy"] > found["small_only"]["accuracy"]
    assert 0 < found[algorithm]["large_share"] < 1


def test_prompts_come_from_a_file_and_must_be_enough(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "prompts.json").write_text('["turn lift 42"]')
    asked = ("--deployment", str(deployment(tmp_path)), "--prompts", str(tmp_path / "prompts.json"))
    assert main(["citer", str(tmp_path / "out"), *asked]) == 1
    assert "1 prompts are too few: give at least 4" in capsys.readouterr().err
    assert main(["citer", str(tmp_path / "out"), *asked, "--recall", "1.5"]) == 1
    assert "--recall: 1.5 must be above 0" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_embedding_is_found_in_whichever_file_has_it(tmp_path: Path) -> None:
    assert embedding(tiny_model_dir(TinyModel("llama", shards=3))).shape == (97, 32)
    with pytest.raises(ConfigError, match=r"no safetensors file has model\.embed_tokens\.weight"):
        embedding(tmp_path)
