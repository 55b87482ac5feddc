"""Random requests against a live server: each is answered or refused by name, and nobody else notices."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from python_backend.server.contracts import ENSEMBLE, TEXT, Contract, TensorSpec
from tests.server.clients import generate
from tests.server.test_bad_input import others  # noqa: F401, four streams that go on meanwhile
from tests.server.test_doors import DEMO, PROMPT
from tools.fuzzing.mutations import fraction, narrowed, text, whole
from tools.fuzzing.request_target import LIMITS
from tools.triton_server import TritonServer

pytestmark = pytest.mark.server

REQUESTS = 150
STRINGS = {
    "routing_algorithm": ("r_stitch", "fixed", "mixture", "nobody"),
    "routing_config": ('{"cutoff": 0.3}', '{"mode": "always"}', "[", '{"cutoff": 1e999}', "[" * 2000),
    "sampling_parameters": ('{"top_k": 1e30}', '{"seed": -1}', '{"stop": ["9"]}', '{"n": 3}', "{" * 2000),
    "messages": (json.dumps([{"role": "user", "content": "turn 13"}]), "[[]]", '[{"role": "\\ud800"}]'),
}


def value(spec: TensorSpec, chance: Random) -> Any:
    if spec.kind == "STRING":
        return chance.choice((*STRINGS.get(spec.name, ()), text(chance)))
    if spec.kind == "BOOL":
        return chance.random() < 0.5
    if spec.kind == "FP32":
        return fraction(chance)
    # Triton itself answers 500 to a number that does not fit the type of its input.
    return narrowed(whole(chance), *LIMITS[spec.kind])


def body(contract: Contract, chance: Random) -> dict[str, Any]:
    right: dict[str, Any] = {"text_input": PROMPT, "max_tokens": 4}
    for spec in chance.sample(contract.inputs, chance.randint(0, 3)):
        one = value(spec, chance)
        right[spec.name] = [one, one] if spec.is_list and chance.random() < 0.5 else one
    return {**right, "max_tokens": right["max_tokens"] if chance.random() < 0.3 else 4, "timeout": 5_000_000}


@pytest.mark.parametrize(("door", "contract"), [("token_router", TEXT), ("ensemble", ENSEMBLE)])
def test_every_random_request_is_answered_or_refused(
    server: TritonServer, door: str, contract: Contract
) -> None:
    chance = Random(f"random requests 1 {door}")
    outcomes = {200: 0, 400: 0}
    for number in range(REQUESTS):
        asked = body(contract, chance)
        answer = generate(server, door, **asked)
        assert answer.status in outcomes, (number, asked, answer)
        secrets = [word for word in ("Traceback", "TR_INTERNAL", "TR_ERROR", ".py") if word in answer.error]
        assert not secrets, (number, asked, answer)
        outcomes[answer.status] += 1
    assert min(outcomes.values()) > REQUESTS / 10
    assert generate(server, door, text_input=PROMPT, max_tokens=20).body["text_output"] == DEMO[0]["answer"]
