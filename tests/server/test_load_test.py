"""`python -m tools.load_test` against a real server: the same table from our own client and from Triton's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.server.clients import settled
from tests.server.test_metrics_page import fates
from tools import load_test
from tools.loading.triton_tools import ANALYZER
from tools.triton_server import TritonServer

pytestmark = pytest.mark.server
WITH_THE_WHEEL = pytest.mark.skipif(not ANALYZER.exists(), reason="comes with tritonclient 2.51")


def addresses(server: TritonServer) -> list[str]:
    http = server.http_url.removeprefix("http://")
    return ["--http", http, "--grpc", server.grpc_address, "--metrics", server.metrics_url]


@pytest.mark.parametrize(
    "client",
    [
        "native",
        pytest.param("perf_analyzer", marks=WITH_THE_WHEEL),
    ],
)
def test_a_sweep_has_no_error_and_counts_the_tokens_of_the_server(
    server: TritonServer, client: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = settled(lambda: fates(server))
    arguments = ["--with", client, "--concurrency", "1,4,16", "--requests", "16", "--json"]
    assert load_test.main([*addresses(server), *arguments]) == 0
    levels = json.loads(capsys.readouterr().out)["levels"]
    after = settled(lambda: fates(server))
    assert [(one["clients"], one["requests"], one["errors"]) for one in levels] == [
        (1, 16, 0),
        (4, 16, 0),
        (16, 16, 0),
    ]
    grown = sum(new[1] - old[1] for old, new in zip(before, after, strict=True))
    per_level = {one["tokens"] for one in levels}
    assert len(per_level) == 1, "the same questions have the same answers, whoever asks"
    assert grown == 4 * per_level.pop(), "three levels, and one to warm up"
    assert all(0 < one["large_share"] < 1 and one["first_p50_ms"] <= one["whole_p50_ms"] for one in levels)


def test_a_server_that_is_not_there_and_prompts_that_are_not_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = ["--grpc", "127.0.0.1:9", "--metrics", "http://127.0.0.1:9/metrics"]
    assert load_test.main([*nowhere, "--concurrency", "1", "--requests", "1"]) == 1
    assert "make serve" in capsys.readouterr().err
    (tmp_path / "none.txt").write_text("")
    assert load_test.main(["--prompts", str(tmp_path / "none.txt")]) == 1
    assert "--prompts" in capsys.readouterr().err
