"""One thread, all families, differences only."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from python_backend.server.metrics import MetricsMirror, is_counter, parsed, pause_s
from tests.fake_pb_utils import MetricFamily


@pytest.fixture(autouse=True)
def families() -> Iterator[list[MetricFamily]]:
    MetricFamily.made.clear()
    yield MetricFamily.made


def page() -> dict[str, tuple[str, list[tuple[dict[str, str], float]]]]:
    return {
        family.name: (family.kind, [(metric.labels, metric.value) for metric in family.metrics])
        for family in MetricFamily.made
    }


def test_samples_become_families_with_the_mirrors_labels() -> None:
    figures = {'requests_total{finished="stop"}': 2.0, 'requests_total{finished="error"}': 1.0, "live": 3.0}
    mirror = MetricsMirror({"door": "d"}, lambda: figures)
    mirror.publish()
    figures["live"] = 1.0
    figures['requests_total{finished="stop"}'] = 5.0
    mirror.publish()
    requests = [({"door": "d", "finished": "stop"}, 5.0), ({"door": "d", "finished": "error"}, 1.0)]
    assert page() == {
        "token_router_requests_total": ("counter", requests),
        "token_router_live": ("gauge", [({"door": "d"}, 1.0)]),
    }


def test_what_did_not_change_costs_nothing() -> None:
    mirror = MetricsMirror({}, lambda: {"live": 3.0})
    mirror.publish()
    metric = MetricFamily.made[0].metrics[0]
    metric.threads.clear()
    mirror.publish()
    assert metric.threads == set()


def test_one_thread_touches_every_metric_and_outlives_a_broken_snapshot(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen = threading.Event()
    calls = 0

    def snapshot() -> dict[str, float]:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ValueError("not yet")
        if calls > 3:
            seen.set()
        return {"turns_total": float(calls)}

    mirror = MetricsMirror({}, snapshot, period_s=0.001)
    mirror.start()
    assert seen.wait(5)
    mirror.stop()
    metric = MetricFamily.made[0].metrics[0]
    assert (metric.value, len(metric.threads)) == (calls, 1)
    assert threading.get_ident() not in metric.threads
    assert "the metrics page is behind" in caplog.text


@pytest.mark.parametrize(("took_s", "pause"), [(0.001, 0.25), (0.01, 0.5), (0.5, 1.0)])
def test_publications_that_take_long_become_fewer_within_a_bound(took_s: float, pause: float) -> None:
    assert pause_s(took_s, 0.25) == pause


@pytest.mark.parametrize(
    ("sample", "name", "labels"),
    [
        ("live", "token_router_live", {}),
        ("token_router_live", "token_router_live", {}),
        ('a_total{x="1",y="b c"}', "token_router_a_total", {"x": "1", "y": "b c"}),
        ('t_bucket{le="+Inf"}', "token_router_t_bucket", {"le": "+Inf"}),
    ],
)
def test_a_sample_is_a_name_and_labels(sample: str, name: str, labels: dict[str, str]) -> None:
    assert parsed(sample) == (name, labels)


def test_names_that_end_like_counters_are_counters() -> None:
    names = ("a_total", "a_bucket", "a_sum", "a_count", "a", "total_a")
    assert [is_counter(name) for name in names] == [True, True, True, True, False, False]
