"""Artefacts that fit a served model load and score; the others are refused at start, by their key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from python_backend.runner.heads.card import HeadCard, write_card
from python_backend.runner.heads.loading import HeadBook, load_head
from python_backend.runner.heads.modules import CiterMlp
from python_backend.runner.heads.named_tensors import NamedTensors
from router_backend.core.errors import ConfigError, RunnerError
from tests.published_routers import HIDDEN, TOPK, VOCAB, r2r_network, random_inputs

EMBEDDING = torch.zeros(VOCAB, 6)
KINDS = {"citer": ("citer_mlp", "<"), "r2r": ("r2r_classifier", ">="), "co_llm": ("defer_row", ">")}
MLP = {
    "up.weight": torch.eye(HIDDEN),
    "up.bias": torch.zeros(HIDDEN),
    "output.weight": torch.ones(1, HIDDEN),
    "output.bias": torch.tensor([-1.0]),
}


def artefact(folder: Path, algorithm: str, tensors: dict[str, Tensor], **changes: Any) -> Path:
    kind, operator = KINDS[algorithm]
    fields = {
        "algorithm": algorithm,
        "kind": kind,
        "small": "s",
        "large": "l",
        "tokenizer_sha": "0" * 64,
        "hidden_size": HIDDEN,
        "topk": TOPK if algorithm == "r2r" else 0,
        "cutoff": 0.25,
        "operator": operator,
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_card(folder, HeadCard.model_validate({**fields, **changes}))
    save_file(tensors, folder / "router.safetensors")
    return folder


def r2r_tensors() -> dict[str, Tensor]:
    state = dict(r2r_network().state_dict())
    del state["token_embeddings.weight"]
    return state


def test_a_citer_head_is_a_sigmoid_over_rectified_features(tmp_path):
    head = load_head(artefact(tmp_path, "citer", MLP), HIDDEN, EMBEDDING)
    hidden = torch.zeros(2, HIDDEN)
    hidden[1, 0], hidden[1, 1] = 3.0, -9.0
    none = torch.zeros(0)

    assert torch.equal(head(hidden, none, none), torch.sigmoid(torch.tensor([-1.0, 2.0])))


def test_a_defer_row_is_a_sigmoid_of_one_product(tmp_path):
    row = torch.arange(HIDDEN, dtype=torch.float32)
    head = load_head(artefact(tmp_path, "co_llm", {"row": row}), HIDDEN, EMBEDDING)
    hidden = torch.zeros(2, HIDDEN)
    hidden[1, 3] = 0.5
    none = torch.zeros(0)

    assert torch.equal(head(hidden, none, none), torch.sigmoid(torch.tensor([0.0, 1.5])))


def test_an_r2r_head_reads_its_share_of_more_logits_and_the_served_embedding(tmp_path):
    folder, inputs = artefact(tmp_path, "r2r", r2r_tensors()), random_inputs()
    embedding = torch.randn(VOCAB, 6, generator=torch.Generator().manual_seed(9))
    head = load_head(folder, HIDDEN, embedding)
    more = torch.cat([inputs.topk_logits, torch.full((5, 3), -50.0)], dim=1)
    scores = head(inputs.hidden, inputs.tokens, inputs.topk_logits)

    without_embedding = load_head(folder, HIDDEN, EMBEDDING)(inputs.hidden, inputs.tokens, more)

    torch.testing.assert_close(head(inputs.hidden, inputs.tokens, more), scores)
    assert (without_embedding - scores).abs().max() > 1e-3


@pytest.mark.parametrize("algorithm", KINDS)
def test_a_rows_score_depends_on_no_other_row_and_a_sick_row_stays_alone(algorithm, tmp_path):
    tensors = {"citer": MLP, "r2r": r2r_tensors(), "co_llm": {"row": torch.ones(HIDDEN)}}[algorithm]
    head = load_head(artefact(tmp_path, algorithm, tensors), HIDDEN, EMBEDDING)
    inputs = random_inputs(rows=4)
    hidden = inputs.hidden.clone()
    hidden[2] = torch.nan
    scores = head(hidden, inputs.tokens, inputs.topk_logits)
    alone = [head(hidden[[i]], inputs.tokens[[i]], inputs.topk_logits[[i]]) for i in range(4)]

    assert scores.isnan().tolist() == [False, False, True, False]
    torch.testing.assert_close(scores, torch.cat(alone), equal_nan=True)


def test_half_precision_hidden_states_are_scored_in_single_precision(tmp_path):
    head = load_head(artefact(tmp_path, "citer", MLP), HIDDEN, EMBEDDING.bfloat16())
    hidden = torch.randn(3, HIDDEN).bfloat16()
    none = torch.zeros(0)

    assert head(hidden, none, none).dtype == torch.float32
    assert torch.equal(head(hidden, none, none), head(hidden.float(), none, none))


def test_a_head_for_another_model_is_refused_by_its_key(tmp_path):
    r2r = artefact(tmp_path / "r2r", "r2r", r2r_tensors())

    with pytest.raises(ConfigError, match=r"hidden_size 10 where the model has 12"):
        load_head(r2r, 12, EMBEDDING)
    with pytest.raises(
        ConfigError, match=r"combined_projection.weight: shape \[12, 26\] where \[12, 29\] is"
    ):
        load_head(r2r, HIDDEN, torch.zeros(VOCAB, 9))
    with pytest.raises(ConfigError, match=r"logits_projection.weight: reads 7 of 5 logits, card says 7"):
        load_head(r2r, HIDDEN, torch.zeros(5, 6))
    with pytest.raises(ConfigError, match=r"logits_projection.weight: reads 7 of 40 logits, card says 8"):
        load_head(artefact(tmp_path / "r2r", "r2r", r2r_tensors(), topk=8), HIDDEN, EMBEDDING)


def test_weights_that_do_not_fit_their_card_are_refused_by_their_key(tmp_path):
    with pytest.raises(ConfigError, match=r"router.safetensors: row: missing"):
        load_head(artefact(tmp_path, "co_llm", MLP), HIDDEN, EMBEDDING)
    with pytest.raises(ConfigError, match=r"router.safetensors: extra: unknown key"):
        load_head(artefact(tmp_path, "citer", {**MLP, "extra": torch.ones(1)}), HIDDEN, EMBEDDING)
    (tmp_path / "router.safetensors").write_bytes(b"junk")
    with pytest.raises(ConfigError, match=r"router.safetensors: not a readable safetensors file"):
        load_head(tmp_path, HIDDEN, EMBEDDING)
    (tmp_path / "router.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"router.safetensors: not a readable safetensors file"):
        load_head(tmp_path, HIDDEN, EMBEDDING)


def test_a_tensor_is_taken_once():
    tensors = NamedTensors(MLP, "here")
    CiterMlp.take(tensors, HIDDEN)

    tensors.refuse_rest()
    with pytest.raises(ConfigError, match=r"here: up.weight: missing"):
        CiterMlp.take(tensors, HIDDEN)


def test_several_heads_score_the_same_rows_by_name(tmp_path):
    inputs = random_inputs()
    folders = {
        "citer": artefact(tmp_path / "c", "citer", MLP),
        "r2r": artefact(tmp_path / "r", "r2r", r2r_tensors(), cutoff=0.4),
    }
    book = HeadBook({name: load_head(folder, HIDDEN, EMBEDDING) for name, folder in folders.items()})
    scores = book.scores(("citer", "r2r"), inputs.hidden, inputs.tokens, inputs.topk_logits)

    assert {name: tuple(score.shape) for name, score in scores.items()} == {"citer": (5,), "r2r": (5,)}
    assert (book.topk(()), book.topk(("citer",)), book.topk(("citer", "r2r"))) == (0, 0, TOPK)
    assert book.cutoffs == {"citer": 0.25, "r2r": 0.4}
    with pytest.raises(RunnerError, match=r"router head 'mine' is not loaded here; loaded: citer, r2r"):
        book.scores(("mine",), inputs.hidden, inputs.tokens, inputs.topk_logits)
    with pytest.raises(RunnerError, match=r"loaded: none"):
        HeadBook({}).topk(("mine",))


def test_artefacts_hold_single_precision(tmp_path):
    folder = artefact(tmp_path, "citer", MLP)

    assert {tensor.dtype for tensor in load_file(folder / "router.safetensors").values()} == {torch.float32}
