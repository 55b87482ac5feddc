"""Field cases on a real Triton that no other server test proves, each by its id."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from python_backend.text.detokenizer import byte_alphabet
from tests.server.clients import eventually, generate, grpc_stream, metric, stream, text_of
from tests.server.repository import options, real_repository
from tests.server.test_bad_input import refused
from tests.server.test_doors import DEMO, DOORS, PROMPT
from tests.server.test_lifecycle import NEVER
from tests.server.test_real_cancel import ENDLESS, SWITCHING, held
from tests.unit.text.tokenizers_made_here import byte_level
from tools.triton_layout import SHM
from tools.triton_server import LOOPBACK, TritonServer

pytestmark = pytest.mark.server

FLAGS = ("return_finish_reason", "return_num_input_tokens", "return_num_output_tokens", "return_routing")


@pytest.mark.case("F10")
def test_no_token_ids_are_refused_by_name_and_a_prompt_of_spaces_is_answered(server: TritonServer) -> None:
    for name in ("small", "router"):
        refused(generate(server, name, input_ids=[], request_output_len=2), "input_ids")
    for door in DOORS:
        assert generate(server, door, text_input="  ", max_tokens=2).status == 200


@pytest.mark.case("F77")
@pytest.mark.parametrize(
    ("door", "name"), [("token_router", "guided_json"), ("ensemble", "guided_decoding_guide")]
)
def test_a_grammar_is_refused_by_name_and_harms_nobody(server: TritonServer, door: str, name: str) -> None:
    refused(generate(server, door, text_input=PROMPT, max_tokens=20, **{name: "{}"}), name)
    assert generate(server, door, text_input=PROMPT, max_tokens=20).body["text_output"] == DEMO[0]["answer"]


@pytest.mark.case("F33")
def test_a_client_that_leaves_without_streaming_frees_both_models_by_its_deadline(
    server: TritonServer,
) -> None:
    assert eventually(lambda: held(server) == 0)
    body = json.dumps({"timeout": 1_500_000, **ENDLESS, **SWITCHING})
    connection = http.client.HTTPConnection(LOOPBACK, server.ports.http)
    connection.request("POST", "/v2/models/token_router/generate", body)
    assert eventually(lambda: held(server) > 0)
    connection.close()
    assert eventually(lambda: held(server) == 0, within_s=6)


@pytest.mark.case("F39")
def test_two_requests_without_ids_on_one_stream_are_both_answered(server: TritonServer) -> None:
    with grpc_stream(server) as opened:
        for _ in range(2):
            opened.ask("token_router", text_input=PROMPT, max_tokens=20)
        texts = [opened.read_all()[-1]["text_output"].flat[0].decode() for _ in range(2)]
    assert texts == [DEMO[0]["answer"]] * 2


@pytest.mark.case("F55")
@pytest.mark.parametrize(("door", "stop"), [("token_router", "stop"), ("ensemble", "stop_words")])
def test_every_option_works_in_plain_json_and_a_list_for_one_value_names_its_field(
    server: TritonServer, door: str, stop: str
) -> None:
    body = {"text_input": PROMPT, "max_tokens": 20, "temperature": 0.0, "top_k": 3, "top_p": 0.9, "seed": 5}
    routing = {"routing_algorithm": "r_stitch", "routing_config": '{"cutoff": 0.2}'}
    for given in ("never there", ["never there"], ["never", "there"]):
        answer = generate(server, door, **body, **routing, **{stop: given}, **dict.fromkeys(FLAGS, True))
        assert answer.body["text_output"] == DEMO[0]["answer"], answer
    for name in ("max_tokens", "temperature", "text_input"):
        refused(generate(server, door, **{**body, name: [body[name], body[name]]}), name)


@pytest.mark.case("F59")
def test_shared_memory_is_as_large_after_many_requests_as_before(server: TritonServer) -> None:
    def size() -> int:
        return sum(path.stat().st_size for path in SHM.glob(f"{server.shm_prefix}*"))

    def hundred() -> int:
        for number in range(100):
            stream(server, DOORS[number % 2], text_input=DEMO[number % 10]["prompt"], max_tokens=20)
        return size()

    assert size() > 0
    assert hundred() == hundred()


@pytest.fixture
def narrow(tmp_path: Path) -> Iterator[TritonServer]:
    """A test's own server, so that its counts start at 0; takes three requests at a time, 2 ms per step."""
    models = [{"name": name, "engine": "scripted", "script": "script.json"} for name in ("small", "large")]
    folder = real_repository(tmp_path / "repository", models=models, front={"live_max": 2, "queue_max": 1})
    script = {"vocab_size": 128, "length_max": 4096, "latency_ms": 2.0}
    (folder / "script.json").write_text(json.dumps(script))
    with TritonServer(options(folder, tmp_path / "run")) as server:
        yield server


LONG = {"text_input": PROMPT, "max_tokens": 400, "ignore_eos": True, **NEVER}
TEXT_DOOR = {"door": "token_router"}


@pytest.mark.case("F69")
def test_durations_of_the_server_are_those_of_the_clients_clock(narrow: TritonServer) -> None:
    """Within 5 %; of several, because a busy machine delays the client's side now and then."""
    counted, total, gaps = 0, 0.0, []
    while len(gaps) < 6 and not (gaps and min(gaps) < 0.05):
        started_at = time.monotonic()
        assert generate(narrow, "token_router", **LONG).status == 200
        taken_s = time.monotonic() - started_at
        counted += 1
        seen = partial(metric, narrow, "token_router_e2e_seconds_count", **TEXT_DOOR)
        assert eventually(lambda: seen() == counted)  # noqa: B023
        before, total = total, metric(narrow, "token_router_e2e_seconds_sum", **TEXT_DOOR)
        gaps.append(abs(total - before - taken_s) / taken_s)
    assert min(gaps) < 0.05, gaps


@pytest.mark.case("F67")
def test_a_burst_beyond_live_and_queue_is_refused_at_once_and_counted(narrow: TritonServer) -> None:
    outcomes: list[str] = []

    def client() -> None:
        events = stream(narrow, "token_router", **LONG)
        outcomes.append(events[-1].get("error") or text_of(events))

    threads = [threading.Thread(target=client) for _ in range(6)]
    for thread in threads:
        thread.start()
    assert eventually(lambda: len(outcomes) >= 3)
    refusals = outcomes[:3]
    for thread in threads:
        thread.join()
    assert all("TR_QUEUE_FULL" in outcome and "try again later" in outcome for outcome in refusals)
    assert not [outcome for outcome in outcomes[3:] if "TR_" in outcome]
    reason = {"reason": "TR_QUEUE_FULL", **TEXT_DOOR}
    assert eventually(lambda: metric(narrow, "token_router_rejections_total", **reason) == 3)


SENTENCE = "a日本語😀 DEFGHIJ ü"
SPELLED = SENTENCE.encode()
ALTERNATING = {"routing_algorithm": "fixed", "routing_config": '{"mode": "every", "k": 2}'}


@pytest.fixture(scope="module")
def bytewise(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """Two models that write SENTENCE over and over, byte by byte, each taking turns after two bytes."""
    tmp_path = tmp_path_factory.mktemp("bytewise")
    models = [{"name": name, "engine": "scripted", "script": "script.json"} for name in ("small", "large")]
    front = {"tokenizer_dir": "preprocessing/1", "flush_tokens": 1, "flush_ms": 0}
    folder = real_repository(tmp_path / "repository", models=models, front=front)
    tokenizer = byte_level()
    (folder / "preprocessing" / "1" / "tokenizer.json").write_text(tokenizer.to_str())
    characters = {byte: char for char, byte in byte_alphabet().items()}
    tokens = [tokenizer.token_to_id(characters[byte]) for byte in SPELLED]
    script = {
        "vocab_size": tokenizer.get_vocab_size(),
        "length_max": 4096,
        "latency_ms": 2.0,
        "tokens": tokens,
    }
    (folder / "script.json").write_text(json.dumps(script))
    with TritonServer(options(folder, tmp_path / "run")) as server:
        yield server


@pytest.mark.case("F01")
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("length", [1, 2, 4, 11, 13, 14, 60])
def test_no_part_of_a_character_is_sent_though_models_change_in_the_middle_of_it(
    bytewise: TritonServer, door: str, length: int
) -> None:
    body = {"text_input": "b", "max_tokens": length, **ALTERNATING}
    events = stream(bytewise, door, **body, return_routing=True)
    written = (SPELLED * 3)[1 : 1 + length]
    whole = written.decode(errors="ignore")
    expected = whole if whole.encode() == written else f"{whole}\ufffd"
    assert text_of(events) == expected == generate(bytewise, door, **body).body["text_output"]
    assert not any("\ufffd" in event["text_output"] for event in events[:-2])
    sources = {int(source) for event in events for source in np.ravel(event.get("token_source", []))}
    assert sources == {0, 1} or length <= 2


@pytest.mark.case("F04")
@pytest.mark.parametrize(("door", "stop"), [("token_router", "stop"), ("ensemble", "stop_words")])
def test_nothing_of_a_stop_string_leaves_that_two_models_wrote_and_half_of_one_comes_out(
    bytewise: TritonServer, door: str, stop: str
) -> None:
    body = {"text_input": "b", "max_tokens": len(SPELLED) - 1, **ALTERNATING}
    matched = stream(bytewise, door, **body, **{stop: "DEFGHIJ"}, return_finish_reason=True)
    assert text_of(matched) == "日本語😀 "
    assert (matched[-1]["finish_reason"], matched[-1]["stop_reason"]) == ("stop", "DEFGHIJ")
    assert text_of(stream(bytewise, door, **body, **{stop: "DEFGHIX"})) == SENTENCE[1:]
