"""The step profile says what was measured, in the words that the planner reads."""

from __future__ import annotations

import json

import pytest

from router_backend.planner.profile import parse_profile
from router_backend.scheduler.batch import Needs
from tests.tiny_models import TinyModel, tiny_model_dir
from tools import measure_steps
from tools.step_timing import StepShape, median_step_ms, settings_for, step_plan, step_times_ms

MODEL_DIR = str(tiny_model_dir(TinyModel()))
QUICK = ["--batches", "2,1", "--contexts", "20,40", "--new-tokens", "1,3", "--repeats", "2"]


def written(capsys, *arguments):
    assert measure_steps.main([*arguments, *QUICK, "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return json.loads(captured.out)


def test_the_planner_reads_the_profile_as_it_is(capsys):
    document = written(capsys, MODEL_DIR, MODEL_DIR)

    profiles = parse_profile(document)
    decode = [row["step_ms"] for row in document["models"][0]["table"][:2]]
    assert len(profiles) == 2
    assert [profile.batch_max for profile in profiles] == [2, 2]
    assert profiles[0].latency.points == ((1, decode[0]), (2, decode[1]))


def test_every_shape_that_was_asked_for_is_in_the_table(capsys):
    table = written(capsys, MODEL_DIR)["models"][0]["table"]

    shapes = [(row["kind"], row["new_tokens"], row["context"], row["batch"]) for row in table]
    assert shapes == [
        (kind, new, context, batch)
        for kind, new in (("decode", 1), ("extend", 3))
        for context in (20, 40)
        for batch in (1, 2)
    ]
    assert all(row["step_ms"] > 0 for row in table)


def test_decode_is_measured_even_if_nobody_asked_for_it(capsys):
    assert measure_steps.main([MODEL_DIR, "--new-tokens", "4", "--repeats", "1", "--batches", "1"]) == 0

    assert "decode" in capsys.readouterr().out


def test_a_version_folder_is_named_after_its_model(tmp_path):
    (tmp_path / "small" / "1").mkdir(parents=True)

    names = [measure_steps._name(path) for path in (tmp_path / "small" / "1", tmp_path / "small")]
    assert names == ["small", "small"]


def test_a_directory_that_cannot_be_loaded_is_named(capsys, tmp_path):
    assert measure_steps.main([str(tmp_path)]) == 2

    assert f"{tmp_path}/config.json" in capsys.readouterr().err


@pytest.mark.parametrize("counts", ["0", "1,-2"])
def test_a_count_below_one_is_refused(capsys, counts):
    with pytest.raises(SystemExit):
        measure_steps.main([MODEL_DIR, "--batches", counts])

    assert "at least 1" in capsys.readouterr().err


def test_a_bar_is_shown_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")

    assert measure_steps.main([MODEL_DIR, *QUICK]) == 0
    assert "measuring" in capsys.readouterr().err


def test_rows_of_a_step_have_their_own_blocks_and_the_context_before_them():
    plan = step_plan(StepShape(batch=3, context=30, new_tokens=4), Needs(entropy=True))

    used = [block for row in plan.rows for block in row.blocks]
    assert used == list(range(9))
    assert [(row.start, row.end, row.is_sampling) for row in plan.rows] == [(30, 34, True)] * 3
    assert plan.needs == Needs(entropy=True)


def test_the_pool_holds_the_largest_shape(tmp_path):
    settings = settings_for(tmp_path, "float32", 2, [StepShape(2, 100), StepShape(4, 16)])

    assert (settings.kv_tokens, settings.block_size, settings.threads) == (14 * 16, 16, 2)


class Counting:
    info = None

    def __init__(self):
        self.steps = 0

    def execute(self, plan):
        self.steps += 1

    def close(self):
        pass


def test_a_warm_up_is_not_measured():
    runner = Counting()

    times = step_times_ms(runner, StepShape(1, 8), 5)
    assert (len(times), runner.steps, median_step_ms(runner, StepShape(1, 8), 3) >= 0) == (5, 7, True)
