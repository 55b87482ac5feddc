"""The fuzzer itself: it repeats itself, it notices, and it says how to see a fault again."""

from __future__ import annotations

import json
import sys
from mmap import mmap
from random import Random
from types import ModuleType
from typing import get_args

import pytest

import tools.fuzz as tool
from router_backend.handoff.codec import Message
from tools.fuzzing import base
from tools.fuzzing.base import fuzz
from tools.fuzzing.codec_target import outcome_of_bytes
from tools.fuzzing.messages import MESSAGES
from tools.fuzzing.mutations import damaged, narrowed


class Faulty:
    """Every fourth draw is a fault."""

    def trial(self, chance: Random) -> str:
        if chance.randrange(4) == 0:
            raise IndexError("beyond")
        return "well"


def test_damage_is_decided_by_the_generator_alone() -> None:
    made = [[damaged(b"0123456789", Random(f"{seed}")) for seed in range(50)] for _ in range(2)]
    assert made[0] == made[1]
    assert len(set(made[0])) > 40


def test_a_number_is_narrowed_to_its_word() -> None:
    assert [narrowed(value, -4, 3) for value in (3, 4, -5, 11)] == [3, -4, 3, 3]


def test_there_is_a_message_of_every_kind_to_damage() -> None:
    assert {type(message) for message in MESSAGES} == set(get_args(Message))


@pytest.mark.parametrize("name", tool.TARGETS)
def test_a_trial_is_the_same_every_time(name: str) -> None:
    runs = [fuzz(tool.target(name), range(60), 5) for _ in range(2)]
    assert runs[0].outcomes == runs[1].outcomes
    assert (runs[0].trials, runs[0].faults) == (60, {})


def test_faults_are_gathered_by_kind_with_the_first_trial_of_each() -> None:
    findings = fuzz(Faulty(), range(100), 1)
    ((what, fault),) = findings.faults.items()
    assert what.startswith("IndexError at unit/tools/test_fuzz.py:")
    assert findings.outcomes[what] + findings.outcomes["well"] == 100
    assert not fuzz(Faulty(), range(fault.number), 1).faults
    assert "beyond" in fuzz(Faulty(), [fault.number], 1).faults[what].detail


def test_a_trial_that_takes_too_long_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "SLOW_S", -1.0)
    assert list(fuzz(Faulty(), [0], 1).faults)[-1] == "took longer than -1 s"


class Hoarding:
    """Keeps a tenth of a MiB of every trial, in pages of its own: of the heap, what other tests have given
    back would be taken first, and resident memory stay as it is."""

    def __init__(self) -> None:
        self.kept: list[mmap] = []

    def trial(self, chance: Random) -> str:
        self.kept.append(mmap(-1, 100_000))
        self.kept[-1].write(b"x" * 100_000)
        return "kept"


def test_what_the_trials_leave_in_memory_is_a_fault() -> None:
    found = fuzz(Hoarding(), range(300), 1)
    assert list(found.faults) == ["memory grew by more than 16 MiB"]
    assert found.end_bytes - found.warm_bytes > 20_000_000


def test_the_table_says_how_to_see_a_fault_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tool, "target", lambda name, tokenizer: Faulty())
    assert tool.main(["--runs", "50", "--seed", "3"]) == 1
    shown = capsys.readouterr().out
    assert "FAULT IndexError" in shown and "Traceback" not in shown
    replay = shown.split("--only ")[1].split()[0]
    assert tool.main(["--only", replay, "--seed", "3"]) == 1
    assert "Traceback" in capsys.readouterr().out


def test_json_has_the_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main(["--target", "codec", "--runs", "200", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["target"], found["runs"], found["seed"]) == ("codec", 200, 0)
    assert sum(row["count"] for row in found["rows"]) == 200


def test_bytes_of_another_fuzzer_are_a_head_and_a_body() -> None:
    assert [outcome_of_bytes(data) for data in (b"", b"\x01", b"\x01\x06\x82")] == ["refused"] * 3


def test_coverage_guides_the_codec_where_atheris_is_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "atheris", None)
    assert tool.main(["--atheris"]) == 1
    assert "pip install atheris" in capsys.readouterr().err
    calls: list[object] = []
    atheris = ModuleType("atheris")
    atheris.Setup = lambda argv, take: calls.extend([argv, take(b"\x01\x00")])  # type: ignore[attr-defined]
    atheris.Fuzz = lambda: calls.append("fuzz")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "atheris", atheris)
    assert tool.main(["--atheris", "--runs", "9"]) == 0
    assert calls == [["tools.fuzz", "-runs=9"], None, "fuzz"]
