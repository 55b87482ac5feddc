"""The report says what happened, and each broken promise makes its own verdict fail."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest

from tools.soaking.faults import FREEZE_S, Fault, Kind, Strike
from tools.soaking.memory import MIB, Look
from tools.soaking.outcomes import Failure, Fate, Tally, Wrong
from tools.soaking.report import Blocks, Findings, Rest, Setup, as_json, as_text, is_near, verdicts
from tools.soaking.work import Asked, Way

SETUP = Setup(100.0, 6, "fail", 0, (Fault(30.0, Kind.KILL),), 40, 0)
STRIKE = Strike(Kind.KILL, 30.0, 4.0)
WRONG = Wrong(Asked(7, 3, "ensemble", Way.HTTP_WHOLE, None), "another text", 1.0, 2.0, "96", "95 03")


def tally(**fates: int) -> Tally:
    found = Tally(0.0)
    found.by_way["ensemble, http whole"] = Counter({Fate[name]: count for name, count in fates.items()})
    found.by_way["token_router, grpc stream"] = Counter({Fate.RIGHT: 5, Fate.CANCELLED: 1})
    found.failures = [Failure(29.0, 31.0, "TR_PEER_LOST")] * fates.get("TOLD", 0)
    return found


def findings(**changes: object) -> Findings:
    looks = [Look(float(at), 100 * MIB, 6 * MIB) for at in range(101)]
    rest = Rest({"small": Blocks(90, 10, 100), "large": Blocks(100, 0, 100)}, 0)
    good = Findings(SETUP, tally(RIGHT=3, TOLD=2), [STRIKE], looks, rest, [(30.2, "large: back")])
    return replace(good, **changes)


def growing(rss_step: int, shm_step: int) -> list[Look]:
    return [Look(float(at), 100 * MIB + at * rss_step, 6 * MIB + at * shm_step) for at in range(101)]


def failing(found: Findings) -> list[str]:
    return [one.what for one in verdicts(found) if not one.holds]


def test_a_good_soak_has_no_failing_verdict() -> None:
    assert failing(findings()) == []
    assert len(verdicts(findings())) == 12


@pytest.mark.parametrize(
    ("changes", "failed"),
    [
        ({"tally": tally(RIGHT=3, WRONG=1)}, "every text is right"),
        ({"tally": tally(RIGHT=3, TWICE=1)}, "every request ends exactly once"),
        ({"tally": tally(RIGHT=3, WITHOUT_END=1)}, "every request ends exactly once"),
        ({"strikes": [Strike(Kind.KILL, 30.0, 10.1)]}, "a struck model answers again within 10 s"),
        ({"strikes": [Strike(Kind.KILL, 30.0, None)]}, "a struck model answers again within 10 s"),
        ({"looks": growing(MIB, 0)}, "resident memory is flat (end at most 136.2 MiB)"),
        ({"looks": growing(0, MIB // 10)}, "shared memory is flat (end at most 9.4 MiB)"),
        ({"end_s": 15.3}, "the server ends within 10 s"),
        ({"rest": Rest({"large": Blocks(90, 9, 100)}, 0)}, "large: free + cached = 100 KV blocks"),
        ({"rest": Rest({}, 2)}, "nothing is under way at the end"),
        ({"setup": replace(SETUP, faults=SETUP.faults * 2)}, "every planned fault was made"),
    ],
)
def test_each_broken_promise_fails_its_own_verdict(changes: dict[str, object], failed: str) -> None:
    assert failing(findings(**changes)) == [failed]


def test_a_failure_that_no_fault_explains_is_one_too_many() -> None:
    found = tally(RIGHT=3)
    found.failures = [Failure(60.0, 61.0, "TR_PEER_LOST")]

    assert failing(findings(tally=found)) == ["failures are told of around faults only"]


def test_a_request_is_near_a_fault_that_it_ran_into() -> None:
    freeze = Strike(Kind.FREEZE, 50.0, 1.0)
    over_at = 50.0 + FREEZE_S + 1.0

    assert is_near(Failure(10.0, 51.0, ""), [freeze])
    assert is_near(Failure(over_at + 4.0, over_at + 9.0, ""), [STRIKE, freeze])
    assert not is_near(Failure(over_at + 6.0, over_at + 9.0, ""), [STRIKE, freeze])
    assert not is_near(Failure(48.0, 49.9, ""), [freeze])


def test_json_has_every_figure_and_is_plain() -> None:
    bad = tally(RIGHT=3, WRONG=1, TOLD=2)
    bad.wrong = [WRONG]
    found = json.loads(json.dumps(as_json(findings(tally=bad))))

    assert found["requests"] == {
        "right": 8,
        "cancelled": 1,
        "told": 2,
        "WRONG": 1,
        "twice": 0,
        "without end": 0,
        "all": 12,
    }
    assert found["codes"] == {"TR_PEER_LOST": 2}
    assert found["strikes"] == [{"kind": "kill -9", "at_s": 30.0, "recovered_s": 4.0}]
    assert found["memory"]["shm"] == dict.fromkeys(("start", "middle", "end"), 6 * MIB)
    assert found["wrong"][0]["asked"]["way"] == "http whole"
    assert found["setup"]["faults"] == 1


def test_the_table_has_a_row_for_every_way_and_every_verdict() -> None:
    lines = as_text(findings()).splitlines()

    assert lines[0].startswith("100 s, 6 clients, 40 questions (0 left out), on_peer_loss fail, seed 0")
    assert " ".join(next(line for line in lines if line.startswith("all ")).split()) == "all 8 1 2 0 0 0"
    assert "told: TR_PEER_LOST 2" in lines
    assert "   30.0 s  kill -9  answers after 4.0 s" in lines
    assert sum(line.startswith("holds") for line in lines) == 12


def test_a_model_that_stays_away_and_a_wrong_text_are_told_in_words() -> None:
    bad = tally(RIGHT=3, WRONG=1)
    bad.wrong = [WRONG]
    text = as_text(findings(tally=bad, strikes=[Strike(Kind.FREEZE, 30.0, None)]))

    assert "SIGSTOP  did not come back" in text
    assert "FAILS  every text is right: 1 are not" in text
    assert "expected='95 03'" in text
