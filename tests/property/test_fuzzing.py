"""A short run of every target of `tools.fuzz`, and damaged requests through a whole door."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import fake_pb_utils
from tools.fuzz import TARGETS, target
from tools.fuzzing.base import fuzz
from tools.fuzzing.request_target import damaged_request

fake_pb_utils.install()

from python_backend.loops.base import Ask, Finish, Piece, ResponsePort  # noqa: E402
from python_backend.roles.door import ROUTER_TONGUE, TEXT_TONGUE, TOKENS_TONGUE, Tongue  # noqa: E402
from python_backend.server.contracts import ROUTER, TEXT, TOKENS, Contract  # noqa: E402
from router_backend.core.effects import Reason  # noqa: E402
from tests.unit.roles.test_door import FakeService, Request, door  # noqa: E402

RUNS = {"codec": 3000, "request": 1500, "handoff": 150}
DOORS = ((TEXT_TONGUE, TEXT), (ROUTER_TONGUE, ROUTER), (TOKENS_TONGUE, TOKENS))


@pytest.mark.parametrize("name", TARGETS)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=2)
def test_damage_meets_typed_errors_only(name: str, seed: int) -> None:
    findings = fuzz(target(name), range(RUNS[name]), seed)
    assert not findings.faults, findings.faults


def echo(ask: Ask, port: ResponsePort) -> None:
    port.put(Piece(text="a", token_ids=(1,), sources=(0,), finish=Finish(Reason.LENGTH)))


@pytest.mark.parametrize(("tongue", "contract"), DOORS)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=3)
def test_a_damaged_request_gets_one_final_and_no_secrets(
    tongue: Tongue, contract: Contract, seed: int
) -> None:
    chance = Random(seed)
    outputs = tuple(spec.name for spec in contract.outputs)
    with door(FakeService(echo), tongue) as opened:
        for number in range(40):
            arrays, beside = damaged_request(contract, chance)
            given_id = f"{beside.request_id}{number}"
            request = Request(arrays, given_id, beside.parameters_json, beside.timeout_us, outputs)
            opened.execute([request])
            answers = request.wait()
            assert [flag for _, flag in answers].count(1) == 1, answers
            assert "TR_INTERNAL" not in str(answers) and "Traceback" not in str(answers), answers
