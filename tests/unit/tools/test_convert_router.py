"""Three published formats, converted and compared with the forward pass of their own code."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from python_backend.runner.heads.card import HeadCard, read_card
from python_backend.runner.heads.loading import RouterHead, load_head
from python_backend.runner.heads.vocabulary import tokenizer_sha
from tests.published_routers import (
    DEFER_ID,
    HIDDEN,
    TOPK,
    VOCAB,
    CiterNetwork,
    R2RShape,
    citer_network,
    r2r_dict,
    r2r_network,
    random_inputs,
    save_citer,
    save_co_llm,
    save_r2r,
)
from tests.tiny_models import write_tokenizer
from tools.convert_router import main

INPUTS = random_inputs(rows=6)


@pytest.fixture
def tokenizer_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    write_tokenizer(folder, VOCAB)
    return folder


def convert(form: str, source: Path, tokenizer_dir: Path, *more: str) -> Path:
    """Run the tool; the folder that it wrote."""
    out = source.parent / f"{form}-head"
    names = ("--small", "tiny-small", "--large", "tiny-large", "--tokenizer", str(tokenizer_dir))
    assert main([form, str(source), str(out), *names, *more]) == 0
    return out


def refusal(
    form: str, source: Path, tokenizer_dir: Path, capsys: pytest.CaptureFixture[str], *more: str
) -> str:
    out = source.parent / "never"
    names = ("--small", "s", "--large", "l", "--tokenizer", str(tokenizer_dir))
    assert main([form, str(source), str(out), *names, *more]) == 1
    assert not out.exists(), "a refused router leaves nothing behind"
    return capsys.readouterr().err


def scores(head: RouterHead) -> Tensor:
    return head(INPUTS.hidden, INPUTS.tokens, INPUTS.topk_logits)


def embedding(size: int = 3) -> Tensor:
    return torch.zeros(VOCAB, size)


def test_citer_scores_are_those_of_the_published_network_with_its_batch_norm(tmp_path, tokenizer_dir):
    network = citer_network()
    out = convert("citer", save_citer(network, tmp_path / "mlp_iter_0123.pth"), tokenizer_dir)
    head = load_head(out, HIDDEN, embedding())

    with torch.inference_mode():
        torch.testing.assert_close(scores(head), network(INPUTS.hidden), rtol=1e-5, atol=1e-6)
    assert scores(head).std() > 0.01, "a constant would prove nothing"


@pytest.mark.parametrize(
    "shape",
    [R2RShape(), R2RShape(outputs=3), R2RShape(widths=(8, 12, 6)), R2RShape(embedding=HIDDEN)],
    ids=["published", "three classes", "bottleneck", "wide embedding"],
)
def test_r2r_scores_are_those_of_the_published_network(shape, tmp_path, tokenizer_dir):
    network = r2r_network(shape)
    out = convert("r2r", save_r2r(network, tmp_path / "default_router.pt"), tokenizer_dir)
    head = load_head(out, HIDDEN, network.token_embeddings.weight.detach())

    with torch.inference_mode():
        expected = network(INPUTS.hidden, INPUTS.tokens, INPUTS.topk_logits)
        torch.testing.assert_close(scores(head), expected, rtol=1e-5, atol=1e-6)
    assert expected.std() > 0.01


def test_an_r2r_file_with_its_embedding_becomes_the_same_artefact_without_it(tmp_path, tokenizer_dir):
    network = r2r_network()
    (tmp_path / "all").mkdir()
    lean = convert("r2r", save_r2r(network, tmp_path / "router.pt"), tokenizer_dir)
    full = convert("r2r", save_r2r(network, tmp_path / "all/router.pt", has_embedding=True), tokenizer_dir)

    for file in ("router.safetensors", "router.json"):
        assert (lean / file).read_bytes() == (full / file).read_bytes()


@pytest.mark.parametrize("has_index", [False, True])
def test_co_llm_scores_are_the_sigmoid_of_the_defer_row_by_its_id(has_index, tmp_path, tokenizer_dir):
    layer = save_co_llm(tmp_path / "base", has_index=has_index)
    head = load_head(convert("co_llm", tmp_path / "base", tokenizer_dir), HIDDEN, embedding())

    torch.testing.assert_close(scores(head), torch.sigmoid((INPUTS.hidden @ layer.T)[:, DEFER_ID]))


def test_a_card_says_everything_about_its_head(tmp_path, tokenizer_dir):
    source = save_r2r(r2r_network(), tmp_path / "default_router.pt")
    out = convert("r2r", source, tokenizer_dir, "--share", "0.35")

    assert read_card(out) == HeadCard(
        algorithm="r2r",
        kind="r2r_classifier",
        small="tiny-small",
        large="tiny-large",
        tokenizer_sha=tokenizer_sha(tokenizer_dir),
        hidden_size=HIDDEN,
        topk=TOPK,
        cutoff=0.40596,
        operator=">=",
        share_at_cutoff=0.35,
        source="default_router.pt",
    )
    assert json.loads((out / "router.json").read_text())["schema"] == 1


@pytest.mark.parametrize(("more", "cutoff"), [((), 0.9), (("--cutoff", "0.7"), 0.7)])
def test_the_cutoff_can_be_chosen(more, cutoff, tmp_path, tokenizer_dir, capsys):
    out = convert("citer", save_citer(citer_network(), tmp_path / "c.pth"), tokenizer_dir, *more)

    assert read_card(out).cutoff == cutoff
    assert f"the small model leaves when score < {cutoff}" in capsys.readouterr().out


def changed(state: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """`state` with keys replaced (dots written as __), or left out where the change is None."""
    named = {key.replace("__", "."): value for key, value in changes.items()}
    return {key: value for key, value in {**state, **named}.items() if value is not None}


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"mlp__1__running_mean": None}, "mlp.1.running_mean: missing"),
        ({"mlp__0__weight": torch.zeros(3)}, "mlp.0.weight: shape [3] where 2 dimensions are needed"),
        ({"mlp__0__bias": torch.zeros(3)}, "mlp.0.bias: shape [3] where [20] is needed"),
        ({"linear__weight": torch.zeros(2, 10)}, "linear.weight: shape [2, 10] where [1, 10] is needed"),
        ({"linear__bias": torch.tensor([torch.nan])}, "linear.bias: holds numbers that are not finite"),
        ({"mlp__1__running_var": -torch.ones(20)}, "mlp.1.running_var: negative"),
        ({"mlp__7__weight": torch.zeros(1)}, "mlp.7.weight: unknown key"),
        ({"linear__bias": "zero"}, "linear.bias: a str where a tensor is needed"),
    ],
)
def test_a_citer_file_that_does_not_fit_is_refused_by_its_key(
    changes, complaint, tmp_path, tokenizer_dir, capsys
):
    source = tmp_path / "c.pth"
    torch.save(changed(CiterNetwork().state_dict(), **changes), source)

    assert f"{source}: {complaint}" in refusal("citer", source, tokenizer_dir, capsys)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"combined_projection__weight": torch.zeros(12, 20)}, "combined_projection.weight: too narrow for"),
        ({"backbone__blocks__1__mlp__3__bias": None}, "backbone.blocks.1.mlp.3.bias: missing"),
        ({"backbone__position_embedding": torch.zeros(4, 12)}, "backbone.position_embedding: unknown key"),
        ({"layer_norm_token__weight": torch.zeros(6)}, "layer_norm_token.weight: unknown key"),
        (
            {"token_embeddings__weight": torch.zeros(9, 5)},
            "token_embeddings.weight: shape [9, 5] where [9, 6]",
        ),
        (
            {
                "backbone__output_layer__1__weight": torch.zeros(2, 12),
                "backbone__output_layer__1__bias": torch.zeros(2),
            },
            "backbone.output_layer.1.weight: 2 outputs, only 1 or 3 are known",
        ),
        (
            {
                "backbone__blocks__0__mlp__3__weight": torch.zeros(9, 48),
                "backbone__blocks__0__mlp__3__bias": torch.zeros(9),
                "backbone__blocks__0__dim_change__weight": torch.zeros(8, 12),
                "backbone__blocks__0__dim_change__bias": torch.zeros(8),
            },
            "backbone.blocks.0.dim_change.weight: 8 outputs where 9 are needed",
        ),
    ],
)
def test_an_r2r_file_that_does_not_fit_is_refused_by_its_key(
    changes, complaint, tmp_path, tokenizer_dir, capsys
):
    saved = r2r_dict(r2r_network())
    source = tmp_path / "router.pt"
    torch.save({**saved, "state_dict": changed(saved["state_dict"], **changes)}, source)

    assert f"{source}: {complaint}" in refusal("r2r", source, tokenizer_dir, capsys)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"model_type": "LogitsClassifier"}, "model_type: 'LogitsClassifier' where 'HiddenStatesTokenLMHead"),
        ({"state_dict": {}}, "state_dict: missing or empty"),
        ({"common_args": {"threshold": None}}, "common_args.threshold: missing; give --cutoff"),
        ({"common_args": {"threshold": "high"}}, "common_args.threshold: 'high' is not a number"),
        ({"common_args": None}, "common_args.threshold: missing; give --cutoff"),
    ],
)
def test_an_r2r_file_of_another_make_is_refused(changes, complaint, tmp_path, tokenizer_dir, capsys):
    source = tmp_path / "router.pt"
    torch.save({**r2r_dict(r2r_network()), **changes}, source)

    assert f"{source}: {complaint}" in refusal("r2r", source, tokenizer_dir, capsys)


def test_a_file_of_the_other_format_is_refused(tmp_path, tokenizer_dir, capsys):
    state_dict = save_citer(citer_network(), tmp_path / "c.pth")
    router = save_r2r(r2r_network(), tmp_path / "router.pt")
    torch.save([1], tmp_path / "list.pt")

    assert "model_type: None where" in refusal("r2r", state_dict, tokenizer_dir, capsys)
    assert "model_type: a str where a tensor is needed" in refusal("citer", router, tokenizer_dir, capsys)
    assert "model_type: 'list' where" in refusal("r2r", tmp_path / "list.pt", tokenizer_dir, capsys)


class Payload:
    """Would write a file if it were ever unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("form", ["citer", "r2r"])
def test_a_file_that_would_run_code_runs_none(form, tmp_path, tokenizer_dir, capsys):
    source, trap = tmp_path / "evil.pt", tmp_path / "trapped"
    torch.save({"model_type": Payload(trap)}, source)
    complaint = refusal(form, source, tokenizer_dir, capsys)
    source.write_bytes(pickle.dumps(Payload(trap)))
    complaint_of_a_bare_pickle = refusal(form, source, tokenizer_dir, capsys)

    assert f"{source}: not a file of plain tensors (weights_only)" in complaint
    assert f"{source}: not a file of plain tensors (weights_only)" in complaint_of_a_bare_pickle
    assert not trap.exists()


@pytest.mark.parametrize("content", [b"", b"junk", b"PK\x03\x04junk"])
def test_a_file_that_is_nothing_is_refused(content, tmp_path, tokenizer_dir, capsys):
    source = tmp_path / "c.pth"
    source.write_bytes(content)

    assert "not a file of plain tensors" in refusal("citer", source, tokenizer_dir, capsys)
    assert "No such file" in refusal("citer", tmp_path / "absent.pth", tokenizer_dir, capsys)


def test_a_co_llm_folder_that_does_not_fit_is_refused(tmp_path, tokenizer_dir, capsys):
    base, layer = tmp_path / "base", save_co_llm(tmp_path / "base")
    file = base / "model.safetensors"

    def complaint() -> str:
        return refusal("co_llm", base, tokenizer_dir, capsys)

    save_file({"lm_head.weight": layer[:DEFER_ID].contiguous()}, file)
    assert f"lm_head.weight: {DEFER_ID} rows, none for token id {DEFER_ID}" in complaint()
    save_file({"model.embed_tokens.weight": layer}, file)
    assert "lm_head.weight: missing; a tied output layer has no defer row" in complaint()
    file.write_bytes(b"junk")
    assert f"{file}: not a readable safetensors file" in complaint()
    (base / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {}}))
    assert "weight_map.lm_head.weight: missing" in complaint()
    write_tokenizer(base, VOCAB)
    assert "tokenizer.json: 0 tokens '<|defer|>' where 1 is needed" in complaint()


@pytest.mark.parametrize(
    ("more", "complaint"), [(("--cutoff", "nan"), "cutoff: "), (("--share", "1.5"), "share_at_cutoff: ")]
)
def test_an_option_that_makes_no_sense_is_refused_by_name(more, complaint, tmp_path, tokenizer_dir, capsys):
    source = save_citer(citer_network(), tmp_path / "c.pth")

    assert complaint in refusal("citer", source, tokenizer_dir, capsys, *more)
