"""The model repository is what the deployment says, complete, and the committed one is current."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from python_backend.config import Deployment, parse_deployment
from python_backend.server.contracts import ENSEMBLE, POSTPROCESSING, PREPROCESSING, ROUTER
from router_backend.core.errors import ConfigError
from tests.source_tree import ROOT
from tools.make_repository import main, repository_files, stale, write
from tools.repository.models import configs, ensemble_steps, text_door
from tools.repository.pbtxt import rendered

PAIR = parse_deployment("models: [{name: small}, {name: large}]", "test")
DOORS = {"token_router", "ensemble", "preprocessing", "router", "postprocessing"}


def config_texts(deployment: Deployment = PAIR) -> dict[str, str]:
    return {config.name: rendered(config) for config in configs(deployment)}


def test_there_is_one_model_per_door_and_per_subserver() -> None:
    assert set(config_texts()) == DOORS | {"small", "large"}
    three = parse_deployment("models: [{name: a}, {name: b}, {name: c}]", "test")
    assert set(config_texts(three)) == DOORS | {"a", "b", "c"}


def test_every_name_equals_its_folder_and_every_version_folder_exists() -> None:
    files = repository_files(PAIR)
    for name in DOORS | {"small", "large"}:
        assert f'name: "{name}"\n' in files[f"{name}/config.pbtxt"]
        assert files[f"{name}/1/.gitkeep"] == ""


def test_every_instance_is_one_and_needs_no_gpu() -> None:
    for name, text in config_texts().items():
        kinds = re.findall(r"KIND_\w+", text)
        assert kinds == ([] if name == "ensemble" else ["KIND_CPU"])
        assert "count: 1" in text or name == "ensemble"


def test_only_what_streams_is_decoupled_and_nothing_is_batched() -> None:
    texts = config_texts()
    decoupled = {name for name, text in texts.items() if "decoupled: true" in text}
    assert decoupled == {"token_router", "router", "small", "large"}
    assert not [name for name, text in texts.items() if "dynamic_batching" in text]


def test_a_role_is_named_in_every_model_of_ours() -> None:
    roles = {
        name: re.findall(r'"role" value: { string_value: "(\w+)"', text)
        for name, text in config_texts().items()
    }
    assert roles == {
        "token_router": ["front"],
        "ensemble": [],
        "preprocessing": ["preprocessing"],
        "router": ["front"],
        "postprocessing": ["postprocessing"],
        "small": ["subserver"],
        "large": ["subserver"],
    }


def test_required_inputs_are_required_and_the_others_optional() -> None:
    text = config_texts()["ensemble"]
    inputs = text[text.index("input [") : text.index("output [")]
    required = re.findall(r'name: "(\w+)" data_type: \w+ dims: \[ \S+ \] }', inputs)
    assert required == ["text_input", "max_tokens"]
    assert 'name: "stop_words" data_type: TYPE_STRING dims: [ -1 ] optional: true' in inputs


def test_the_ensembles_steps_fit_the_tensors_of_its_models() -> None:
    contracts = {"preprocessing": PREPROCESSING, "router": ROUTER, "postprocessing": POSTPROCESSING}
    for step in ensemble_steps():
        contract = contracts[step.model]
        assert set(step.inputs) <= {spec.name for spec in contract.inputs}
        assert set(step.outputs) <= {spec.name for spec in contract.outputs}


def test_every_tensor_of_the_ensemble_goes_somewhere_and_comes_from_somewhere() -> None:
    steps = ensemble_steps()
    taken = {name for step in steps for name in step.inputs.values()}
    made = {name for step in steps for name in step.outputs.values()}
    assert {spec.name for spec in ENSEMBLE.inputs} <= taken
    assert {spec.name for spec in ENSEMBLE.outputs} <= made
    assert taken <= made | {spec.name for spec in ENSEMBLE.inputs}


def test_what_follows_the_router_takes_its_tensors_from_the_router_only() -> None:
    """Triton refuses to mix tensors from before and after a decoupled step."""
    _, router, postprocessing = ensemble_steps()
    assert set(postprocessing.inputs.values()) <= set(router.outputs.values())


def test_a_model_may_not_be_called_like_a_door() -> None:
    with pytest.raises(ConfigError, match="models: the name 'router' belongs to a door"):
        configs(parse_deployment("models: [{name: router}]", "test"))


def test_writing_brings_a_folder_up_to_date_and_leaves_weights_alone(tmp_path: Path) -> None:
    files = repository_files(PAIR)
    weights = tmp_path / "small" / "1" / "model.safetensors"
    weights.parent.mkdir(parents=True)
    weights.write_text("w")
    assert set(stale(files, tmp_path)) == set(files) - {"small/1/.gitkeep"}
    write(files, tmp_path)
    assert stale(files, tmp_path) == []
    assert [path.name for path in weights.parent.iterdir()] == ["model.safetensors"]


def deployment_file(folder: Path, text: str = "models: [{name: small}, {name: large}]") -> Path:
    path = folder / "deployment.yaml"
    path.write_text(text)
    return path


def test_check_names_what_differs_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = deployment_file(tmp_path)
    assert main([str(path)]) == 0
    assert main([str(path), "--check"]) == 0
    config = tmp_path / "router" / "config.pbtxt"
    config.write_text("mine")
    capsys.readouterr()
    assert main([str(path), "--check"]) == 1
    assert capsys.readouterr().out == f"{config}: differs from the deployment\n"
    assert config.read_text() == "mine"


def test_out_chooses_the_folder_and_json_tells_what_was_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = deployment_file(tmp_path), tmp_path / "out"
    assert main([str(path), "--out", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert sorted(found["files"]) == sorted(found["stale"]) == sorted(repository_files(PAIR))
    assert (out / "ensemble" / "config.pbtxt").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("models: [{name: small, colour: red}]", ("colour", "deployment.yaml")),
        ("models: [{name: small}]\nshape: round", ("shape", "deployment.yaml")),
        ("models: [{name: ensemble}]", ("ensemble",)),
    ],
)
def test_a_wrong_deployment_is_an_error_that_names_key_and_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: tuple[str, ...]
) -> None:
    assert main([str(deployment_file(tmp_path, text))]) == 2
    error = capsys.readouterr().err
    assert all(word in error for word in words), error


def test_the_committed_repository_is_current() -> None:
    assert main([str(ROOT / "model_repository" / "deployment.yaml"), "--check"]) == 0


def test_the_text_door_tells_its_clients_what_it_is_made_of() -> None:
    told = parse_deployment(
        "{models: [{name: a}, {name: b}], policy: {name: r_stitch, params: {cutoff: 0.2}},"
        " front: {cutoff_range: [0, 1.5]}}",
        "test",
    )
    assert text_door(told) == {
        "role": "front",
        "door": "text",
        "models": "a,b",
        "policy": "r_stitch",
        "cutoff": "0.2",
        "cutoff_range": "0.0,1.5",
    }
    assert text_door(PAIR) == {"role": "front", "door": "text", "models": "small,large", "policy": "r_stitch"}


def test_the_text_door_tells_which_models_are_replicas_of_one() -> None:
    told = parse_deployment("{models: [{name: small, replicas: 2}, {name: large}]}", "test")
    assert text_door(told)["replicas"] == "small,small_2;large"


def test_a_range_of_cutoffs_that_does_not_rise_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"front.cutoff_range: .*\[1.0, 0.5\] must rise"):
        parse_deployment("{models: [{name: a}], front: {cutoff_range: [1, 0.5]}}", "test")
