"""The plan on the screen, for people and for programs."""

from __future__ import annotations

import json

from tests.source_tree import ROOT
from tools.plan_memory import main

DEPLOYMENT = str(ROOT / "model_repository" / "deployment.yaml")


def test_the_demo_pair_is_told_line_by_line(capsys):
    assert main([DEPLOYMENT]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("memory plan of cpu: ")
    assert [line.split(":")[0].strip() for line in lines[1:]] == ["small", "large"]


def test_a_program_gets_bytes_and_tokens(capsys):
    assert main([DEPLOYMENT, "--budget", "8GiB", "--json"]) == 0

    (plan,) = json.loads(capsys.readouterr().out)["plans"]
    assert (plan["device"], plan["budget"]) == ("cpu", 8 << 30)
    assert all(
        model["total"] == model["weights"] + model["activations"] + model["kv_bytes"]
        for model in plan["models"]
    )


def test_what_does_not_fit_is_an_error_with_the_sum(capsys):
    assert main([DEPLOYMENT, "--budget", "1MiB"]) == 2
    assert "needs at least" in capsys.readouterr().err


def test_a_deployment_that_is_not_there_is_named(capsys, tmp_path):
    assert main([str(tmp_path / "none.yaml")]) == 2
    assert "none.yaml" in capsys.readouterr().err
