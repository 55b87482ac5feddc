"""From what a client wrote to typed values, by a contract.

A value has up to three sources: a tensor, a key of `sampling_parameters` (JSON, vLLM's way) and a
request parameter. The same option given twice must agree; otherwise the request is refused, naming it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import NDArray

from python_backend.server.contracts import INERT, TRITON_PARAMETERS, Contract, Kind, TensorSpec, Value
from router_backend.core.errors import RequestError

Array = NDArray[Any]
Values = dict[str, Value]

_TRUTH = {"true": True, "false": False, "1": True, "0": False}


def values_of(contract: Contract, tensors: Mapping[str, Array], parameters: Mapping[str, Any]) -> Values:
    """Typed values by input name; RequestError names the field that cannot be read or is not supported."""
    values = {name: _tensor_value(contract, name, array) for name, array in tensors.items()}
    sampling = values.pop("sampling_parameters", "")
    assert isinstance(sampling, str), sampling
    _merge(values, contract, json_object("sampling_parameters", sampling))
    own = {key: value for key, value in parameters.items() if key not in TRITON_PARAMETERS}
    _merge(values, contract, own)
    return _supported(values)


def json_object(name: str, text: str) -> dict[str, Any]:
    """The JSON object in `text`; an empty text is an empty object."""
    if not text.strip():
        return {}
    found = json_value(name, text)
    if not isinstance(found, dict):
        raise RequestError(f"{name}: must be a JSON object, got {type(found).__name__}")
    return found


def json_value(name: str, text: str) -> Any:
    """What the JSON `text` says; RequestError for no JSON, for too many levels and for half characters."""
    try:
        found = json.loads(text)
        if "\\u" in text:
            # An escape is the only way for half a surrogate pair to come in; no process could pass it on.
            json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise RequestError(f"{name}: has half of a surrogate pair: send UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{name}: not JSON: {error}") from error
    return found


def _tensor_value(contract: Contract, name: str, array: Array) -> Value:
    spec = contract.input(name)
    if spec is None:
        raise RequestError(f"{name}: unknown input")
    flat = array.reshape(-1)
    if spec.is_list:
        return tuple(_scalar(spec, item) for item in flat)  # type: ignore[return-value]
    if flat.size != 1:
        raise RequestError(f"{name}: must hold one element, got shape {list(array.shape)}")
    return _scalar(spec, flat[0])


def _scalar(spec: TensorSpec, item: Any) -> str | bool | int | float:
    if spec.kind == "STRING":
        return _text(spec.name, item)
    if spec.kind == "BOOL":
        return bool(item)
    # The shortest decimal that names the float32: 0.7 means the same in a tensor and in JSON.
    return float(str(item)) if spec.kind == "FP32" else int(item)


def _text(name: str, item: Any) -> str:
    if isinstance(item, str):
        return item
    try:
        return bytes(item).decode()
    except UnicodeDecodeError as error:
        raise RequestError(f"{name}: not UTF-8: {error}") from error


def _merge(values: Values, contract: Contract, given: Mapping[str, Any]) -> None:
    for name, raw in given.items():
        if raw is None:
            continue
        value = _option(contract, name, raw)
        if values.setdefault(name, value) != value:
            raise RequestError(f"{name}: given twice with different values ({values[name]!r} and {value!r})")


def _option(contract: Contract, name: str, raw: Any) -> Value:
    spec = contract.input(name)
    if spec is not None and name in contract.parameters:
        return _strings(name, raw) if spec.is_list else _coerced(name, spec.kind, raw)
    if contract.parameters and name in INERT:
        return _coerced(name, "FP32", raw)
    raise RequestError(f"{name}: unknown or unsupported request parameter")


def _strings(name: str, raw: Any) -> tuple[str, ...]:
    items = [raw] if isinstance(raw, str) else raw
    if items is None:
        return ()
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise RequestError(f"{name}: must be a string or a list of strings, got {raw!r}")
    return tuple(items)


def _coerced(name: str, kind: Kind, raw: Any) -> str | bool | int | float:
    """A JSON value as `kind`; numbers and truth values may be strings, as vLLM clients send them."""
    try:
        return _CONVERSIONS[kind](raw)
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        wanted = "JSON object of plain values" if kind == "STRING" else kind
        raise RequestError(f"{name}: {raw!r} is not a {wanted}") from error


def _truth(raw: Any) -> bool:
    return _TRUTH[str(raw).lower()]


def _number(raw: Any) -> float:
    return float(raw) if not isinstance(raw, bool) else float(int(raw))


def _whole(raw: Any) -> int:
    if isinstance(raw, bool) or (isinstance(raw, float) and raw != int(raw)):
        raise ValueError(raw)
    return int(raw)


def _json_text(raw: Any) -> str:
    """JSON of an object of plain values, which a client may also have written as the object itself."""
    if isinstance(raw, str):
        return raw
    if not isinstance(raw, dict) or not all(isinstance(value, int | float | str) for value in raw.values()):
        raise TypeError(raw)
    return json.dumps(raw)


_CONVERSIONS: dict[str, Callable[[Any], str | bool | int | float]] = {
    "BOOL": _truth,
    "FP32": _number,
    "INT32": _whole,
    "STRING": _json_text,
    "UINT64": _whole,
}


def _supported(values: Values) -> Values:
    """`values` without the options that mean nothing; one that would mean something is refused."""
    for name in values.keys() & INERT.keys():
        if values[name] not in INERT[name]:
            raise RequestError(f"{name}: {values[name]!r} is not supported yet; leave it out")
    return {name: value for name, value in values.items() if name not in INERT}
