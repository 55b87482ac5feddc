"""What a script file may hold beyond the script's own keys: measured step times and a routing matrix."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from python_backend.runner.script import Script, load_script
from router_backend.core.errors import ConfigError
from router_backend.planner.latency import StepLatency

PROFILE = {
    "models": [
        {"name": "small", "steps": [{"batch": 1, "step_ms": 6.0}, {"batch": 3, "step_ms": 8.0}]},
        {"name": "large", "steps": [{"batch": 1, "step_ms": 27.9}]},
    ]
}


def written(folder: Path, **script: Any) -> Path:
    (folder / "profile.json").write_text(json.dumps(PROFILE))
    path = folder / "script.json"
    path.write_text(json.dumps({"vocab_size": 8, **script}))
    return path


def test_each_model_takes_its_own_entry_of_profile_and_routing(tmp_path: Path) -> None:
    path = written(tmp_path, profile="profile.json", routing=[[0.65, 0.35], [0.9, 0.1]])

    assert [load_script(path, model) for model in (0, 1)] == [
        Script(8, curve=StepLatency(((1, 6.0), (3, 8.0))), uncertain_p=0.35),
        Script(8, curve=StepLatency(((1, 27.9),)), uncertain_p=0.1),
    ]


def test_a_one_token_return_leaves_the_large_model_never_uncertain(tmp_path: Path) -> None:
    path = written(tmp_path, routing=[[0.65, 0.35], [1.0, 0.0]])

    assert load_script(path, 1) == Script(8, uncertain_p=0.0)


@pytest.mark.parametrize(
    ("script", "model", "message"),
    [
        ({"profile": "gone.json"}, 0, "gone.json: No such file or directory: cannot read the script"),
        ({"profile": "profile.json"}, 2, "profile and routing say nothing of model 2"),
        ({"routing": [[0.5, 0.6], [1.0, 0.0]]}, 0, "routing[0]: probabilities must sum to 1"),
        ({"routing": [[1.0]]}, 0, "say nothing of model 0"),
        ({"curve": 6.0}, 0, "unknown key 'curve'"),
        ({"host_ms": -1}, 0, "host_ms: not negative"),
    ],
)
def test_what_cannot_be_played_is_named(
    tmp_path: Path, script: dict[str, Any], model: int, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_script(written(tmp_path, **script), model)

    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_file_that_is_no_script_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "script.json"
    path.write_text(text)

    with pytest.raises(ConfigError, match=r"script\.json: "):
        load_script(path)
