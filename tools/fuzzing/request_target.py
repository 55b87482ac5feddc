"""Damaged client requests into each door: an admitted request that can travel, or a typed refusal.

Tensors keep the type that their contract names, because Triton itself refuses any other; sizes,
shapes, bytes and values are whatever chance makes of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from python_backend.agreement import Agreement
from python_backend.config import Deployment
from python_backend.loops.base import Ask
from python_backend.loops.request_door import Beats, RequestDoor
from python_backend.loops.token_request import TokenDoor, timeout_s, to_request
from python_backend.runner.base import RunnerInfo
from python_backend.server.contracts import INERT, ROUTER, TEXT, TOKENS, Contract, TensorSpec
from python_backend.server.tensors import Envelope, Reader, reader, router_asked, text_asked, tokens_asked
from python_backend.server.values import Array
from python_backend.text.base import TextCodec
from router_backend.core.errors import RouterError
from router_backend.core.request import Request, RequestId, RequestKey
from router_backend.handoff.codec import pack, unpack
from router_backend.handoff.message import Admit, Beat
from router_backend.policies.registry import FACTORIES
from tools.fuzzing.mutations import damaged, fraction, narrowed, text, whole

VOCAB = 128
EOS = frozenset({2})
DEPLOYMENT = Deployment.model_validate(
    {
        "models": [{"name": "small"}, {"name": "large"}],
        "policy": {"name": "r_stitch", "params": {"cutoff": 0.2}},
        "front": {"prompt_bytes_max": 4000},
    }
)
BEATS: Beats = (
    Beat("small", 1, 0, VOCAB, 4096, 65536, (2,)),
    Beat("large", 2, 1, VOCAB, 4096, 65536, (2,)),
)
POLICIES = (*sorted(FACTORIES), "nope")
CHAT = [
    {"role": "user", "content": "turn twist"},
    {"role": "user", "content": [{"type": "text", "text": "13"}]},
]
CONFIGS = (
    {"cutoff": 0.5},
    {"cutoff": 10**400, "unit": "nats"},
    {"mode": "every", "k": 3},
    {"mode": "always", "entry": "large", "to": "small"},
    {"weights": "0.5,0.5"},
    {"p": 0.3},
)
DEEP = 3000
WORDS = {"FP32": np.float32, "BOOL": np.bool_, "INT32": np.int32, "INT64": np.int64, "UINT64": np.uint64}
LIMITS = {"INT32": (-(2**31), 2**31 - 1), "UINT64": (0, 2**64 - 1)}


@dataclass(frozen=True, slots=True)
class DoorUnderTest:
    contract: Contract
    read: Reader
    admit: Callable[[Ask], Request]


class RequestTarget:
    """`text` is the tokenizer behind the text doors."""

    def __init__(self, text: TextCodec) -> None:
        front = RequestDoor(DEPLOYMENT, Agreement(VOCAB, EOS), text, "front", lambda: 7)
        alone = TokenDoor("small", 5, RunnerInfo(VOCAB, 4096, 4096, 16, EOS), 4096)

        def through_front(ask: Ask) -> Request:
            return front.admit(ask, RequestKey(RequestId("front-5-1"), 7), BEATS).request

        def through_subserver(ask: Ask) -> Request:
            assert timeout_s(ask, alone) > 0
            return to_request(ask, alone, 1)

        self._doors = (
            DoorUnderTest(TEXT, reader(TEXT, text_asked), through_front),
            DoorUnderTest(ROUTER, reader(ROUTER, router_asked), through_front),
            DoorUnderTest(TOKENS, reader(TOKENS, tokens_asked), through_subserver),
        )

    def trial(self, chance: Random) -> str:
        door = chance.choice(self._doors)
        return outcome_of(door, *damaged_request(door.contract, chance))


def damaged_request(contract: Contract, chance: Random) -> tuple[dict[str, Array], Envelope]:
    """Tensors of the right types, and what comes beside them."""
    envelope = Envelope(text(chance), _parameters(chance), max(0, whole(chance)) % 2**64)
    return _tensors(contract, chance), envelope


def outcome_of(door: DoorUnderTest, tensors: Mapping[str, Array], envelope: Envelope) -> str:
    """What becomes of a request: an admitted one must reach a subserver as it is."""
    try:
        request = door.admit(door.read(tensors, envelope).ask)
    except RouterError as error:
        assert error.args[0] and error.args[0].encode(), "a message that can be sent"
        return error.code
    assert unpack(pack(Admit(request))) == Admit(request), request
    assert request.max_tokens >= 1, request
    return "admitted"


def _tensors(contract: Contract, chance: Random) -> dict[str, Array]:
    """A request that is right, with a few inputs replaced, added or taken out."""
    tensors = {name: value for name, value in _right().items() if contract.input(name)}
    if contract is TEXT and chance.random() < 0.3:
        tensors["messages"] = tensors.pop("text_input")
        tensors["messages"] = _strings([json.dumps(CHAT).encode()])
    for spec in chance.sample(contract.inputs, chance.randint(0, 4)):
        tensors[spec.name] = _array(spec, chance)
    if chance.random() < 0.1:
        tensors.pop(chance.choice(sorted(tensors)))
    return tensors


def _right() -> dict[str, Array]:
    return {
        "text_input": _strings([b"turn twist spin 13"]),
        "input_ids": np.array([[1, 5, 9]], dtype=np.int32),
        "request_output_len": np.array([[8]], dtype=np.int32),
    }


def _strings(values: list[bytes]) -> Array:
    return np.array(values, dtype=object)


def _array(spec: TensorSpec, chance: Random) -> Array:
    size = chance.choice((0, 1, 1, 2, 33)) if spec.is_list or chance.random() < 0.05 else 1
    values = [_value(spec, chance) for _ in range(size)]
    if spec.kind == "STRING":
        return _strings(values)
    with np.errstate(over="ignore"):
        array = np.array(values, dtype=WORDS[spec.kind])
    return array.reshape(1, -1) if chance.random() < 0.5 else array


def _value(spec: TensorSpec, chance: Random) -> Any:
    if spec.kind == "STRING":
        return _string(spec.name, chance)
    if spec.kind == "BOOL":
        return chance.random() < 0.5
    if spec.kind == "FP32":
        return fraction(chance)
    return narrowed(whole(chance), *LIMITS[spec.kind])


def _string(name: str, chance: Random) -> bytes:
    right = {
        "messages": json.dumps(CHAT),
        "routing_algorithm": chance.choice(POLICIES),
        "routing_config": json.dumps(chance.choice(CONFIGS)),
        "sampling_parameters": json.dumps(_options(chance)),
        "logit_bias": json.dumps({str(chance.randint(0, VOCAB)): _json(chance)}),
    }.get(name, text(chance))
    if chance.random() < 0.02:
        right = chance.choice(("[", '{"a":')) * DEEP
    return right.encode() if chance.random() < 0.5 else damaged(right.encode(), chance)


def _parameters(chance: Random) -> str:
    if chance.random() < 0.5:
        return ""
    written = json.dumps(_options(chance))
    return written if chance.random() < 0.8 else damaged(written.encode(), chance).decode(errors="replace")


def _options(chance: Random) -> dict[str, Any]:
    names = [*sorted(TEXT.parameters), *INERT, "timeout", "priority", "id", "nobody"]
    return {name: _json(chance) for name in chance.sample(names, chance.randint(0, 3))}


def _json(chance: Random) -> Any:
    made = (
        lambda: whole(chance),
        lambda: fraction(chance),
        lambda: text(chance),
        lambda: chance.choice((None, True, False, [], {}, ["a"], [1], {"a": 1}, "\ud800", ["\udfff"])),
        lambda: 10 ** chance.choice((19, 30, 400)),
    )
    return chance.choice(made)()
