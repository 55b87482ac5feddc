"""The trial asks what it says, counts what came back, and explains itself when the server does not answer.

The server here is a plain HTTP one that answers by a table, so that every figure is known beforehand.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tools.try_routing import (
    Choice,
    Question,
    Row,
    Trial,
    TrialError,
    ask,
    choices,
    load_questions,
    main,
    measured,
    table,
)

QUESTIONS = (Question("one", "1 1"), Question("two", "2 2"))
SMALL = Choice("small_only", None, "fixed", {"mode": "never", "entry": "small"})


@dataclass
class FakeServer:
    """Answers every question from `replies` (by prompt); remembers what it was asked."""

    replies: dict[str, dict[str, Any]]
    status: int = 200
    raw: bytes | None = None
    asked: list[dict[str, Any]] = field(default_factory=list)
    paths: set[str] = field(default_factory=set)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, path: str, body: dict[str, Any]) -> bytes:
        self.paths.add(path)
        self.asked.append(body)
        return self.raw if self.raw is not None else json.dumps(self.replies[body["text_input"]]).encode()


@contextmanager
def serving(fake: FakeServer) -> Iterator[FakeServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            text = fake.answer(self.path, body)
            self.send_response(fake.status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    fake.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def trial_of(fake: FakeServer, concurrency: int = 2) -> Trial:
    return Trial(fake.url, QUESTIONS, concurrency, max_tokens=64, timeout_s=10.0)


def ignored(policy: str, done: int, total: int) -> None:
    return None


def replies(first: str, second: str) -> dict[str, dict[str, Any]]:
    return {
        "one": {"text_output": first, "token_source": [0, 1, 0]},
        "two": {"text_output": second, "token_source": 1},
    }


def prompts_file(folder: Path) -> Path:
    path = folder / "prompts.json"
    path.write_text(json.dumps([{"prompt": q.prompt, "answer": q.answer} for q in QUESTIONS]))
    return path


def test_the_rows_are_both_models_alone_and_one_per_cutoff() -> None:
    found = choices([0.1, 0.5])
    assert [(choice.policy, choice.cutoff) for choice in found] == [
        ("small_only", None),
        ("large_only", None),
        ("r_stitch", 0.1),
        ("r_stitch", 0.5),
    ]
    assert found[1].config == {"mode": "never", "entry": "large"}
    assert found[2].config == {"cutoff": 0.1}


def test_a_question_names_its_policy_and_asks_for_the_sources() -> None:
    with serving(FakeServer(replies("1 1", "2 2"))) as fake:
        ask(trial_of(fake), "one", SMALL)
    assert fake.paths == {"/v2/models/token_router/generate"}
    assert fake.asked == [
        {
            "text_input": "one",
            "max_tokens": 64,
            "exclude_input_in_output": True,
            "return_routing": True,
            "routing_algorithm": "fixed",
            "routing_config": '{"mode": "never", "entry": "small"}',
        }
    ]


def test_accuracy_and_large_share_are_counted_over_all_answers() -> None:
    with serving(FakeServer(replies(" 1 1", "2 3"))) as fake:
        row = measured(trial_of(fake), SMALL, ignored)
    assert (row.policy, row.cutoff, row.accuracy, row.large_share) == ("small_only", None, 0.5, 0.5)
    assert row.tokens_per_s > 0


def test_progress_reaches_the_total() -> None:
    calls: list[tuple[str, int, int]] = []
    with serving(FakeServer(replies("1 1", "2 2"))) as fake:
        measured(trial_of(fake, concurrency=1), SMALL, lambda *call: calls.append(call))
    assert calls == [("small_only", 1, 2), ("small_only", 2, 2)]


def test_a_refusal_is_passed_on_in_the_servers_words() -> None:
    with (
        serving(FakeServer({"one": {"error": "TR_CAPACITY: full"}}, status=400)) as fake,
        pytest.raises(TrialError, match="answered 400: TR_CAPACITY: full"),
    ):
        ask(trial_of(fake), "one", SMALL)


def test_an_error_with_status_200_is_an_error() -> None:
    with (
        serving(FakeServer({"one": {"error": "exactly 1 response"}})) as fake,
        pytest.raises(TrialError, match="exactly 1 response"),
    ):
        ask(trial_of(fake), "one", SMALL)


def test_the_first_failure_stops_the_trial() -> None:
    answers = {"one": {"text_output": "1 1"}, "two": {"error": "broken"}}
    with serving(FakeServer(answers)) as fake, pytest.raises(TrialError, match="broken"):
        measured(trial_of(fake), SMALL, ignored)


def test_a_server_that_is_not_triton_is_named() -> None:
    with (
        serving(FakeServer({}, raw=b"<html>")) as fake,
        pytest.raises(TrialError, match="is it a Triton server"),
    ):
        ask(trial_of(fake), "one", SMALL)


def test_no_server_is_said_with_its_cure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(FakeServer({})) as fake:
        url = fake.url
    assert main(["--url", url, "--prompts", str(prompts_file(tmp_path))]) == 1
    assert f"no server at {url}" in capsys.readouterr().err


def test_the_json_output_has_one_object_per_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(FakeServer(replies("1 1", "2 2"))) as fake:
        status = main(
            ["--url", fake.url, "--prompts", str(prompts_file(tmp_path)), "--json", "--cutoffs", "0.3"]
        )
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert status == 0
    assert [(row["policy"], row["cutoff"], row["accuracy"]) for row in rows] == [
        ("small_only", None, 1.0),
        ("large_only", None, 1.0),
        ("r_stitch", 0.3, 1.0),
    ]
    assert set(rows[0]) == {"policy", "cutoff", "accuracy", "large_share", "tokens_per_s"}


def test_limit_takes_the_first_prompts(tmp_path: Path) -> None:
    assert load_questions(prompts_file(tmp_path), 1) == QUESTIONS[:1]


@pytest.mark.parametrize("text", ["", "[]", "{}", '[{"prompt": "x"}]', "3"])
def test_a_bad_prompts_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(TrialError, match=r"bad\.json"):
        load_questions(path, None)


@pytest.mark.parametrize("option", ["--limit", "--concurrency", "--max-tokens"])
def test_counts_must_be_at_least_one(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([option, "0"])
    assert "at least 1" in capsys.readouterr().err


def test_the_table_lines_up() -> None:
    lines = table(
        [Row("small_only", None, 0.35, 0.0, 812.3), Row("r_stitch", 0.2, 1.0, 0.166, 401.0)]
    ).splitlines()
    assert lines == [
        "policy       cutoff  accuracy  large share  tokens/s",
        "small_only        -     35.0%         0.0%     812.3",
        "r_stitch        0.2    100.0%        16.6%     401.0",
    ]
