"""`python -m tools.soak` on a real Triton for some seconds with one kill: every promise but the time is kept.

How soon the model is back depends on the machine; that it comes back does not.
"""

from __future__ import annotations

import json

import pytest

from tools import soak
from tools.soaking.work import DOORS, Way

pytestmark = pytest.mark.server

ARGUMENTS = "--minutes 0.35 --kill-every-s 6 --clients 4 --questions 6 --on-peer-loss retry --json"
TIMES = ("a struck model answers again within", "the server ends within")


def test_a_killed_model_costs_nobody_a_token(capsys: pytest.CaptureFixture[str]) -> None:
    soak.main(ARGUMENTS.split())
    found = json.loads(capsys.readouterr().out)

    broken = [one for one in found["verdicts"] if not one["holds"] and not one["what"].startswith(TIMES)]
    assert broken == [], found["wrong"]
    assert [one["kind"] for one in found["strikes"]] == ["kill -9"]
    assert found["strikes"][0]["recovered_s"] is not None, found["supervisor"]
    assert found["by_way"].keys() == {f"{door}, {way.value}" for door in DOORS for way in Way}
