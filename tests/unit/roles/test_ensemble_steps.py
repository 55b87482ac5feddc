"""Preprocessing and postprocessing, request by request."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from python_backend.roles.postprocessing import KNOWN_MAX, Postprocessing
from python_backend.roles.preprocessing import Preprocessing, end_ids
from tests.fake_pb_utils import InferenceRequest

STEP_OUTPUTS = ("INPUT_ID", "REQUEST_INPUT_LEN", "REQUEST_OUTPUT_LEN", "REQUEST_UID")


class FakeCodec:
    vocab_size = 256

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(text.strip().encode())

    def spelling(self, token_id: int) -> bytes:
        return b"%c" % (ord("a") + token_id)

    def spellings(self, text: str) -> tuple[tuple[int, ...], ...]:
        raise AssertionError(text)

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        raise AssertionError(messages)

    def decode(self, token_ids: Iterable[int]) -> str:
        return bytes(token_ids).decode()

    def text_source(self) -> Any:
        raise AssertionError("a step has no state")


def query(text: str, **changes: Any) -> InferenceRequest:
    arrays = {
        "QUERY": np.array([[text.encode()]], dtype=object),
        "REQUEST_OUTPUT_LEN": np.array([[3]], dtype=np.int32),
        **{name: np.array([[value]], dtype=np.int32) for name, value in changes.items()},
    }
    return InferenceRequest(arrays, outputs=STEP_OUTPUTS)


STEP = Preprocessing(FakeCodec(), frozenset({2, 7}), prompt_bytes_max=10)


def test_text_becomes_ids_and_every_request_its_own_number() -> None:
    first, second = (response.values() for response in STEP.execute([query("ab"), query("ab")]))
    uids = {values.pop("REQUEST_UID")[0][0] for values in (first, second)}
    assert len(uids) == 2
    expected = {"INPUT_ID": [[97, 98]], "REQUEST_INPUT_LEN": [[2]], "REQUEST_OUTPUT_LEN": [[3]]}
    assert first == second == expected


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (query(""), "text_input: '' is an empty prompt"),
        (query("  "), "text_input: '  ' is an empty prompt"),
        (query("x" * 11), "text_input: 11 bytes, prompt_bytes_max is 10"),
        (query("a", END_ID=5), "end_id: 5 is not this deployment's end token [2, 7]"),
    ],
)
def test_a_prompt_that_cannot_be_served_is_refused(request_: InferenceRequest, message: str) -> None:
    (response,) = STEP.execute([request_])
    assert message in response.error.message


def test_the_end_tokens_that_old_examples_repeat_are_accepted() -> None:
    responses = STEP.execute([query("a", END_ID=2, PAD_ID=9), query("a", END_ID=7), query("a", END_ID=-1)])
    assert [response.error for response in responses] == [None, None, None]


def test_end_tokens_come_from_the_models_files(tmp_path: Path) -> None:
    assert end_ids(tmp_path) == frozenset()
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": 2}))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 7]}))
    assert end_ids(tmp_path) == {2, 7}
    (tmp_path / "config.json").write_text("{}")
    assert end_ids(tmp_path) == {2, 7}


class FakeTeller:
    def __init__(self) -> None:
        self.told: list[int] = []
        self.is_stopped = False

    def tell(self, uid: int) -> None:
        self.told.append(uid)

    def stop(self) -> None:
        self.is_stopped = True


def text(uid: int, cancelled: bool = False) -> InferenceRequest:
    arrays = {"TEXT": np.array([[b"a"]], dtype=object), "REQUEST_UID": np.array([[uid]], dtype=np.uint64)}
    return InferenceRequest(arrays, outputs=("OUTPUT",), cancelled=cancelled)


def test_postprocessing_renames_text_and_tells_of_a_client_that_has_gone() -> None:
    teller = FakeTeller()
    now = [0.0]
    step = Postprocessing(teller, 0.1, lambda: now[0])
    responses = step.execute([text(1), text(2, cancelled=True), text(2, cancelled=True)])
    assert [response.values() for response in responses] == [{"OUTPUT": [[b"a"]]}] * 3
    assert teller.told == [2]
    now[0] = 0.1
    step.execute([text(1, cancelled=True), text(2)])
    assert teller.told == [2, 1]
    step.stop()
    assert teller.is_stopped


def test_postprocessing_does_not_remember_for_ever() -> None:
    teller = FakeTeller()
    step = Postprocessing(teller, 10.0, lambda: 0.0)
    for uid in range(KNOWN_MAX + 1):
        step.execute([text(uid)])
    step.execute([text(0, cancelled=True)])
    assert teller.told == [0]
