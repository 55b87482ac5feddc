"""A dead model is taken out at once and put back after a back-off; a silent one gets a while first."""

from __future__ import annotations

import itertools

from tools.serving.revival import BACKOFF_S_MAX, Revival, Sight, Step

UP = {"small": Sight.UP, "large": Sight.UP}
GONE = {"small": Sight.UP, "large": Sight.GONE}
SILENT = {"small": Sight.UP, "large": Sight.SILENT}


def test_nothing_is_done_while_all_are_up() -> None:
    revival = Revival()
    assert [revival.steps(UP, float(now)) for now in range(5)] == [[]] * 5


def test_a_model_without_a_process_is_unloaded_at_once_and_loaded_a_second_later() -> None:
    revival = Revival()
    assert revival.steps(GONE, 10.0) == [("large", Step.UNLOAD)]
    assert revival.out() == ("large",)
    assert revival.steps(GONE, 10.5) == []
    assert revival.steps(GONE, 11.0) == [("large", Step.LOAD)]
    revival.loaded("large", 12.0)
    assert revival.out() == ()
    assert revival.steps(UP, 12.5) == []


def test_a_silent_model_is_unloaded_only_after_a_while() -> None:
    revival = Revival(silent_s_max=3.0)
    assert revival.steps(SILENT, 10.0) == []
    assert revival.steps(SILENT, 12.9) == []
    assert revival.steps(SILENT, 13.0) == [("large", Step.UNLOAD)]


def test_silence_that_ends_is_forgotten() -> None:
    revival = Revival(silent_s_max=3.0)
    revival.steps(SILENT, 10.0)
    revival.steps(UP, 12.0)
    assert revival.steps(SILENT, 14.0) == []
    assert revival.steps(SILENT, 16.9) == []
    assert revival.steps(SILENT, 17.0) == [("large", Step.UNLOAD)]


def _attempts(revival: Revival, until: float) -> list[float]:
    """When it was tried to load `large`, each time in vain."""
    tried, now = [], 0.0
    while now < until:
        if ("large", Step.LOAD) in revival.steps(GONE, now):
            tried.append(now)
            revival.refused("large", now)
        now += 0.5
    return tried


def test_refused_loads_are_tried_at_growing_intervals_up_to_a_limit() -> None:
    tried = _attempts(Revival(), until=400.0)
    waits = [after - before for before, after in itertools.pairwise(tried)]
    assert tried[0] == 1.0
    assert waits[:6] == [2.0, 4.0, 8.0, 16.0, 32.0, BACKOFF_S_MAX]
    assert set(waits[5:]) == {BACKOFF_S_MAX}


def test_a_model_that_dies_again_soon_waits_longer() -> None:
    revival = Revival()
    revival.steps(GONE, 0.0)
    revival.steps(GONE, 1.0)
    revival.loaded("large", 1.0)
    assert revival.steps(UP, 1.5) == []
    assert revival.steps(GONE, 2.0) == [("large", Step.UNLOAD)]
    assert revival.steps(GONE, 3.9) == []
    assert revival.steps(GONE, 4.0) == [("large", Step.LOAD)]


def test_a_model_that_stayed_well_is_forgiven() -> None:
    revival = Revival()
    revival.steps(GONE, 0.0)
    revival.steps(GONE, 1.0)
    revival.loaded("large", 1.0)
    revival.steps(UP, 3.0)
    assert revival.steps(GONE, 10.0) == [("large", Step.UNLOAD)]
    assert revival.steps(GONE, 11.0) == [("large", Step.LOAD)]


def test_models_are_treated_independently() -> None:
    revival = Revival()
    both = {"small": Sight.GONE, "large": Sight.GONE}
    assert revival.steps(GONE, 0.0) == [("large", Step.UNLOAD)]
    assert revival.steps(both, 0.5) == [("small", Step.UNLOAD)]
    assert revival.steps(both, 1.0) == [("large", Step.LOAD)]
    assert revival.steps(both, 1.5) == [("small", Step.LOAD), ("large", Step.LOAD)]
