"""Load tests without a server: what exports say, what a level comes to, and who is to blame for none."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tools.loading import aiperf, native, triton_tools
from tools.loading.cells import HEAD, cell_of, table
from tools.loading.page import committed_in
from tools.loading.picture import draw
from tools.loading.programs import own_program, run
from tools.loading.work import LoadError, Seen, Target, Work
from tools.metrics_page import Sample

WORK = Work(("a", "b"), 8, 2, 4)
TARGET = Target("127.0.0.1:1", "127.0.0.1:2", "http://127.0.0.1:3/metrics")
SEEN = [
    Seen(0.0, 0.1, 0.5),
    Seen(0.5, 0.7, 1.0),
    Seen(1.0, None, 1.1, "TR_QUEUE_FULL: later"),
    Seen(1.5, 1.6, 2.0),
]
PROFILE = json.dumps(
    {
        "experiments": [
            {
                "requests": [
                    {"timestamp": 1_000_000_000, "response_timestamps": [1_500_000_000, 3_000_000_000]},
                    {"timestamp": 2_000_000_000, "response_timestamps": [], "success": False},
                ]
            }
        ]
    }
)
RECORDS = "\n".join(
    json.dumps({"metadata": {"request_start_ns": 10**9, "request_end_ns": 2 * 10**9}, **more})
    for more in ({"metrics": {"time_to_first_token": {"value": 250.0}}}, {"error": "cut off", "metrics": {}})
)


def told(folder: Path, files: Mapping[str, str]) -> tuple[list[list[str]], triton_tools.Run]:
    """Commands that would have been run; each writes `files` instead."""
    commands: list[list[str]] = []

    def pretend(command: Sequence[str], environment: Mapping[str, str], place: Path) -> None:
        assert place == folder
        commands.append(list(command))
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)

    return commands, pretend


def test_a_level_is_what_clients_saw_and_what_the_server_committed() -> None:
    cell = cell_of(WORK, SEEN, {"small": 30.0, "large": 10.0})
    assert (cell.requests, cell.errors, cell.tokens, cell.tokens_per_s, cell.large_share) == (
        4,
        1,
        40,
        20.0,
        0.25,
    )
    assert (cell.first_p50_ms, cell.whole_p50_ms) == (pytest.approx(100.0), pytest.approx(500.0))
    assert cell.per_token_ms == pytest.approx(1000.0 * (0.4 + 0.3 + 0.4) / 37)
    head, row = table([cell]).splitlines()
    assert (head, len(row)) == (HEAD, len(HEAD))
    assert row.split()[:3] == ["2", "4", "1"]


def test_a_level_without_one_answer_says_why() -> None:
    with pytest.raises(LoadError, match="at 2 clients: TR_QUEUE_FULL"):
        cell_of(WORK, SEEN[2:3], {"small": 0.0})


def test_tokens_are_read_in_the_order_of_the_deployment() -> None:
    counts = [
        Sample("tokens_committed_total", {"model": name}, value) for name, value in (("b", 1.0), ("a", 2.0))
    ]
    assert committed_in([*counts, Sample("config_info", {"models": "a+b"}, 1.0)]) == {"a": 2.0, "b": 1.0}
    with pytest.raises(LoadError, match="which models"):
        committed_in(counts)


def test_perf_analyzer_is_asked_for_a_decoupled_stream_and_its_export_is_read(tmp_path: Path) -> None:
    commands, pretend = told(tmp_path, {triton_tools.EXPORT: PROFILE})
    program = tmp_path / "perf_analyzer"
    program.touch()
    seen = triton_tools.PerfAnalyzer(pretend, program).load(TARGET, WORK, tmp_path)
    assert [(one.asked_at, one.first_at, one.ended_at, bool(one.error)) for one in seen] == [
        (1.0, 1.5, 3.0, False),
        (2.0, None, 2.0, True),
    ]
    assert {"--streaming", "--async", "--concurrency-range"} <= set(commands[0])
    rows = json.loads((tmp_path / "input.json").read_text())["data"]
    assert rows[0] == {"text_input": ["a"], "max_tokens": [8], "stream": [True]}


def test_genai_perf_and_aiperf_read_a_local_tokenizer_and_their_exports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton_tools, "missing_libraries", lambda program, environment: [])
    files = {"artifacts/run/export.json": PROFILE, "artifacts/profile_export.jsonl": RECORDS}
    commands, pretend = told(tmp_path, files)
    first = triton_tools.GenaiPerf(pretend, Path("genai-perf"), Path("words")).load(TARGET, WORK, tmp_path)
    second = aiperf.Aiperf(pretend, Path("aiperf"), Path("words")).load(TARGET, WORK, tmp_path)
    assert [len(first), len(second)] == [2, 2]
    assert second == [Seen(1.0, 1.25, 2.0), Seen(1.0, None, 2.0, "cut off")]
    assert all(command[command.index("--tokenizer") + 1] == "words" for command in commands)
    assert '"max_tokens": 8' in (tmp_path / "payload.j2").read_text()


def test_a_missing_perf_analyzer_is_named_with_its_cure(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="make setup"):
        triton_tools.PerfAnalyzer(run, tmp_path / "none").load(TARGET, WORK, tmp_path)


def test_a_library_that_perf_analyzer_lacks_is_named_with_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton_tools, "missing_libraries", lambda program, environment: ["libb64.so.0d"])
    with pytest.raises(LoadError, match=r"libb64\.so\.0d is missing: apt-get install libb64-0d"):
        triton_tools.GenaiPerf(run, Path("genai-perf"), Path("words")).load(TARGET, WORK, tmp_path)


def test_a_program_that_fails_or_is_missing_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"(?s)ended with 3:.*out of luck"):
        run(["sh", "-c", "echo out of luck; exit 3"], {}, tmp_path)
    with pytest.raises(LoadError, match="is not there"):
        run([str(tmp_path / "none")], {}, tmp_path)


def test_a_program_is_installed_once_and_only_where_it_is_not_yet(tmp_path: Path) -> None:
    said: list[str] = []
    place = tmp_path / "tool==1" / "bin" / "tool"
    place.parent.mkdir(parents=True)
    place.touch()
    assert own_program("tool==1", "tool", said.append, tmp_path) == place
    assert said == []


def test_a_server_that_is_not_there_is_an_error_of_every_request(tmp_path: Path) -> None:
    seen = native.load(TARGET, replace(WORK, requests=2), tmp_path)
    assert [one.first_at for one in seen] == [None, None]
    assert all("TR_UNREACHABLE" in one.error for one in seen)


def test_a_sweep_becomes_a_picture(tmp_path: Path) -> None:
    cell = cell_of(WORK, SEEN, {"small": 30.0, "large": 10.0})
    draw("native", [cell, replace(cell, clients=4)], tmp_path / "sweep.png")
    assert (tmp_path / "sweep.png").read_bytes().startswith(b"\x89PNG")
