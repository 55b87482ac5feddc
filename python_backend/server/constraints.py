"""What a client discourages or forbids, out of the tensors of any door.

Reads shapes and JSON only; ranges are the front's to check. The invariant: nothing that was given is
dropped, and an option under two names means one thing.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, cast

from python_backend.server.values import Values, json_object
from router_backend.core.errors import RequestError

_AS_THEY_ARE = ("min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")


def constraints_of(values: Values) -> dict[str, Any]:
    """Fields of an `Ask`; RequestError names the one that cannot be read."""
    found: dict[str, Any] = {name: values[name] for name in _AS_THEY_ARE if name in values}
    least = _min_tokens(values)
    if least is not None:
        found["min_tokens"] = least
    if values.get("logit_bias"):
        found["logit_bias"] = _biases(cast(str, values["logit_bias"]))
    if values.get("bad_words"):
        found["bad_words"] = listed(values["bad_words"])
    if values.get("bad_words_list"):
        found["bad_ids"] = _runs(cast("tuple[int, ...]", values["bad_words_list"]))
    return found


def listed(value: Any) -> tuple[str, ...]:
    """Strings; one empty string means none, as the old TensorRT-LLM examples send it."""
    return () if value is None or value == ("",) else cast("tuple[str, ...]", value)


def _min_tokens(values: Values) -> int | None:
    """`min_length` is TensorRT-LLM's older name of the same."""
    given = {cast(int, values[name]) for name in ("min_tokens", "min_length") if name in values}
    if len(given) > 1:
        raise RequestError(f"min_tokens: {values['min_tokens']} and min_length differ: give one of the two")
    return given.pop() if given else None


def _biases(text: str) -> tuple[tuple[int, float], ...]:
    return tuple(_bias(token, bias) for token, bias in json_object("logit_bias", text).items())


def _bias(token: str, bias: Any) -> tuple[int, float]:
    if not (token.isascii() and token.isdigit() and len(token) < 10):
        raise RequestError(f"logit_bias: {token!r} is no token id: use decimal ids as keys")
    if isinstance(bias, bool) or not isinstance(bias, int | float | str):
        raise RequestError(f"logit_bias[{token}]: {bias!r} is no number")
    try:
        return int(token), float(bias)
    except (ValueError, OverflowError) as error:
        raise RequestError(f"logit_bias[{token}]: {bias!r} is no number") from error


def _runs(flat: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """TensorRT-LLM's [2, n]: the words' ids one after the other; where each word ends, padded with -1."""
    half = len(flat) // 2
    ids, ends = flat[:half], [end for end in flat[half:] if end >= 0]
    words = list(pairwise([0, *ends]))
    if len(flat) % 2 or any(not start < end <= half for start, end in words):
        raise RequestError(f"bad_words_list: word ends {ends} must rise from 1 to at most {half}")
    return tuple(ids[start:end] for start, end in words)
