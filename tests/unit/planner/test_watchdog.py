"""The watchdog: which arm runs when, and what makes it change sides."""

from __future__ import annotations

import pytest

from router_backend.core.errors import ConfigError
from router_backend.planner.watchdog import Arm, Watchdog, WatchdogSettings

SETTINGS = WatchdogSettings(interval_s=10.0, window_s=1.0, window_pairs=2, settle_share=0.25)
TICK_S = 0.05


def run(
    watchdog: Watchdog, begin_s: float, end_s: float, tokens_per_s: dict[Arm, float], live: int = 8
) -> None:
    """Commit tokens at the rate of whatever arm runs."""
    steps = round((end_s - begin_s) / TICK_S)
    for step in range(1, steps + 1):
        now = begin_s + step * TICK_S
        rate = tokens_per_s[watchdog.arm(now - TICK_S / 2)]
        watchdog.record(round(rate * TICK_S), live, now)


def test_arms_alternate_at_the_end_of_every_interval() -> None:
    watchdog = Watchdog(100.0, SETTINGS)

    seen = [watchdog.arm(100.0 + second) for second in (0.0, 5.9, 6.5, 7.5, 8.5, 9.5, 10.5, 16.5)]

    planned, ones = Arm.PLANNED, Arm.ONES
    assert seen == [planned, planned, ones, planned, ones, planned, planned, ones]


def test_a_plan_that_pays_stays() -> None:
    watchdog = Watchdog(0.0, SETTINGS)

    run(watchdog, 0.0, 40.0, {Arm.PLANNED: 420.0, Arm.ONES: 400.0})

    assert watchdog.preferred is Arm.PLANNED


def test_a_plan_that_loses_a_lot_is_dropped_after_one_comparison() -> None:
    watchdog = Watchdog(0.0, SETTINGS)

    run(watchdog, 0.0, 10.1, {Arm.PLANNED: 200.0, Arm.ONES: 400.0})

    assert watchdog.preferred is Arm.ONES
    assert watchdog.arm(12.0) is Arm.ONES
    assert watchdog.arm(17.5) is Arm.PLANNED


def test_a_plan_that_loses_a_little_is_dropped_once_that_is_sure() -> None:
    watchdog = Watchdog(0.0, SETTINGS)

    run(watchdog, 0.0, 10.1, {Arm.PLANNED: 360.0, Arm.ONES: 400.0})
    first = watchdog.preferred
    run(watchdog, 10.1, 60.1, {Arm.PLANNED: 360.0, Arm.ONES: 400.0})

    assert (first, watchdog.preferred) == (Arm.PLANNED, Arm.ONES)


def test_noise_alone_does_not_drop_a_plan_that_is_as_good() -> None:
    """Every pair of windows is off by 20 % in one direction or the other."""
    watchdog = Watchdog(0.0, SETTINGS)

    for pair in range(40):
        rates = (400.0, 320.0) if pair % 2 else (320.0, 400.0)
        begin_s = 10.0 * (pair // 2) + (8.0 if pair % 2 else 0.0)
        end_s = 10.0 * (pair // 2) + (10.0 if pair % 2 else 8.0)
        run(watchdog, begin_s, end_s, dict(zip(Arm, rates, strict=True)))
        assert watchdog.preferred is Arm.PLANNED


def test_a_small_loss_is_tolerated() -> None:
    watchdog = Watchdog(0.0, SETTINGS)

    run(watchdog, 0.0, 100.1, {Arm.PLANNED: 2000.0, Arm.ONES: 2020.0})

    assert watchdog.preferred is Arm.PLANNED


def test_a_plan_that_pays_again_comes_back() -> None:
    watchdog = Watchdog(0.0, SETTINGS)

    run(watchdog, 0.0, 10.1, {Arm.PLANNED: 200.0, Arm.ONES: 400.0})
    dropped = watchdog.preferred
    run(watchdog, 10.1, 200.1, {Arm.PLANNED: 440.0, Arm.ONES: 400.0})

    assert (dropped, watchdog.preferred) == (Arm.ONES, Arm.PLANNED)


def test_too_few_tokens_prove_nothing() -> None:
    watchdog = Watchdog(0.0, WatchdogSettings(interval_s=10.0, window_s=1.0, tokens_min=30))

    run(watchdog, 0.0, 60.1, {Arm.PLANNED: 20.0, Arm.ONES: 20.0 * 3})

    assert watchdog.preferred is Arm.PLANNED


def test_the_start_of_a_window_is_not_counted() -> None:
    """Tokens of the other arm's batches would otherwise be booked on this one."""
    watchdog = Watchdog(0.0, SETTINGS)

    for window in range(4):
        begin_s = 6.0 + window
        watchdog.record(10_000 if window % 2 else 0, 8, begin_s + 0.2)
        watchdog.record(200 if window % 2 else 400, 8, begin_s + 0.9)
    watchdog.record(0, 8, 10.1)

    assert watchdog.preferred is Arm.ONES


def test_rates_are_per_live_request() -> None:
    """Twice the requests during the windows of ones must not count against the plan."""
    watchdog = Watchdog(0.0, SETTINGS)

    for step in range(1, 203):
        now = step * TICK_S
        is_ones = watchdog.arm(now - TICK_S / 2) is Arm.ONES
        watchdog.record(40 if is_ones else 20, 16 if is_ones else 8, now)

    assert watchdog.preferred is Arm.PLANNED


@pytest.mark.parametrize(
    "settings",
    [{"window_s": 0.0}, {"window_s": 6.0}, {"window_pairs": 0}, {"settle_share": 1.0}, {"memory": 1.0}],
)
def test_windows_that_do_not_fit_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="watchdog: "):
        WatchdogSettings(**settings)  # type: ignore[arg-type]
