"""Engines by name, imported only when asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from python_backend.runner import registry
from python_backend.runner.registry import runner_factory
from router_backend.core.errors import ConfigError

NAMES = ["build", "build", "build", "build", "ScriptedRunner"]


def test_every_engine_is_found_by_its_name() -> None:
    assert [runner_factory(name).__name__ for name in registry.ENGINES] == NAMES


def test_an_unknown_engine_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="engine: 'abacus' is not one of torch, trtllm, "):
        runner_factory("abacus")


def test_an_engine_whose_packages_are_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "ENGINES", {"ghost": "no_such_package.runner:Runner"})

    with pytest.raises(ConfigError, match="engine ghost: No module named 'no_such_package'; install"):
        runner_factory("ghost")


def test_torch_is_not_imported_before_its_engine_is_chosen() -> None:
    parts = ("settings", "model_config", "footprint", "building")
    light = ("registry", *(f"torch_runner.{part}" for part in parts))
    imports = "".join(f"import python_backend.runner.{module}; " for module in light)
    check = f"{imports}import sys; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
