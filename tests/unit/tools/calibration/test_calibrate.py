"""The tool on the demo pair: the extremes are the models alone, and the cutoff ends up in the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from router_backend.core.errors import ConfigError
from tests.source_tree import ROOT
from tools.calibrate import Question, main, questions, with_policy

REPOSITORY = ROOT / "model_repository"
TEXT = """# The demo pair.
models: [{name: small}, {name: large}]
policy:  # how
  name: r_stitch

  params: {cutoff: 0.2, unit: normalized}
# the wait
deadline_ms: 5
"""


def deployment(folder: Path) -> Path:
    dirs = {name: str(REPOSITORY / name / "1") for name in ("small", "large")}
    models = [{"name": name, "model_dir": path, "kv_tokens": 4096} for name, path in dirs.items()]
    settings = {"models": models, "policy": {"name": "r_stitch", "params": {"cutoff": 0.2}}}
    (folder / "deployment.yaml").write_text("# mine\n" + yaml.safe_dump(settings))
    return folder / "deployment.yaml"


def calibrate(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main([*arguments, "--limit", "6", "--json"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_the_extremes_are_one_model_alone_and_more_uncertainty_is_less_share(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cutoffs = ("--cutoffs", "-1", "0.05", "0.3", "1.5", "--baseline", "--plot", str(tmp_path / "curve.png"))
    found = calibrate(capsys, "--deployment", str(deployment(tmp_path)), *cutoffs)

    routed = [point for point in found["points"] if point["policy"] == "r_stitch"]
    alone = {point["policy"]: point for point in found["points"] if point["policy"].endswith("_only")}
    assert [point["large_share"] for point in routed] == sorted(
        (point["large_share"] for point in routed), reverse=True
    )
    assert (routed[0]["large_share"], routed[-1]["large_share"]) == (1.0, 0.0)
    assert (routed[0]["accuracy"], routed[-1]["accuracy"]) == (
        alone["large_only"]["accuracy"],
        alone["small_only"]["accuracy"],
    )
    assert alone["small_only"]["discarded_share"] == alone["large_only"]["handoffs_per_token"] == 0.0
    assert {point["policy"] for point in found["points"]} == {"r_stitch", "random", *alone}
    assert (tmp_path / "curve.png").stat().st_size > 1000


def test_the_cutoff_for_a_share_is_written_into_the_deployment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = deployment(tmp_path)
    wished = ("--cutoffs", "0.01", "0.6", "--target-share", "0.3", "--write")
    chosen = calibrate(capsys, "--deployment", str(path), *wished)["chosen"]

    assert chosen["large_share"] == pytest.approx(0.3, abs=0.05)
    assert yaml.safe_load(path.read_text())["policy"]["params"] == {"cutoff": chosen["cutoff"]}
    assert path.read_text().startswith("# mine\n")


def test_writing_a_policy_leaves_every_other_line_alone() -> None:
    changed = with_policy(TEXT, "entropy", {"cutoff": 0.5})
    assert changed == (
        "# The demo pair.\nmodels: [{name: small}, {name: large}]\n"
        "policy:\n  name: entropy\n  params:\n    cutoff: 0.5\n# the wait\ndeadline_ms: 5\n"
    )
    bare = "models: [{name: a}, {name: b}]"
    assert with_policy(bare, "random", {"p": 0.5}).startswith(bare + "\npolicy:\n  name: random\n")


def test_prompts_with_and_without_answers(tmp_path: Path) -> None:
    path = tmp_path / "prompts.json"
    path.write_text('["one", {"prompt": "two"}, {"prompt": "three", "answer": "3"}]')
    assert questions(path, None) == (Question("one"), Question("two"), Question("three", "3"))
    assert questions(path, 1) == (Question("one"),)


@pytest.mark.parametrize("text", ["[]", "{}", "[3]", "[{}]", "nothing"])
def test_a_file_without_prompts_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "prompts.json").write_text(text)
    with pytest.raises(ConfigError, match=r"prompts\.json: "):
        questions(tmp_path / "prompts.json", None)


def test_what_cannot_be_measured_is_said_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--write"]) == 1
    assert capsys.readouterr().err == "calibrate: TR_CONFIG: --write: needs --target-share\n"
    path = deployment(tmp_path)
    assert main(["--deployment", str(path), "--limit", "2", "--policy", "citer", "--cutoffs", "0.5"]) == 1
    assert "citer.head: 'citer' is not loaded on small; loaded: none" in capsys.readouterr().err
