"""Router heads of the three published formats for one tiny pair, and what they say of a step.

The networks are those of the published code (`tests.published_routers`) in float64; the system loads what
`tools.convert_router` makes of them, in float32.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel

from python_backend.runner.heads.card import HeadCard, write_card
from python_backend.runner.heads.vocabulary import tokenizer_sha
from tests import reference
from tests.published_routers import (
    HIDDEN,
    TOPK,
    VOCAB,
    CiterNetwork,
    R2RNetwork,
    R2RShape,
    randomised,
    save_citer,
    save_r2r,
)
from tests.tiny_models import TinyModel, tiny_model_dir
from tools.convert_router import main as convert

DEFER_ROW = 11
OPERATORS = {"citer": "<", "co_llm": ">"}


@cache
def network(model: TinyModel) -> PreTrainedModel:
    return reference.load(tiny_model_dir(model), torch.float64)


@cache
def citer() -> CiterNetwork:
    made = randomised(CiterNetwork(HIDDEN)).double()
    assert isinstance(made, CiterNetwork)
    return made


@cache
def r2r(small: TinyModel) -> R2RNetwork:
    made = randomised(R2RNetwork(R2RShape(embedding=HIDDEN)))
    assert isinstance(made, R2RNetwork)
    with torch.no_grad():
        made.token_embeddings.weight.copy_(network(small).get_input_embeddings().weight[:VOCAB])
        made.backbone.output_layer[1].bias.fill_(-1.6)
    return made.double()


@torch.inference_mode()
def confidence(hidden: Tensor) -> Tensor:
    """[R] of hidden [R, HIDDEN]: CITER's score."""
    return citer()(hidden)


@torch.inference_mode()
def divergence(small: TinyModel, hidden: Tensor, tokens: Tensor, logits: Tensor) -> Tensor:
    """[R]: R2R's probability, of the sampled tokens [R] and raw logits [R, VOCAB]."""
    return r2r(small)(hidden, tokens, logits.topk(TOPK).values)


@torch.inference_mode()
def deferral(small: TinyModel, hidden: Tensor) -> Tensor:
    """[R]: Co-LLM's probability."""
    return torch.sigmoid(hidden @ network(small).lm_head.weight[DEFER_ROW])


def write_heads(folder: Path, small: TinyModel) -> dict[str, str]:
    """The three heads in `folder`, by name, as a deployment names them."""
    save_citer(citer().float(), folder / "citer.pth")
    save_r2r(r2r(small).float(), folder / "r2r.pt")
    citer().double()
    r2r(small).double()
    names = ("--small", "s", "--large", "l", "--tokenizer", str(tiny_model_dir(small)))
    for form, source, *more in (("citer", "citer.pth", "--cutoff", "0.2"), ("r2r", "r2r.pt")):
        assert convert([form, str(folder / source), str(folder / form), *names, *more]) == 0
    row = network(small).lm_head.weight[DEFER_ROW].detach().float().clone()
    write_head(folder / "defer", small, ("co_llm", "defer_row"), {"row": row})
    return {"citer": "citer", "r2r": "r2r", "co_llm": "defer"}


def write_head(folder: Path, small: TinyModel, kind: tuple[str, str], tensors: dict[str, Tensor]) -> None:
    """A head of (algorithm, kind) made by hand."""
    folder.mkdir()
    fields = {"algorithm": kind[0], "kind": kind[1], "small": "s", "large": "l", "hidden_size": HIDDEN}
    sha = tokenizer_sha(tiny_model_dir(small))
    card = {**fields, "tokenizer_sha": sha, "cutoff": 0.5, "operator": OPERATORS[kind[0]]}
    write_card(folder, HeadCard.model_validate(card))
    save_file(tensors, folder / "router.safetensors")
