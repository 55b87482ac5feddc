"""Router heads in the step that samples: the numbers that transformers sees, scored on the same rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from python_backend.runner.heads.card import read_card, write_card
from python_backend.runner.heads.vocabulary import tokenizer_sha
from python_backend.runner.torch_runner.buckets import Grid
from python_backend.runner.torch_runner.runner import TorchRunner
from python_backend.runner.torch_runner.settings import TorchSettings
from router_backend.core.errors import ConfigError, RunnerError
from router_backend.core.request import Sampling
from router_backend.scheduler.batch import Needs, Row
from tests.captured_steps import RepeatedCalls
from tests.tiny_models import TinyModel, tiny_model_dir
from tests.unit.runner.heads.test_loading import artefact
from tests.unit.runner.torch_runner.directories import plan, row

HIDDEN, TOPK, DEFER_ID = 32, 9, 11
PROMPTS = ([5, 6, 7], [8, 9, 10, 11, 12], [3])
BOTH = Needs(heads=("defer", "divergence"))


def classifier() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    parts: dict[str, nn.Module] = {
        "logits_projection": nn.Linear(TOPK, HIDDEN),
        "combined_projection": nn.Linear(3 * HIDDEN, 12),
        "backbone.input_projection": nn.Linear(12, 12),
        "backbone.output_layer.0": nn.LayerNorm(12),
        "backbone.output_layer.1": nn.Linear(12, 1),
    }
    state = {
        f"{name}.{key}": value for name, part in parts.items() for key, value in part.state_dict().items()
    }
    return {key: 0.3 * torch.randn(value.shape, generator=generator) for key, value in state.items()}


@pytest.fixture
def settings(tmp_path: Path) -> TorchSettings:
    model_dir = tiny_model_dir(TinyModel())
    fields = {"hidden_size": HIDDEN, "tokenizer_sha": tokenizer_sha(model_dir)}
    rows = load_file(model_dir / "model.safetensors")["lm_head.weight"]
    defer = artefact(tmp_path / "defer", "co_llm", {"row": rows[DEFER_ID]}, **fields)
    divergence = artefact(tmp_path / "divergence", "r2r", classifier(), topk=TOPK, **fields)
    return TorchSettings(model_dir, kv_tokens=256, heads=(("defer", defer), ("divergence", divergence)))


def rows() -> list[Row]:
    return [row(prompt, blocks=(index,)) for index, prompt in enumerate(PROMPTS)]


def test_heads_score_the_hidden_state_token_and_logits_of_each_sampling_row(settings):
    output = TorchRunner(settings).execute(plan(*rows(), needs=BOTH))
    model = AutoModelForCausalLM.from_pretrained(settings.model_dir, attn_implementation="eager").eval()
    state = classifier()

    def linear(name: str, x: Tensor) -> Tensor:
        return x @ state[f"{name}.weight"].T + state[f"{name}.bias"]

    for index, prompt in enumerate(PROMPTS):
        with torch.inference_mode():
            seen = model(torch.tensor([prompt]), output_hidden_states=True)
            logits, hidden = seen.logits[0, -1], seen.hidden_states[-1][0, -1]
            embedded = model.get_input_embeddings().weight[logits.argmax()]
            parts = [hidden, embedded, linear("logits_projection", logits.topk(TOPK).values)]
            x = linear("backbone.input_projection", linear("combined_projection", torch.cat(parts)))
            names = [f"backbone.output_layer.0.{part}" for part in ("weight", "bias")]
            x = nn.functional.layer_norm(x, (12,), *(state[name] for name in names))
            divergence = torch.sigmoid(linear("backbone.output_layer.1", x))[0]
        assert output.scores["defer"][index] == pytest.approx(float(logits[DEFER_ID].sigmoid()), rel=1e-4)
        assert output.scores["divergence"][index] == pytest.approx(float(divergence), rel=1e-4)


def test_a_captured_step_scores_inside_the_graph_and_drawn_tokens_outside_of_it(settings):
    eager, captured = TorchRunner(settings), TorchRunner(settings)
    captured.use_graphs(replace(settings, grid=Grid((4,), (8,))), RepeatedCalls())
    drawn = [one._replace(sampling=Sampling(temperature=2.0, seed=5)) for one in rows()]

    for step in (plan(*rows(), needs=BOTH), plan(*drawn, needs=BOTH)):
        ours, theirs = captured.execute(step), eager.execute(step)
        assert ours.tokens.tolist() == theirs.tokens.tolist()
        for name in BOTH.heads:
            assert ours.scores[name] == pytest.approx(theirs.scores[name], rel=1e-4)
    with pytest.raises(RunnerError, match=r"router head 'mine' is not loaded here"):
        captured.execute(plan(row([5]), needs=Needs(heads=("mine",))))


def test_only_the_heads_that_are_asked_for_are_scored(settings):
    runner = TorchRunner(settings)

    assert runner.execute(plan(row([5]))).scores == {}
    assert set(runner.execute(plan(row([5]), needs=Needs(heads=("defer",)))).scores) == {"defer"}


def test_a_step_without_sampling_rows_has_no_scores(settings):
    output = TorchRunner(settings).execute(plan(row([5, 6], is_sampling=False), needs=BOTH))

    assert {name: score.shape for name, score in output.scores.items()} == {"defer": (0,), "divergence": (0,)}


def test_a_head_that_is_not_there_fails_the_batch_and_one_for_another_vocabulary_the_start(settings):
    with pytest.raises(
        RunnerError, match=r"router head 'mine' is not loaded here; loaded: defer, divergence"
    ):
        TorchRunner(settings).execute(plan(row([5]), needs=Needs(heads=("mine",))))
    folder = settings.heads[0][1]
    write_card(folder, read_card(folder).model_copy(update={"tokenizer_sha": "0" * 64}))
    with pytest.raises(ConfigError, match=r"tokenizer_sha 000000000000 is not the served model's"):
        TorchRunner(settings)
