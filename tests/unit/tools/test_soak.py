"""What the soak makes of its options and of a metrics page, and what it says when it cannot be made."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator

import pytest

from tests.unit.tools.soaking.test_report import findings
from tools import soak
from tools.metrics_page import Sample
from tools.soak import Plan, ended_by_sigterm, main, rest_of
from tools.soaking.faults import Kind, Strike
from tools.soaking.load import SoakError
from tools.soaking.report import Blocks, Rest
from tools.triton_server import ServerError


def blocks(model: str, owner: str, value: float) -> Sample:
    return Sample("kv_blocks", {"model": model, "owner": owner}, value)


def test_what_is_left_is_read_from_the_metrics_page() -> None:
    page = [
        blocks("small", "free", 90.0),
        blocks("small", "cached", 10.0),
        blocks("large", "free", 99.0),
        blocks("large", "parked", 1.0),
        Sample("live", {"model": "large"}, 1.0),
        Sample("open_streams", {"door": "router"}, 2.0),
        Sample("turns_total", {"model": "large"}, 7.0),
    ]

    assert rest_of(page, {"small": 100, "large": 100}) == Rest(
        {"small": Blocks(90, 10, 100), "large": Blocks(99, 0, 100)}, 3
    )


def test_options_make_the_plan_and_a_good_run_has_status_0(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plans: list[Plan] = []
    monkeypatch.setattr(soak, "soak", lambda plan: plans.append(plan) or findings())

    assert main(["--minutes", "2", "--clients", "3", "--on-peer-loss", "retry", "--json"]) == 0
    assert plans == [Plan(120.0, 3, 40, 60.0, "retry", 0)]
    assert [fault.at_s for fault in plans[0].faults] == [60.0]
    assert json.loads(capsys.readouterr().out)["requests"]["all"] == 11


def test_a_failing_verdict_is_status_1_and_in_the_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(soak, "soak", lambda plan: findings(strikes=[Strike(Kind.KILL, 1.0, None)]))

    assert main([]) == 1
    assert "FAILS  a struck model answers again within 10 s" in capsys.readouterr().out


@pytest.mark.parametrize("error", [SoakError("no answer"), ServerError("no answer")])
def test_a_soak_that_cannot_be_made_says_why(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextlib.contextmanager
    def not_served(on_peer_loss: str) -> Iterator[None]:
        raise error
        yield

    monkeypatch.setattr(soak, "served", not_served)
    assert main(["--minutes", "1"]) == 1
    assert capsys.readouterr().err == "soak: no answer\n"


@pytest.mark.parametrize("option", ["--minutes", "--kill-every-s", "--clients", "--questions"])
def test_nothing_at_all_is_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([option, "0"])
    assert f"argument {option}: 0: " in capsys.readouterr().err


def test_sigterm_ends_it_as_ctrl_c_does_and_only_while_it_runs() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), ended_by_sigterm():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
