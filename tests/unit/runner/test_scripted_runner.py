"""The engine without a model: what it draws, how long it takes, when it fails."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from python_backend.runner.base import RunnerInfo
from python_backend.runner.registry import runner_factory
from python_backend.runner.scripted_runner import (
    SPIN_S,
    Pace,
    Script,
    ScriptedRunner,
    ScriptedSettings,
    load_script,
    parse_script,
)
from router_backend.core.errors import ConfigError, RunnerError
from router_backend.core.request import RequestId, Sampling
from router_backend.planner.latency import StepLatency
from router_backend.scheduler.batch import BatchPlan, LaunchReason, Needs, Row, StepOutput


class FakePace:
    """A clock that only sleeping moves; every sleep overshoots by `late_s`, a look costs a microsecond."""

    def __init__(self, late_s: float = 0.0) -> None:
        self.now = 0.0
        self.late_s = late_s
        self.slept: list[float] = []

    def clock(self) -> float:
        self.now += 1e-6
        return self.now

    def sleep(self, duration_s: float) -> None:
        if duration_s:
            self.slept.append(duration_s)
            self.now += duration_s + self.late_s


def runner(script: Script, model: int = 0, pace: FakePace | None = None) -> ScriptedRunner:
    fake = pace or FakePace()
    return ScriptedRunner(ScriptedSettings(script, model, 64, 16), Pace(fake.clock, fake.sleep))


def row(position: int, seed: int = 5, fed: int = 1, is_sampling: bool = True) -> Row:
    """A row that samples at `position` and feeds the `fed` tokens before it."""
    return Row(RequestId("r"), [1] * fed, position - fed, [0], is_sampling, Sampling(seed=seed), 0)


def plan(*rows: Row, needs: Needs | None = None) -> BatchPlan:
    return BatchPlan(1, rows, needs or Needs(), LaunchReason.THRESHOLD)


def plain(output: StepOutput) -> dict[str, Any]:
    """The columns that are there, as lists."""
    names = ("tokens", "entropy", "max_prob", "topk_ids", "topk_logits", "hidden")
    columns = {name: getattr(output, name) for name in names}
    return {name: column.tolist() for name, column in columns.items() if column is not None}


def test_a_row_that_asks_is_told_the_tokens_after_its_own_as_the_next_likely() -> None:
    asking = row(3)._replace(sampling=Sampling(seed=5, logprobs=2))
    output = runner(Script(vocab_size=8, tokens=(7,))).execute(plan(asking, row(4)))

    assert output.top_ids is not None and output.top_logprobs is not None and output.logprobs is not None
    assert output.top_ids.tolist() == [[7, 0], [7, 0]]
    np.testing.assert_allclose(output.top_logprobs[0] - output.logprobs[0], [0.0, -1.0])


def test_tokens_depend_on_seed_and_position_and_not_on_the_batch() -> None:
    subject = runner(Script(vocab_size=1000))
    together = subject.execute(plan(row(10), row(11), row(10, seed=6))).tokens.tolist()
    alone = [subject.execute(plan(one)).tokens.tolist()[0] for one in (row(10), row(11), row(10, seed=6))]

    assert together == alone == [subject.token_at(5, 10), subject.token_at(5, 11), subject.token_at(6, 10)]
    assert len(set(together)) == 3


def test_models_with_one_salt_write_the_same_text_and_with_two_a_different_one() -> None:
    texts = [
        [runner(Script(vocab_size=1000, salt=salt), model).token_at(5, position) for position in range(20)]
        for salt, model in ((0, 0), (0, 1), (1, 0))
    ]

    assert texts[0] == texts[1] != texts[2]


def test_a_given_sequence_is_followed_by_position_and_repeats() -> None:
    output = runner(Script(vocab_size=10, tokens=(4, 5, 6))).execute(plan(row(3), row(4), row(8)))

    assert output.tokens.tolist() == [4, 5, 6]


def test_tokens_are_uniform_over_the_vocabulary_without_end_tokens() -> None:
    subject = runner(Script(vocab_size=5, eos_ids=(2, 4)))
    tokens = [subject.token_at(seed, 7) for seed in range(3000)]
    counts = np.bincount(tokens, minlength=5)

    assert counts[[2, 4]].tolist() == [0, 0]
    assert np.all(np.abs(counts[[0, 1, 3]] - 1000) < 130)


def test_end_tokens_come_with_their_probability() -> None:
    subject = runner(Script(vocab_size=50, eos_ids=(49,), eos_p=0.25))
    ends = sum(subject.token_at(seed, 3) == 49 for seed in range(4000))

    assert abs(ends - 1000) < 120


def test_uncertainty_is_a_draw_per_seed_position_and_model() -> None:
    script = Script(vocab_size=50, uncertain_p=0.35)
    small, large = runner(script, 0), runner(script, 1)
    draws = [[one.is_uncertain_at(seed, 3) for seed in range(4000)] for one in (small, large)]

    assert all(abs(sum(drawn) - 1400) < 130 for drawn in draws)
    assert draws[0] != draws[1]


def test_only_the_signals_that_are_needed_are_computed() -> None:
    subject = runner(Script(vocab_size=8, tokens=(7,), hidden_size=2))
    bare = subject.execute(plan(row(3)))
    full = subject.execute(plan(row(3), needs=Needs(entropy=True, max_prob=True, topk=3, hidden=True)))

    assert plain(bare) == {"tokens": [7]}
    assert plain(full) == {
        "tokens": [7],
        "entropy": [0.0],
        "max_prob": [pytest.approx(0.99)],
        "topk_ids": [[7, 0, 1]],
        "topk_logits": [[0.0, -1.0, -2.0]],
        "hidden": [[0.0, 0.0]],
    }


@pytest.mark.parametrize(("high", "expected"), [(None, math.log(8)), (1.5, 1.5)])
def test_an_uncertain_step_has_the_high_entropy(high: float | None, expected: float) -> None:
    subject = runner(Script(vocab_size=8, uncertain_p=1.0, entropy_high=high))

    assert subject.execute(plan(row(3), needs=Needs(entropy=True))).entropy == pytest.approx([expected])


def test_a_chunk_in_the_middle_of_a_prompt_yields_nothing() -> None:
    subject = runner(Script(vocab_size=8, tokens=(1, 2, 3)))
    needs = Needs(entropy=True)
    mixed = subject.execute(plan(row(4, fed=4, is_sampling=False), row(5), needs=needs))
    none = subject.execute(plan(row(4, fed=4, is_sampling=False), needs=needs))

    assert (mixed.tokens.tolist(), none.tokens.tolist()) == ([3], [])


@pytest.mark.parametrize(
    ("rows", "expected_ms"),
    [((row(3),), 6.0), ((row(3), row(3)), 7.0), ((row(3),) * 5, 9.0), ((row(9, fed=5), row(3)), 7.4)],
)
def test_a_step_takes_the_time_of_its_batch(rows: tuple[Row, ...], expected_ms: float) -> None:
    pace = FakePace()
    subject = runner(Script(vocab_size=8, latency_ms=(6.0, 7.0, 9.0), token_ms=0.1), pace=pace)
    subject.execute(plan(*rows))

    assert subject.step_ms(plan(*rows)) == pytest.approx(expected_ms)
    assert pace.now * 1000 == pytest.approx(expected_ms, abs=0.01)


def test_a_measured_curve_takes_the_place_of_the_list() -> None:
    subject = runner(Script(vocab_size=8, curve=StepLatency(((1, 6.0), (3, 8.0))), token_ms=0.1))

    assert subject.step_ms(plan(row(3), row(9, fed=3))) == pytest.approx(7.2)


def launch_times_ms(pauses_s: list[float], **script: float) -> list[float]:
    """When each step is launched if so much time passes between the end of one and the next."""
    pace = FakePace()
    subject = runner(Script(vocab_size=8, latency_ms=(6.0,), **script), pace=pace)  # type: ignore[arg-type]
    launches = []
    for pause_s in pauses_s:
        pace.now += pause_s
        launches.append(1000.0 * pace.now)
        subject.execute(plan(row(3)))
    return launches


def test_with_host_time_steps_are_so_far_apart_from_launch_to_launch() -> None:
    launches = launch_times_ms([0.0003] * 200, host_ms=0.2)

    assert launches[-1] - launches[-2] == pytest.approx(6.0, abs=0.01)


def test_without_it_and_after_idle_time_the_pause_comes_on_top() -> None:
    plain = launch_times_ms([0.0003] * 3)
    rested = launch_times_ms([0.002] * 3, host_ms=0.2)

    assert plain[-1] - plain[-2] == pytest.approx(6.3, abs=0.01)
    assert rested[-1] - rested[-2] == pytest.approx(7.8, abs=0.01)


def test_the_first_step_asks_for_exact_timers_once() -> None:
    asked: list[bool] = []
    fake = FakePace()
    pace = Pace(fake.clock, fake.sleep, lambda: asked.append(True))
    subject = ScriptedRunner(ScriptedSettings(Script(vocab_size=8), 0, 64, 16), pace)
    subject.execute(plan(row(3)))
    subject.execute(plan(row(4)))

    assert asked == [True]


def test_waiting_ends_on_time_although_every_sleep_is_late() -> None:
    pace = FakePace(late_s=SPIN_S / 2)
    Pace(pace.clock, pace.sleep).wait(0.006)

    assert pace.now == pytest.approx(0.006, abs=5e-6)
    assert pace.slept == [pytest.approx(0.006 - SPIN_S, abs=5e-6)]


def test_a_step_that_takes_no_time_does_not_sleep() -> None:
    pace = FakePace()
    runner(Script(vocab_size=8), pace=pace).execute(plan(row(3)))

    assert pace.slept == []


def test_real_time_is_kept() -> None:
    pace = Pace()
    started_at = pace.clock()
    pace.wait(started_at + 0.006)
    waited_s = pace.clock() - started_at

    # The upper bound is loose because a busy machine may take the processor away.
    assert 0.006 <= waited_s < 1.0


def test_failing_steps_fail_and_the_others_do_not() -> None:
    subject = runner(Script(vocab_size=8, failing_steps=frozenset({2})))
    subject.execute(plan(row(3)))
    with pytest.raises(RunnerError, match=r"the script fails step 2"):
        subject.execute(plan(row(3)))
    third = subject.execute(plan(row(3)))

    assert len(third.tokens) == 1


def test_the_info_joins_script_and_deployment() -> None:
    script = Script(vocab_size=8, length_max=100, eos_ids=(7,), hidden_size=4)
    infos = [
        ScriptedRunner(ScriptedSettings(script, 0, 64, 16, length_max)).info for length_max in (None, 50, 500)
    ]

    assert infos[0] == RunnerInfo(8, 100, 64, 16, frozenset({7}), 4)
    assert [info.length_max for info in infos] == [100, 50, 100]


def test_the_registry_knows_it() -> None:
    subject = runner_factory("scripted")(ScriptedSettings(Script(vocab_size=8), 0, 64, 16))
    subject.close()

    assert isinstance(subject, ScriptedRunner)


def test_a_script_is_read_key_by_key(tmp_path: Path) -> None:
    path = tmp_path / "small.json"
    written = {"vocab_size": 8, "latency_ms": [6, 7.5], "tokens": [1, 2], "eos_ids": [7]}
    path.write_text(json.dumps({**written, "failing_steps": [3]}))

    assert load_script(path) == Script(
        8, latency_ms=(6.0, 7.5), tokens=(1, 2), eos_ids=(7,), failing_steps=frozenset({3})
    )
    assert parse_script('{"vocab_size": 8, "latency_ms": 6}', "x") == Script(8, latency_ms=(6.0,))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "small.json: not JSON"),
        ("[]", "small.json: needs an object with vocab_size"),
        ("{}", "small.json: needs an object with vocab_size"),
        ('{"vocab_size": 8, "latency": 6}', "small.json: unknown key 'latency'"),
        ('{"vocab_size": 8, "latency_ms": "fast"}', "small.json: could not convert"),
        ('{"vocab_size": 8, "tokens": 5}', "small.json: "),
        ('{"vocab_size": "8"}', "small.json: "),
        ('{"vocab_size": 1}', "vocab_size 1 must be at least 2"),
        ('{"vocab_size": 8, "latency_ms": -1}', "not negative"),
        ('{"vocab_size": 8, "latency_ms": []}', "not negative"),
        ('{"vocab_size": 8, "uncertain_p": 1.5}', "probabilities from 0 to 1"),
        ('{"vocab_size": 8, "tokens": [8]}', "must be below vocab_size 8"),
        ('{"vocab_size": 8, "eos_p": 0.1}', "eos_p needs eos_ids"),
    ],
)
def test_a_bad_script_names_its_file_or_key(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_script(text, "small.json")

    assert message in str(caught.value)


def test_a_missing_script_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.json: No such file or directory: cannot read the script"):
        load_script(tmp_path / "gone.json")
