"""`python -m tools.plan_thresholds`: figures, table, plot and errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.plan_thresholds import main

PAIR = ["--small-ms", "6.0", "--large-ms", "27.9", "--route-probability", "0.35"]
STEPS = {"models": [{"steps": [{"batch": 1, "step_ms": ms}]} for ms in (6.0, 27.9)]}


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert main([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert isinstance(document, dict)
    return document


def written(path: Path, document: object) -> str:
    path.write_text(json.dumps(document), encoding="utf-8")
    return str(path)


def test_json_names_the_best_vector_and_lists_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    seen = run(capsys, *PAIR, "--concurrency", "4")

    assert seen["best"] == {"thresholds": [1, 3], "throughput": pytest.approx(207.954041)}
    table = {tuple(row["thresholds"]): row["throughput"] for row in seen["table"]}  # type: ignore[attr-defined]
    assert len(table) == 10
    assert table[1, 1] == pytest.approx(187.189651)


def test_json_explains_the_choice(capsys: pytest.CaptureFixture[str]) -> None:
    seen = run(capsys, *PAIR, "--concurrency", "16", "--tolerance", "0.05")

    assert seen["explanation"]["reason"] == "smaller_nearly_as_good"  # type: ignore[index]
    assert sum(seen["chosen"]["thresholds"]) < sum(seen["best"]["thresholds"])  # type: ignore[index]


def test_profile_and_matrix_files_describe_the_same_system(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    profile = written(tmp_path / "profile.json", STEPS)
    matrices = {"routing": [[0.65, 0.35], [1, 0]], "commits": [[1, 0], [1, 0]]}
    matrix = written(tmp_path / "matrix.json", matrices)

    seen = run(capsys, "--profile", profile, "--matrix", matrix, "--concurrency", "4")

    assert seen == run(capsys, *PAIR, "--concurrency", "4")


def test_a_gap_target_limits_the_choice(capsys: pytest.CaptureFixture[str]) -> None:
    seen = run(capsys, *PAIR, "--concurrency", "4", "--gap-ms-max", "42")

    assert seen["explanation"]["reason"] in {"gap_target", "no_candidate_meets_gap_target"}  # type: ignore[index]


def test_slopes_and_a_large_model_that_keeps_requests_are_options(capsys: pytest.CaptureFixture[str]) -> None:
    slopes = ["--small-slope-ms", "0.1", "--large-slope-ms", "0.4"]

    sloped = run(capsys, *PAIR, *slopes, "--concurrency", "8")
    staying = run(capsys, *PAIR, "--return-probability", "0.5", "--concurrency", "8")

    assert sloped["best"]["throughput"] == pytest.approx(378.51, abs=0.01)  # type: ignore[index]
    assert staying["best"]["throughput"] < sloped["best"]["throughput"]  # type: ignore[index]


def test_the_table_for_people_marks_the_choice(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*PAIR, "--concurrency", "8"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:3] == ["1,5", "399.05", "+8.1%"]
    assert lines[1].endswith("<- chosen")
    assert lines[-3:] == [
        "... 24 more; --json prints all",
        "chosen [1, 5]: best, gain +8.1%",
        "computed by exact chain for 8 live requests",
    ]


def test_the_plot_is_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    target = tmp_path / "curve.png"

    assert main([*PAIR, "--concurrency", "4", "--plot", str(target)]) == 0

    assert target.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--small-ms", "6", "--route-probability", "0.35"], "--large-ms (or --profile): missing"),
        (["--small-ms", "6", "--large-ms", "9"], "--route-probability (or --matrix): missing"),
        ([*PAIR, "--large-ms", "0"], "--large-ms: must be above 0 ms, got 0"),
        ([*PAIR, "--small-slope-ms", "-1"], "--small-slope-ms: must be 0 ms or more, got -1"),
        ([*PAIR, "--route-probability", "1.5"], "route_probability: must lie between 0 and 1, got 1.5"),
        ([*PAIR, "--tolerance", "2"], "tolerance: must be at least 0 and below 1, got 2"),
        (
            ["--profile", "missing.json", "--route-probability", "0.1"],
            "--profile: missing.json: No such file",
        ),
        ([*PAIR, "--plot", "missing/folder/curve.png"], "--plot: missing"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_option(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main([*arguments, "--concurrency", "2"]) == 2

    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_file_that_is_not_json_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("{", encoding="utf-8")

    assert main(["--matrix", str(broken), "--concurrency", "2"]) == 2

    assert "broken.json is not JSON" in capsys.readouterr().err


def test_help_explains_thresholds_and_files(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])

    text = capsys.readouterr().out
    assert "A model starts a batch when at least `threshold` requests wait for it" in text
    assert '"steps": [{"batch": 1, "step_ms": 6.0}' in text
