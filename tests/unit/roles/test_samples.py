"""A subserver's figures as samples of the metrics page."""

from __future__ import annotations

import pytest

from python_backend.roles.samples import subserver_samples


def test_counters_gauges_and_tables_get_the_names_of_an_operator() -> None:
    figures = {
        "committed": 5,
        "handoffs_sent": 2,
        "parked": 1,
        "step_s_sum": 0.5,
        "step_count": 9,
        "launches": {"threshold": 3, "deadline": 0},
        "kv_blocks": {"free": 7},
        "threshold_changes": 4,
        "predicted_throughput": 208.0,
        "threshold_cause": {"plan": 1.0, "cold": 0.0},
    }
    assert subserver_samples(figures) == {
        "tokens_committed_total": 5,
        "handoffs_sent_total": 2,
        "parked": 1,
        "step_seconds_sum": 0.5,
        "step_seconds_count": 9,
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
