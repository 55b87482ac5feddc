"""What an operator's tools make of a live server: Prometheus, the dashboard's queries, the alerts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from python_backend.metric_catalogue import CATALOGUE, metric_of
from tests.server.clients import eventually, generate
from tests.server.prometheus import IS_INSTALLED, MONITORING, Prometheus, scraping
from tests.server.test_doors import DEMO, DOORS
from tools.monitoring.panels import HERE
from tools.triton_server import TritonServer

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(not IS_INSTALLED, reason="needs Debian's package prometheus (.ci/run installs it)"),
]

PREFIX = "token_router_"
FRONTS = 'door=~"token_router|router"'
SCRAPES = 4
WHEN_IT_HAPPENS = {"request_errors_total", "rejections_total"}
WITH_ADAPTIVE_THRESHOLDS = {
    *("predicted_throughput", "threshold_cause"),
    *("threshold_solutions_total", "threshold_solving_seconds_total"),
}
AT_REST = (
    f"live_requests{{{FRONTS}}}",
    f"queued_requests{{{FRONTS}}}",
    f"open_streams{{{FRONTS}}}",
    f"unsent_responses{{{FRONTS}}}",
    f"unsent_bytes{{{FRONTS}}}",
    *("live", "requests", "num_requests_running", "num_requests_waiting", "kv_cache_usage"),
    *("seconds_since_progress", "committed_throughput", 'kv_blocks{owner=~"running|parked"}'),
)


@pytest.fixture(scope="module")
def prometheus(server: TritonServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with scraping(server, tmp_path_factory.mktemp("prometheus")) as running:
        for door in DOORS:
            for demo in DEMO[:6]:
                assert generate(server, door, text_input=demo["prompt"], max_tokens=20).status == 200
        assert generate(server, "token_router", text_input="refused", max_tokens=0).error
        seen = f"count_over_time({PREFIX}rejections_total[1m])"
        assert eventually(lambda: running.value(seen) >= SCRAPES)
        yield running


def families(prometheus: Prometheus) -> set[str]:
    """Names on the page, of the real doors and the models; fake doors of other tests have their own."""
    chosen = f'{{__name__=~"{PREFIX}.*",door!~"fake.*"}}'
    return {labels["__name__"].removeprefix(PREFIX) for labels, _ in prometheus.ask(chosen)}


def expressions() -> list[str]:
    """Of every panel and every alert, as Grafana would send them."""
    board = json.loads((MONITORING / "grafana/dashboards/token_router.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    filled = [query.replace("$__rate_interval", "1m").replace("$instance", ".*") for query in queries]
    assert len(filled) > 60
    assert all(HERE.replace("$instance", ".*") in query for query in filled)
    return filled


def rules(prometheus: Prometheus) -> list[dict[str, Any]]:
    return [rule for group in prometheus.get("/api/v1/rules")["groups"] for rule in group["rules"]]


def test_the_page_shows_the_catalogue_and_nothing_else(prometheus: Prometheus) -> None:
    shown = {family: metric_of(family) for family in families(prometheus)}
    assert [family for family, metric in shown.items() if metric is None] == []
    missing = set(CATALOGUE) - {metric.name for metric in shown.values() if metric}
    assert missing <= WITH_ADAPTIVE_THRESHOLDS | WHEN_IT_HAPPENS - {"rejections_total"}


def test_samples_carry_the_labels_of_the_catalogue(prometheus: Prometheus) -> None:
    for labels, _ in prometheus.ask(f'{{__name__=~"{PREFIX}.*",door!~"fake.*"}}'):
        metric = metric_of(labels["__name__"].removeprefix(PREFIX))
        assert metric is not None
        own = set(labels) - {"__name__", "instance", "job", "le", "version"}
        expected = set(metric.labels) - {"version"}
        assert own - expected <= {"door", "model"}, labels
        assert expected <= own, labels


def test_every_query_of_dashboard_and_alerts_runs_and_finds_its_metrics(prometheus: Prometheus) -> None:
    alerts = [rule["query"] for rule in rules(prometheus)]
    known = families(prometheus) | WITH_ADAPTIVE_THRESHOLDS | WHEN_IT_HAPPENS
    for query in [*expressions(), *alerts]:
        prometheus.ask(query)
        used = set(re.findall(rf"{PREFIX}(\w+)", query))
        assert used <= known, query


def test_every_alert_is_evaluated_without_an_error_and_none_fires(prometheus: Prometheus) -> None:
    assert eventually(lambda: all(rule["health"] != "unknown" for rule in rules(prometheus)))
    found = rules(prometheus)
    assert [rule["lastError"] for rule in found if rule["health"] != "ok"] == []
    assert len(found) == 12
    assert [rule["name"] for rule in found if rule["state"] == "firing"] == []


def test_from_the_scrape_sampled_is_committed_plus_discarded(prometheus: Prometheus) -> None:
    rest = f"sum({PREFIX}tokens_sampled_total) - sum({PREFIX}tokens_committed_total)"
    assert eventually(lambda: prometheus.value(f"{rest} - sum({PREFIX}tokens_discarded_total)") == 0)
    assert prometheus.value(f"sum({PREFIX}tokens_committed_total)") > 0


def test_gauges_are_zero_after_the_load_has_ended(prometheus: Prometheus) -> None:
    for gauge in AT_REST:
        assert eventually(lambda gauge=gauge: prometheus.value(f"sum({PREFIX}{gauge})") == 0), gauge
