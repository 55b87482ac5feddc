"""An emulated deployment is an ordinary one, with everything in its run folder."""

from __future__ import annotations

from pathlib import Path

from python_backend.config import load_deployment
from python_backend.roles.agreeing import read_agreement
from python_backend.roles.engine import build_runner
from python_backend.roles.place import tokenizer_dir
from python_backend.text.tokenizer import load_tokenizer
from router_backend.scheduler.rounds import Mode
from tools.emulation.closed_loop import PROMPT
from tools.emulation.deployment import Setting, deadline_ms, server_options
from tools.emulation.measure import PROMPT_TOKENS
from tools.emulation.pair import PLAIN_TOKEN, a100_pair
from tools.triton_server import fronts

SETTING = Setting(a100_pair(), Mode.MODEL_SYNC, (1, 3))


def test_the_deployment_says_mode_and_thresholds_and_every_model_can_be_built(tmp_path: Path) -> None:
    options = server_options(SETTING, tmp_path / "run")
    deployment = load_deployment(options.repository / "deployment.yaml")
    agreement = read_agreement(deployment, options.repository)
    runners = [build_runner(deployment, name, options.repository, agreement) for name in deployment.names]

    assert (deployment.mode, deployment.standing_thresholds) == (Mode.MODEL_SYNC, (1, 3))
    assert [runner.info.vocab_size for runner in runners] == [128, 128]
    assert fronts(options.repository, options.load_models) == ("token_router",)


def test_replicas_are_of_the_large_model_and_all_are_loaded(tmp_path: Path) -> None:
    options = server_options(Setting(a100_pair(), Mode.DELAYED, (1, 2), replicas=3), tmp_path / "run")

    assert options.load_models == ("token_router", "small", "large", "large_2", "large_3")
    assert load_deployment(options.repository / "deployment.yaml").replicas.counts == (1, 3)


def test_what_a_former_run_left_is_gone(tmp_path: Path) -> None:
    server_options(SETTING, tmp_path / "run")
    (tmp_path / "run" / "old").touch()
    server_options(SETTING, tmp_path / "run")

    assert [path.name for path in (tmp_path / "run").iterdir()] == ["repository"]


def test_the_scripted_token_has_a_text_and_the_prompt_the_length_that_seeds_are_drawn_for(
    tmp_path: Path,
) -> None:
    options = server_options(SETTING, tmp_path / "run")
    deployment = load_deployment(options.repository / "deployment.yaml")
    codec = load_tokenizer(tokenizer_dir(deployment, options.repository))

    assert codec.text_source().step(PLAIN_TOKEN)
    assert len(codec.encode(PROMPT)) == PROMPT_TOKENS


def test_the_deadline_is_well_above_the_slow_models_step() -> None:
    assert deadline_ms(a100_pair()) == 3 * 27.9
