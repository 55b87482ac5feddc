"""The status table is worked out from two looks at a metrics page."""

from __future__ import annotations

import functools
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import status
from tools.metrics_page import Sample
from tools.status import ModelStatus

PAGE = """# HELP token_router_steps_total Batches.
token_router_steps_total{model="small"} 10
token_router_steps_total{model="large"} 4
token_router_requests{model="small",state="parked"} 3
nv_inference_count{model="small"} 7
"""


def look(committed: float, steps: float) -> list[Sample]:
    small, large = {"model": "small"}, {"model": "large"}
    return [
        Sample("steps_total", small, steps),
        Sample("steps_total", large, 0.0),
        Sample("batch_rows_total", small, 2 * steps),
        Sample("tokens_committed_total", small, committed),
        Sample("tokens_committed_total", large, committed / 3),
        Sample("handoffs_sent_total", small, committed / 2),
        Sample("requests", {**small, "state": "queued"}, 1.0),
        Sample("requests", {**small, "state": "parked"}, 5.0),
        Sample("threshold", large, 3.0),
        Sample("healthy", small, 1.0),
        Sample("kv_cache_usage", small, 0.25),
    ]


def test_rates_are_what_grew_between_the_looks() -> None:
    small, large = status.status(look(30.0, 10.0), look(90.0, 30.0), elapsed_s=2.0)

    assert small == ModelStatus("small", True, 0, 1, 0, 5, 2.0, 10.0, 30.0, 15.0, 0.75, 0.25)
    assert large == ModelStatus("large", False, 3, 0, 0, 0, 0.0, 0.0, 10.0, 0.0, 0.25, 0.0)


def test_a_model_that_was_loaded_anew_has_no_negative_rates() -> None:
    small, _ = status.status(look(90.0, 30.0), look(30.0, 10.0), elapsed_s=1.0)

    assert (small.steps_per_s, small.committed_per_s, small.share) == (0.0, 0.0, 0.0)


def test_each_replica_has_a_row_of_its_own() -> None:
    def replicas(committed: float) -> list[Sample]:
        return [
            Sample(name, {"model": model}, value)
            for model, share in (("large", 1), ("large_2", 3))
            for name, value in (("steps_total", 1.0), ("tokens_committed_total", share * committed))
        ]

    first, second = status.status(replicas(0.0), replicas(10.0), elapsed_s=1.0)

    assert [(one.model, one.share) for one in (first, second)] == [("large", 0.25), ("large_2", 0.75)]


@pytest.fixture
def page(tmp_path: Path) -> Iterator[str]:
    """Address of a page that can be read."""
    (tmp_path / "metrics").write_text(PAGE)
    (tmp_path / "other").write_text("nv_inference_count{} 1\n")
    handler = functools.partial(Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *ignored: object) -> None:
        """Tests print nothing."""


def test_a_page_is_read_and_told_as_json(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status.main(["--json", "--every-s", "0.05", "--url", f"{page}/metrics"]) == 0

    models = json.loads(capsys.readouterr().out)["models"]
    assert [(one["model"], one["parked"]) for one in models] == [("small", 3), ("large", 0)]


def test_a_page_is_shown_as_a_table(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status.main(["--once", "--every-s", "0.05", "--url", f"{page}/metrics"]) == 0

    assert "small" in capsys.readouterr().out


def test_a_server_that_is_not_there_is_said_with_the_cure(capsys: pytest.CaptureFixture[str]) -> None:
    assert status.main(["--once", "--url", "http://127.0.0.1:1/metrics"]) == 1

    assert "start a server with `make serve`" in capsys.readouterr().err
