"""The front's counts as samples for the metrics page."""

from python_backend.loops.base import Finish
from python_backend.loops.front_counts import FrontCounts, Gauges
from python_backend.loops.front_figures import samples
from router_backend.core.effects import Reason
from router_backend.core.histogram import Histogram, HistogramCounts


def test_an_observation_falls_into_the_first_bucket_that_holds_it() -> None:
    histogram = Histogram((0.1, 1.0))
    histogram.observe(0.1)
    histogram.observe(0.2, 3)
    histogram.observe(5.0)
    assert histogram.counts() == HistogramCounts((0.1, 1.0), (1, 3, 1), 0.1 + 3 * 0.2 + 5.0)


def test_samples_are_flat_and_labelled() -> None:
    counts = FrontCounts(2)
    counts.turn_away(Finish(Reason.ERROR, "TR_QUEUE_FULL"))
    counts.turn_away(Finish(Reason.CANCELLED, "TR_CANCELLED"))
    counts.count_tokens((0, 1, 1))
    counts.observe_first(0.3)
    counts.finish(Finish(Reason.ERROR, "TR_RUNNER", output_tokens=4, handoffs=2), 3.0, routed=1)
    found = samples(counts.snapshot(Gauges(1, 2, 3, (True, False))), ("small", "large"))
    expected = {
        "live_requests": 1,
        "queued_requests": 2,
        'requests_total{finished="rejected"}': 1,
        'requests_total{finished="error"}': 1,
        'requests_total{finished="cancelled"}': 1,
        'rejections_total{reason="TR_QUEUE_FULL"}': 1,
        'request_errors_total{reason="TR_RUNNER"}': 1,
        'tokens_delivered_total{model="large"}': 2,
        'peer_up{model="large"}': 0,
        'ttft_seconds_bucket{le="0.2"}': 0,
        'ttft_seconds_bucket{le="0.5"}': 1,
        'ttft_seconds_bucket{le="+Inf"}': 1,
        "ttft_seconds_sum": 0.3,
        "e2e_seconds_count": 1,
        "routed_fraction_sum": 0.25,
    }
    assert {name: found[name] for name in expected} == expected
