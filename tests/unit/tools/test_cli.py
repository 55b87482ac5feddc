"""`token-router` finds every tool, passes options on and returns the tool's exit status."""

from __future__ import annotations

import importlib

import pytest
from typer.testing import CliRunner

from tools.cli import BENCHES, CHECKS, COMMANDS, app
from tools.triton_layout import ROOT

EVERY = {**COMMANDS, **BENCHES, **CHECKS}
INTERNAL = {
    "cli",
    "awake",
    "config_reference",
    "draw_dashboard",
    "draw_states",
    "engine_peers",
    "marked_page",
    "metric_reference",
    "metrics_page",
    "peer_environments",
    "published_routers",
    "step_timing",
    "train_demo_pair",
    "triton_guard",
    "triton_layout",
    "triton_server",
    "trtllm_tap",
    "try_image",
}
"""Modules that are no commands, and commands of those who work on this repository."""


@pytest.mark.parametrize("module", [module for module, _ in EVERY.values()])
def test_every_command_is_a_tool(module: str) -> None:
    assert callable(importlib.import_module(f"tools.{module}").main)


def test_every_tool_has_its_command() -> None:
    tools = {path.stem for path in (ROOT / "tools").glob("*.py")} - {"__init__"}

    assert tools - INTERNAL == {module for module, _ in EVERY.values()}


def test_options_go_to_the_tool_and_its_answer_comes_back() -> None:
    arguments = "plan --small-ms 6.0 --large-ms 27.9 --route-probability 0.35 --concurrency 2 --json"
    found = CliRunner().invoke(app, arguments.split())

    assert found.exit_code == 0
    assert found.stdout.startswith('{"best": {"thresholds": [1, 2]')


def test_a_tool_that_fails_gives_its_status() -> None:
    found = CliRunner().invoke(app, ["status", "--once", "--url", "http://127.0.0.1:1/metrics"])

    assert found.exit_code == 1


def test_help_lists_the_commands() -> None:
    shown = CliRunner(env={"COLUMNS": "120"}).invoke(app, ["--help"]).stdout

    assert all(name in shown for name in (*COMMANDS, "bench", "check"))
