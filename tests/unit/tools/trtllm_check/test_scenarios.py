"""The golden scenarios pass on an engine that is right, and each wrong engine fails where it is wrong."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from python_backend.runner.torch_runner.runner import TorchRunner
from router_backend.scheduler.batch import Needs
from tests.unit.tools.trtllm_check.runners import WORDS, Broken, Refusing, is_mid_block, tiny_runner
from tools.trtllm_check.scenarios import PARKED, SCENARIOS, difference, disagreement, scenario_verdicts
from tools.trtllm_check.stepper import COMPARED, Reading, Stepper
from tools.trtllm_check.verdict import Outcome, Verdict


@pytest.fixture(scope="module")
def runner() -> Iterator[TorchRunner]:
    found = tiny_runner()
    yield found
    found.close()


def failures(verdicts: list[Verdict]) -> dict[str, str]:
    return {verdict.subject: verdict.detail for verdict in verdicts if verdict.outcome is Outcome.FAIL}


def test_an_engine_that_is_right_passes_them_all_and_gives_every_block_back(runner: TorchRunner) -> None:
    stepper = Stepper(runner, COMPARED.union(Needs(hidden=True)))
    verdicts = list(scenario_verdicts(stepper, WORDS, 1e-4))
    assert [verdict.subject for verdict in verdicts] == [scenario.name for scenario in SCENARIOS]
    assert failures(verdicts) == {}
    assert stepper.num_free == runner.info.num_blocks


def test_wrong_logits_behind_a_cache_inside_a_block_name_the_setting_that_helps(runner: TorchRunner) -> None:
    verdicts = list(scenario_verdicts(Stepper(Broken(runner, is_mid_block)), WORDS, 0.02))
    found = failures(verdicts)
    assert set(found) == {"a prompt in two chunks, cut inside a block", PARKED.name}
    assert "more than 0.02; set `resume: align`" in found[PARKED.name]
    assert found[PARKED.name].endswith("set `resume: align` for this model (align and one_by_one passed)")


def test_wrong_decodes_leave_no_way_around(runner: TorchRunner) -> None:
    def is_decode(row: object) -> bool:
        return getattr(row, "start", 0) > 0

    found = failures(list(scenario_verdicts(Stepper(Broken(runner, is_decode)), WORDS, 0.02)))
    assert found[PARKED.name].endswith("no way around it")
    assert len(found) >= len(SCENARIOS) - 1, "only a text that is computed in one go comes out right"


def test_a_refusal_of_the_engine_is_a_failure_with_its_words(runner: TorchRunner) -> None:
    found = failures(list(scenario_verdicts(Stepper(Refusing(runner, is_mid_block)), WORDS, 0.02)))
    assert found["a prompt in two chunks, cut inside a block"] == (
        "the engine refused: TR_RUNNER: the engine refuses the shapes"
    )


def reading(token: int, ids: list[int], logits: list[float]) -> Reading:
    return Reading((1,), token, np.array(ids), np.array(logits, np.float32))


def test_two_readings_agree_within_the_tolerance_or_at_a_near_tie() -> None:
    other = reading(5, [5, 6, 7], [10.0, 9.9, 2.0])
    assert disagreement(reading(5, [5, 6, 8], [10.1, 9.9, 3.0]), other, 0.02) == ""
    assert disagreement(reading(6, [6, 5, 7], [10.0, 9.9, 2.0]), other, 0.02) == ""
    clear = [10.0, 5.0]
    assert (
        disagreement(reading(7, [5, 6], clear), reading(5, [5, 6], clear), 0.02) == "chooses token 7, not 5"
    )
    assert disagreement(reading(5, [5, 6], [11.0, 9.9]), other, 0.02) == "differs by 1.0e-01, more than 0.02"


def test_a_reading_without_numbers_or_without_a_common_token_is_infinitely_far() -> None:
    other = reading(5, [5], [10.0])
    assert difference(reading(5, [5], [float("nan")]), other) == float("inf")
    assert difference(reading(6, [6], [1.0]), other) == float("inf")
