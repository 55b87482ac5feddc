"""`python -m tools.simulate`: what it prints for each job, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from router_backend.simulation import scenario as scenarios
from tools import simulate
from tools.simulated.sweep import KINDS, REPLICAS, counts_of

A100 = ["--small-ms", "6.0", "--large-ms", "27.9", "--route-probability", "0.35"]
SHORT = [*A100, "--concurrency", "4", "--tokens", "3000"]

pytestmark = pytest.mark.filterwarnings("ignore:native chain solver is not built:RuntimeWarning")


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert simulate.main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert simulate.main(arguments) == 2
    return capsys.readouterr().err.strip()


def test_the_figure_is_the_papers_to_the_number(capsys):
    assert printed(capsys, "--figure") == {
        "step_sync": 40 / 3,
        "model_sync": 13.0,
        "eager_async": 65 / 6,
        "delayed": 26 / 3,
    }


def test_threshold_3_hangs_without_drain_rules_and_not_with_them(capsys):
    found = printed(capsys, "--figure", "--threshold-3")["threshold_3"]

    assert found["without_drain_rules"] == {"hangs_at": 5.0, "unended": ["B", "C"]}
    assert found["with_drain_rules"] == pytest.approx(32 / 3)


def test_the_figure_for_people_has_a_line_per_mode_and_the_variant(capsys):
    simulate.main(["--figure"])
    lines = capsys.readouterr().out.splitlines()

    assert lines[0] == "step_sync     40/3 = 13.3333"
    assert lines[3] == "delayed       26/3 = 8.6667"
    assert lines[4].endswith("without drain rules it hangs at 5 with B and C unended;")
    assert lines[5].endswith("with them 32/3 = 10.6667")


def test_a_what_if_run_is_near_the_prediction_and_says_how_it_got_there(capsys):
    found = printed(capsys, *SHORT)

    assert (found["mode"], found["n"], found["thresholds"]) == ("delayed", 4, [1, 3])
    assert found["predicted"] == pytest.approx(207.954041, rel=1e-4)
    assert found["ratio"] == pytest.approx(1.0, abs=0.03)
    assert found["gap_p50_ms"] == pytest.approx(6.0)
    assert found["gap_p99_ms"] > 33.9
    assert list(found["launches"]["large"]) == ["threshold"]
    assert found["mean_batch"]["large"] == pytest.approx(3.2, abs=0.3)
    assert found["tokens"] == 3060
    assert found["simulated"] is True


@pytest.mark.parametrize("mode", ["eager_async", "step_sync", "model_sync"])
def test_every_mode_has_a_prediction(capsys, mode):
    found = printed(capsys, *SHORT, "--mode", mode)

    assert found["thresholds"] == [1, 1]
    assert found["ratio"] == pytest.approx(1.0, abs=0.04)


def test_the_fast_simulation_has_no_gaps_and_no_reasons(capsys):
    found = printed(capsys, *SHORT, "--fast")

    assert (found["method"], found["gap_p50_ms"], found["launches"]) == ("monte_carlo", None, {})
    assert found["ratio"] == pytest.approx(1.0, abs=0.03)


def test_thresholds_that_only_the_live_clamp_makes_possible_have_no_prediction(capsys):
    found = printed(capsys, *SHORT, "--thresholds", "3", "4")

    assert (found["predicted"], found["ratio"]) == (None, None)
    assert found["throughput"] > 0


def test_the_text_shows_the_same_and_a_dash_where_there_is_nothing(capsys):
    simulate.main([*SHORT, "--answer-tokens", "1", "--thresholds", "3", "4"])
    text = capsys.readouterr().out

    assert "delayed, thresholds 3,4, 4 requests (core, simulated)" in text
    assert "predicted -\n" in text
    assert "p50 - ms" in text
    assert "tokens/s" in text


def test_step_times_may_be_listed_by_batch_or_come_from_a_profile(capsys, tmp_path):
    steps = [{"batch": 1, "step_ms": 6.0}, {"batch": 2, "step_ms": 8.0}]
    large = [{"batch": 1, "step_ms": 27.9}]
    profile = tmp_path / "profile.json"
    profile.write_text(json.dumps({"models": [{"name": "s", "steps": steps}, {"name": "l", "steps": large}]}))
    rest = ["--route-probability", "0.35", "--concurrency", "2", "--tokens", "500"]

    listed = printed(capsys, "--small-ms", "6.0,8.0", "--large-ms", "27.9", *rest)
    read = printed(capsys, "--profile", str(profile), *rest)

    assert listed["throughput"] == read["throughput"]


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_the_plot_of_a_run_is_a_picture(tmp_path, suffix):
    pytest.importorskip("matplotlib")
    path = tmp_path / f"run.{suffix}"

    assert simulate.main([*SHORT, "--plot", str(path)]) == 0
    assert path.stat().st_size > 5_000


def test_the_plot_of_the_figure_has_a_panel_per_mode(tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "figure.svg"
    simulate.main(["--figure", "--plot", str(path)])

    titles = ["step sync: mean latency 40/3", "model sync: mean", "eager async: mean", "delayed: mean"]
    assert all(title in path.read_text() for title in titles)


def test_a_seed_that_passes_shows_its_trace_and_its_digest(capsys):
    assert simulate.main(["--replay", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()

    digest = scenarios.scenario(3).finished().trace.digest()
    assert lines[-1] == f"seed 3 2 0.0 delayed: passes; digest {digest}"
    assert any(" launch " in line for line in lines)


def test_a_seed_that_fails_shows_when_and_why_after_its_trace(capsys, monkeypatch):
    monkeypatch.setattr(scenarios, "expected_answer", lambda *_: ([], []))

    assert simulate.main(["--replay", "3", "3", "0.03", "delayed"]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("seed 3 3 0.03 delayed: fails at ")


def test_a_sweep_runs_every_kind_of_fault_and_counts_what_it_met(capsys):
    assert simulate.main(["--seeds", "32", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["seeds"], found["violations"]) == (32, [])
    assert min(found["requests"], found["recoveries"], found["lost_messages"]) > 0


def test_a_seed_of_a_system_whose_models_die_can_be_replayed(capsys):
    assert simulate.main(["--replay", "4", "2", "0.0", "delayed", "retry"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(any(f" {word} " in line for line in lines) for word in ("dies", "sleeps", "rises", "loses"))
    assert lines[-1].startswith("seed 4 2 0.0 delayed retry: passes; digest ")


def test_what_a_scenario_with_replicas_says_of_itself_replays_it(capsys):
    told = scenarios.scenario(3, 2, counts=(1, 2))
    assert simulate.main(["--replay", *told.arguments.split()]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    digest = told.finished().trace.digest()
    assert last == f"seed 3 2 0.0 delayed --replicas 1,2: passes; digest {digest}"


def test_every_kind_of_fault_meets_every_arrangement_of_replicas():
    rounds = KINDS * 4 * max(len(counts) for counts in REPLICAS.values())
    met = {(seed % KINDS, counts_of(seed, 2 + seed % 2)) for seed in range(rounds)}
    arrangements = {models: {(1,) * models, *counts} for models, counts in REPLICAS.items()}
    assert met == {
        (kind, counts) for kind in range(KINDS) for counts in arrangements[2 + kind % 2]
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (A100, "--concurrency: missing"),
        (["--small-ms", "6", "--concurrency", "4"], "--large-ms: missing (or --profile)"),
        (["--small-ms", "6", "--large-ms", "9", "--concurrency", "4"], "--route-probability: missing"),
        ([*SHORT, "--small-ms", "6,x"], "--small-ms: could not convert"),
        ([*SHORT, "--small-ms", "0"], "steps[0].step_ms: must be above 0 ms"),
        ([*SHORT, "--route-probability", "2"], "route_probability: must lie between 0 and 1"),
        ([*SHORT, "--concurrency", "0"], "concurrency: must be at least 1"),
        ([*SHORT, "--tokens", "-1"], "--tokens: must be at least 1"),
        ([*SHORT, "--answer-tokens", "-1"], "--answer-tokens: must be at least 1"),
        ([*SHORT, "--thresholds", "0", "1"], "--thresholds: must be at least 1"),
        ([*SHORT, "--handoff-ms", "-1"], "--handoff-ms and --deadline-ms: must be 0 or more"),
        ([*SHORT, "--fast", "--handoff-ms", "1"], "--fast knows no barrier modes"),
        ([*SHORT, "--fast", "--thresholds", "3", "4"], "thresholds"),
        ([*SHORT, "--fast", "--plot", "x.png"], "--plot: --fast has no single batches"),
        ([*SHORT, "--profile", "no-such-file"], "--profile: no-such-file: No such file"),
        (["--seeds", "0"], "--seeds: must be at least 1"),
        (["--replay", "1", "2", "0", "delayed", "perhaps"], "'perhaps' is not a valid PeerLoss"),
        (["--replay", "1", "2", "--replicas", "1"], "--replicas: 1: 2 models need 2 numbers"),
        (["--replay", "1", "2", "--replicas", "1,0"], "--replicas: 1,0: 2 models need 2 numbers"),
        (["--replay", "x"], "--replay: SEED [MODELS [DROP_P [MODE [ON_PEER_LOSS]]]]:"),
    ],
)
def test_what_cannot_be_used_is_named(capsys, arguments, said):
    assert said in refusal(capsys, *arguments)


def test_a_picture_that_cannot_be_written_is_named(capsys):
    pytest.importorskip("matplotlib")
    assert "no-such-folder/x.png: " in refusal(capsys, "--figure", "--plot", "no-such-folder/x.png")


@pytest.mark.parametrize(("text", "said"), [("{", "is not JSON"), ('{"models": []}', "2 models")])
def test_a_profile_that_cannot_be_used_is_named(capsys, tmp_path, text, said):
    (tmp_path / "profile.json").write_text(text)
    path = str(Path(tmp_path / "profile.json"))

    assert said in refusal(capsys, "--profile", path, "--route-probability", "0.3", "--concurrency", "2")
