"""What is measured, in which order and how it is told; the server is a stand-in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from router_backend.planner.latency import constant
from router_backend.scheduler.rounds import Mode
from tools import bench_modes
from tools.bench_modes import Cell, cells
from tools.emulation.closed_loop import ClosedLoopError
from tools.emulation.measure import Measured
from tools.emulation.pair import EmulatedPair, a100_pair

MEASURED = Measured(100.0, (99.0, 100.0, 101.0), 6.0, 60.0, (1.5, 2.0))


class StandInServer:
    """Remembers which deployments were served."""

    served: list[tuple[str, tuple[int, ...], int]]

    def __init__(self, setting: bench_modes.Setting) -> None:
        self.served.append((setting.mode.value, setting.thresholds, setting.replicas))

    def __enter__(self) -> StandInServer:
        return self

    def __exit__(self, *failure: object) -> None:
        return None


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The concurrencies in the order in which they were measured."""
    measured: list[int] = []

    def measure(server: Any, pair: Any, n: int, effort: Any) -> Measured:
        measured.append(n)
        return MEASURED

    StandInServer.served = []
    monkeypatch.setattr(bench_modes, "server_options", lambda setting, run_dir: setting)
    monkeypatch.setattr(bench_modes, "TritonServer", StandInServer)
    monkeypatch.setattr(bench_modes, "measure", measure)
    yield measured


def test_every_mode_is_compared_with_its_own_prediction() -> None:
    found = {cell.mode: cell for cell in cells(a100_pair(), list(Mode), [8]) if not cell.is_swept}

    assert {mode: (cell.thresholds, round(cell.predicted, 1)) for mode, cell in found.items()} == {
        Mode.DELAYED: ((1, 5), 399.0),
        Mode.EAGER_ASYNC: ((1, 1), 369.2),
        Mode.STEP_SYNC: ((1, 1), 228.7),
        Mode.MODEL_SYNC: ((1, 1), 242.3),
    }


def test_the_sweep_measures_every_threshold_of_the_large_model() -> None:
    swept = [cell for cell in cells(a100_pair(), [Mode.DELAYED], [1, 2, 4]) if cell.is_swept]

    assert [(cell.n, cell.thresholds) for cell in swept] == [
        *((2, (1, threshold)) for threshold in (1, 2)),
        *((4, (1, threshold)) for threshold in (1, 2, 3, 4)),
    ]
    assert not [cell for cell in cells(a100_pair(), [Mode.STEP_SYNC], [2]) if cell.is_swept]


def test_a_threshold_of_one_is_served_eagerly() -> None:
    assert Cell(Mode.DELAYED, 1, (1, 1), 1.0).deployment == (Mode.EAGER_ASYNC, (1, 1), 1)
    assert Cell(Mode.DELAYED, 2, (1, 2), 1.0).deployment == (Mode.DELAYED, (1, 2), 1)


def test_each_deployment_is_served_once_and_each_setting_measured_once(
    counts: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    status = bench_modes.main(["--json", "--concurrency", "1", "2", "--modes", "delayed", "eager_async"])
    document = json.loads(capsys.readouterr().out)

    assert status == 0
    assert StandInServer.served == [("eager_async", (1, 1), 1), ("delayed", (1, 2), 1)]
    assert counts == [1, 2, 2]
    assert [(row["mode"], row["n"], row["thresholds"]) for row in document["rows"]] == [
        ("delayed", 1, [1, 1]),
        ("delayed", 2, [1, 2]),
        ("eager_async", 1, [1, 1]),
        ("eager_async", 2, [1, 1]),
    ]
    assert [row["thresholds"] for row in document["sweep"]] == [[1, 1], [1, 2]]
    first = document["rows"][1]
    assert first["ratio"] == pytest.approx(100.0 / first["predicted"])
    assert first.keys() >= {"throughput", "gap_p50_ms", "gap_p99_ms", "mean_batch"}
    assert document["emulated"] is True


def test_with_replicas_every_mode_that_can_have_them_is_measured_with_one_large_model_and_with_so_many(
    counts: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench_modes.main(["--json", "--concurrency", "4", "--replicas", "2"]) == 0
    printed = capsys.readouterr()
    rows = json.loads(printed.out)["rows"]

    assert [(row["mode"], row["replicas"], row["thresholds"]) for row in rows] == [
        *(("delayed", 1, [1, 3]), ("delayed", 2, [1, 2])),
        *(("eager_async", 1, [1, 1]), ("eager_async", 2, [1, 1])),
    ]
    assert [round(row["predicted"], 1) for row in rows] == [208.0, 191.4, 187.2, 204.9]
    assert len(StandInServer.served) == 4
    assert "delayed [1, 2] 2 replicas n=4: 100.0 tok/s" in printed.err


def test_a_barrier_mode_has_no_replicas(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench_modes.main(["--replicas", "2", "--modes", "step_sync"]) == 2
    assert "mode step_sync knows one of each model" in capsys.readouterr().err


def test_the_table_says_that_it_is_an_emulation_and_progress_goes_to_stderr(
    counts: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    bench_modes.main(["--concurrency", "2", "--modes", "delayed"])
    printed = capsys.readouterr()

    assert printed.out.splitlines()[0] == "emulated models, real runtime"
    assert printed.out.count("100.0") == 3
    assert "delayed [1, 2] n=2: 100.0 tok/s" in printed.err


def test_the_picture_is_drawn_from_the_rows(counts: list[int], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    bench_modes.main(["--concurrency", "2", "--modes", "delayed", "--plot", str(tmp_path / "modes.png")])

    assert (tmp_path / "modes.png").exists()


def test_a_failed_client_and_an_impossible_setting_are_named(
    counts: list[int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(*arguments: object) -> Measured:
        raise ClosedLoopError("no request ended")

    monkeypatch.setattr(bench_modes, "measure", failing)
    statuses = [bench_modes.main(["--concurrency", number, "--modes", "step_sync"]) for number in ("2", "0")]

    assert statuses == [1, 2]
    assert "bench_modes: no request ended" in capsys.readouterr().err


def test_a_profile_takes_the_place_of_the_published_steps(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({"models": [{"steps": [{"batch": 1, "step_ms": ms}]} for ms in (3.0, 9.0)]}))
    options = bench_modes.parser().parse_args(["--profile", str(path), "--return-probability", "0.5"])

    assert bench_modes.read_pair(options) == EmulatedPair((constant(3.0), constant(9.0)), 0.35, 0.5)
    assert bench_modes.read_pair(bench_modes.parser().parse_args([])) == a100_pair()
