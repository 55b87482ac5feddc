"""The card of an artefact: what is written is read, what makes no sense is refused by its key."""

from __future__ import annotations

import json
from typing import Any

import pytest

from python_backend.runner.heads.card import HeadCard, parse_card, read_card, write_card
from router_backend.core.errors import ConfigError

FIELDS: dict[str, Any] = {
    "schema": 1,
    "algorithm": "citer",
    "kind": "citer_mlp",
    "small": "Qwen2.5-1.5B",
    "large": "Qwen2.5-72B",
    "tokenizer_sha": "ab" * 32,
    "hidden_size": 1536,
    "hidden_point": "post_final_norm",
    "topk": 0,
    "logits": "raw_sorted",
    "cutoff": 0.9,
    "operator": "<",
    "unit": "probability",
    "share_at_cutoff": None,
    "source": "mlp_iter_0123.pth",
}
CARD = HeadCard.model_validate(FIELDS)


def test_a_card_is_read_as_it_was_written(tmp_path):
    write_card(tmp_path, CARD)

    assert read_card(tmp_path) == CARD
    assert json.loads((tmp_path / "router.json").read_text()) == FIELDS


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"schema": 2}, "schema: Input should be 1"),
        ({"operator": ">="}, "operator: citer compares with <"),
        ({"algorithm": "r2r", "operator": ">"}, "operator: r2r compares with >="),
        ({"algorithm": "co_llm", "operator": "<"}, "operator: co_llm compares with >"),
        ({"topk": 100}, "topk: 100 does not fit kind citer_mlp"),
        ({"kind": "r2r_classifier"}, "topk: 0 does not fit kind r2r_classifier"),
        ({"hidden_point": "embedding"}, "hidden_point: Input should be 'post_final_norm'"),
        ({"tokenizer_sha": "short"}, "tokenizer_sha: String should match"),
        ({"hidden_size": 0}, "hidden_size: Input should be greater than or equal to 1"),
        ({"cutoff": "NaN"}, "cutoff: Input should be a finite number"),
        ({"share_at_cutoff": 1.5}, "share_at_cutoff: Input should be less than or equal to 1"),
        ({"treshold": 0.5}, "treshold: Extra inputs are not permitted"),
        ({"unit": "nats"}, "unit: Input should be 'probability'"),
    ],
)
def test_a_field_that_makes_no_sense_is_refused_by_name(changes, complaint):
    with pytest.raises(ConfigError, match=r"here.json: ") as refused:
        parse_card(json.dumps({**FIELDS, **changes}), "here.json")
    assert complaint in str(refused.value)


def test_a_file_that_is_no_card_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"here.json: file: Invalid JSON"):
        parse_card("{", "here.json")
    with pytest.raises(ConfigError, match=r"router.json: No such file or directory: cannot read"):
        read_card(tmp_path)


def test_a_head_is_not_used_with_another_vocabulary():
    CARD.check_tokenizer("ab" * 32)
    with pytest.raises(
        ConfigError, match=r"tokenizer_sha abababababab is not the served model's cdcdcdcdcdcd"
    ):
        CARD.check_tokenizer("cd" * 32)
