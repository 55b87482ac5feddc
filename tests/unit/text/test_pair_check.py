"""Which models may write one text together."""

from __future__ import annotations

from typing import Any

import pytest

from python_backend.text.pair_check import ModelVocabulary, shared_vocabulary
from python_backend.text.tokenizer import ModelTokenizer
from router_backend.core.errors import ConfigError
from tests.unit.text.tokenizers_made_here import byte_fallback, byte_level

WORDS = {index: f"w{index}".encode() for index in range(10)}


def vocabulary(name: str, **changes: Any) -> ModelVocabulary:
    fields = {"tokens": WORDS, "special": frozenset({0, 9}), "rows": 12, "eos_ids": frozenset({9})}
    return ModelVocabulary(name, **{**fields, **changes})


def test_padding_rows_of_any_number_are_accepted_and_cut_off() -> None:
    assert shared_vocabulary([vocabulary("a", rows=10), vocabulary("b", rows=64)]) == 10


def test_ids_that_only_the_larger_vocabulary_has_are_cut_off() -> None:
    more = WORDS | {10: b"tool", 11: b"call"}
    assert shared_vocabulary([vocabulary("a"), vocabulary("b", tokens=more), vocabulary("c")]) == 10


def test_an_output_layer_without_rows_for_its_last_tokens_cannot_write_them() -> None:
    ends = {"eos_ids": frozenset({2})}
    assert shared_vocabulary([vocabulary("a", rows=7, **ends), vocabulary("b", **ends)]) == 7


def test_the_first_differing_ids_are_named() -> None:
    other = WORDS | dict.fromkeys(range(4, 9), b"\xffx")
    with pytest.raises(ConfigError) as refused:
        shared_vocabulary([vocabulary("a"), vocabulary("b"), vocabulary("c", tokens=other)])
    assert str(refused.value.args[0]) == (
        "models 'a' and 'c' do not share a vocabulary: id 4 is 'w4' and '\\\\xffx'; id 5 is 'w5' and "
        "'\\\\xffx'; id 6 is 'w6' and '\\\\xffx': choose models with one tokenizer"
    )


def test_a_hole_in_one_vocabulary_is_a_difference() -> None:
    holed = {index: token for index, token in WORDS.items() if index != 3}
    with pytest.raises(ConfigError, match="id 3 is 'w3' and no token: choose"):
        shared_vocabulary([vocabulary("a"), vocabulary("b", tokens=holed)])


def test_a_token_that_is_special_to_one_model_only_is_a_difference() -> None:
    with pytest.raises(ConfigError, match="id 9, 'w9', is a special token of 'b' only"):
        shared_vocabulary([vocabulary("a", special=frozenset({0})), vocabulary("b")])


def test_a_model_that_could_never_end_is_refused() -> None:
    longer = vocabulary("b", tokens=WORDS | {10: b"end"}, eos_ids=frozenset({10}))
    with pytest.raises(ConfigError, match=r"model 'b': its end tokens \[10\] are not below 10"):
        shared_vocabulary([vocabulary("a"), longer])
    endless = vocabulary("b", eos_ids=frozenset())
    assert shared_vocabulary([vocabulary("a"), endless]) == 10


def test_tokens_are_compared_as_the_bytes_that_they_stand_for() -> None:
    level, fallback = byte_level(), byte_fallback()
    tokens = ModelTokenizer(level, {}).tokens()

    assert len(tokens) == level.get_vocab_size(with_added_tokens=True)
    assert tokens[level.token_to_id("\u0120hello")] == b" hello"
    assert tokens[level.token_to_id("<think>")] == b"<think>"
    assert ModelTokenizer(fallback, {}).tokens()[fallback.token_to_id("<0x0A>")] == b"\n"
