"""The ensemble's first step: text to token ids, and the number by which this request is known.

Triton's request ids are chosen by clients and may be empty or repeated; `REQUEST_UID` is ours and unique.
Sampling options pass by this step: the ensemble maps them straight to the router.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from python_backend.roles.place import Place, end_ids, model_dir
from python_backend.server.contracts import PREPROCESSING
from python_backend.server.ensemble import answer, read_values
from python_backend.server.outputs import Arrays
from python_backend.text.base import TextCodec
from python_backend.text.tokenizer import load_tokenizer
from router_backend.core.errors import RequestError


class Preprocessing:
    def __init__(self, codec: TextCodec, end_ids: frozenset[int], prompt_bytes_max: int) -> None:
        self._codec = codec
        self._end_ids = end_ids
        self._prompt_bytes_max = prompt_bytes_max

    def start(self) -> None:
        """Nothing runs between requests."""

    def stop(self) -> None:
        """Nothing to end."""

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        return [answer(request, self._step) for request in requests]

    def _step(self, request: Any) -> Arrays:
        values = read_values(PREPROCESSING, request)
        self._check_end(cast("int | None", values.get("END_ID")))
        ids = self._encoded(cast(str, values["QUERY"]))
        return {
            "INPUT_ID": np.array([ids], dtype=np.int32),
            "REQUEST_INPUT_LEN": np.array([[len(ids)]], dtype=np.int32),
            "REQUEST_OUTPUT_LEN": np.array([[values["REQUEST_OUTPUT_LEN"]]], dtype=np.int32),
            "REQUEST_UID": np.array([[secrets.randbits(63)]], dtype=np.uint64),
        }

    def _encoded(self, text: str) -> tuple[int, ...]:
        size = len(text.encode())
        if size > self._prompt_bytes_max:
            raise RequestError(
                f"text_input: {size} bytes, prompt_bytes_max is {self._prompt_bytes_max}: send less"
            )
        ids = self._codec.encode(text) if text else ()
        if not ids:
            raise RequestError(f"text_input: {text!r} is an empty prompt: send at least one token")
        return ids

    def _check_end(self, end_id: int | None) -> None:
        """The old TensorRT-LLM examples repeat the model's end token; another would change the answer."""
        if end_id is not None and end_id >= 0 and end_id not in self._end_ids:
            raise RequestError(
                f"end_id: {end_id} is not this deployment's end token {sorted(self._end_ids)}; leave it out"
            )


def preprocessing(place: Place) -> Preprocessing:
    deployment = place.deployment()
    folders = [model_dir(deployment, place.repository, name) for name in deployment.names]
    ends = frozenset[int]().union(*map(end_ids, [place.tokenizer_dir(), *folders]))
    return Preprocessing(load_tokenizer(place.tokenizer_dir()), ends, deployment.front.prompt_bytes_max)
