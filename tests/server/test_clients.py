"""What the server tests ask of a metrics page can be answered by it."""

from __future__ import annotations

import pytest

from tests.server.clients import asked_of
from tools.metrics_page import Sample

PEERS = [
    Sample("peer_up", {"door": "token_router", "model": "small"}, 1.0),
    Sample("peer_up", {"door": "token_router", "model": "large"}, 0.0),
]


def test_a_sum_is_over_the_samples_with_these_labels() -> None:
    assert asked_of(PEERS, "peer_up", door="token_router") == 1.0
    assert asked_of(PEERS, "peer_up", door="token_router", model="large") == 0.0


def test_before_the_first_sample_it_is_nothing() -> None:
    assert asked_of(PEERS, "handoffs_total", src="small") == 0.0


def test_a_label_that_no_sample_of_the_metric_has_is_refused() -> None:
    with pytest.raises(AssertionError, match="'peer': 'large'"):
        asked_of(PEERS, "peer_up", door="token_router", peer="large")


def test_a_metric_that_nobody_exports_is_refused() -> None:
    with pytest.raises(AssertionError, match="nobody exports executing"):
        asked_of(PEERS, "executing")
