"""A subserver's figures as samples of the metrics page."""

from __future__ import annotations

import pytest

from python_backend.config import parse_deployment
from python_backend.roles.samples import familiar_samples, identity_samples, subserver_samples
from router_backend.core.histogram import HistogramCounts


def test_counters_gauges_and_tables_get_the_names_of_an_operator() -> None:
    figures = {
        "committed": 5,
        "handoffs_sent": 2,
        "parked": 1,
        "discarded": 4,
        "discarded_on_faults": 1,
        "spreads": {'step_seconds{phase="decode"}': HistogramCounts((0.1,), (8, 1), 0.5)},
        'handoffs_total{src="small"}': 2,
        "launches": {"threshold": 3, "deadline": 0},
        "kv_blocks": {"free": 7},
        "threshold_changes": 4,
        "predicted_throughput": 208.0,
        "threshold_cause": {"plan": 1.0, "cold": 0.0},
    }
    assert subserver_samples(figures) == {
        "tokens_committed_total": 5,
        "handoffs_sent_total": 2,
        'requests{state="parked"}': 1,
        'tokens_discarded_total{reason="handoff"}': 3,
        'tokens_discarded_total{reason="policy_fault"}': 1,
        'step_seconds_bucket{phase="decode",le="0.1"}': 8,
        'step_seconds_bucket{phase="decode",le="+Inf"}': 9,
        'step_seconds_sum{phase="decode"}': 0.5,
        'step_seconds_count{phase="decode"}': 9,
        'handoffs_total{src="small"}': 2,
        'launches_total{reason="threshold"}': 3,
        'launches_total{reason="deadline"}': 0,
        'kv_blocks{owner="free"}': 7,
        "threshold_changes_total": 4,
        "predicted_throughput": 208.0,
        'threshold_cause{cause="plan"}': 1.0,
        'threshold_cause{cause="cold"}': 0.0,
    }


def test_a_table_without_a_name_is_a_mistake_of_ours() -> None:
    with pytest.raises(KeyError, match="surprise"):
        subserver_samples({"surprise": {"a": 1.0}})


def test_the_gauges_of_other_servers_come_from_queues_and_blocks() -> None:
    blocks = {"running": 2.0, "parked": 1.0, "cached": 1.0, "free": 8.0}
    assert familiar_samples({}) == {}, "before the first picture there is nothing to say"
    assert familiar_samples({"ready": 3, "executing": 2, "kv_blocks": blocks}) == {
        "num_requests_running": 2.0,
        "num_requests_waiting": 3.0,
        "kv_cache_usage": 0.25,
    }


def test_a_process_says_what_it_is() -> None:
    deployment = parse_deployment("models: [{name: small}, {name: large}]", "test")
    build, config = identity_samples(deployment, "torch")
    assert build.endswith(',policy="r_stitch",engine="torch"}')
    assert config == 'config_info{models="small+large",entry="small",mode="delayed",thresholds="fixed"}'
