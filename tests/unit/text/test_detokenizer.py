"""Ids to text in steps: the joined steps are the whole, and no half character leaves (F01)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, pre_tokenizers

from python_backend.text.detokenizer import TokenBytes, byte_alphabet
from python_backend.text.tokenizer import ModelTokenizer
from router_backend.core.errors import ConfigError
from tests.unit.text.tokenizers_made_here import byte_fallback, byte_level, word_level

LEVEL, FALLBACK, WORDS = byte_level(), byte_fallback(), word_level()
KINDS = {"level": LEVEL, "fallback": FALLBACK, "words": WORDS}


def steps(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    source = ModelTokenizer(tokenizer, {}).text_source()
    return [*(source.step(token_id) for token_id in ids), source.finish()]


def ids_of(tokenizer: Tokenizer, *tokens: str) -> list[int]:
    return [tokenizer.token_to_id(token) for token in tokens]


def byte_ids(text: bytes) -> list[int]:
    return [FALLBACK.token_to_id(f"<0x{byte:02X}>") for byte in text]


@given(st.text(alphabet="ab é日本語😀👩\u200d\ufffd<>", max_size=20))
@settings(deadline=None)
@pytest.mark.parametrize("kind", ["level", "fallback"])
def test_joined_steps_are_the_librarys_text(kind: str, text: str) -> None:
    tokenizer = KINDS[kind]
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert "".join(steps(tokenizer, ids)) == tokenizer.decode(ids)


@given(st.lists(st.integers(0, LEVEL.get_vocab_size() - 1), max_size=24))
@settings(deadline=None)
def test_any_byte_level_tokens_give_the_librarys_text(ids: list[int]) -> None:
    assert "".join(steps(LEVEL, ids)) == LEVEL.decode(ids)


@given(st.lists(st.integers(0, WORDS.get_vocab_size() - 1), max_size=24))
def test_any_words_give_the_librarys_text(ids: list[int]) -> None:
    assert "".join(steps(WORDS, ids)) == WORDS.decode(ids)


@given(st.lists(st.sampled_from(["▁", "a", "b", "▁a", "▁b", "\ufffd", "<s>"]), max_size=24))
def test_any_marked_words_give_the_librarys_text(tokens: list[str]) -> None:
    ids = ids_of(FALLBACK, *tokens)
    assert "".join(steps(FALLBACK, ids)) == FALLBACK.decode(ids)


def test_a_character_leaves_with_its_last_byte() -> None:
    assert steps(FALLBACK, byte_ids("日😀".encode())) == ["", "", "日", "", "", "", "😀", ""]


def test_a_character_that_was_cut_off_gives_one_replacement_and_spoils_nothing() -> None:
    ids = [*byte_ids("日".encode()), *byte_ids("日".encode()[:2]), *ids_of(FALLBACK, "▁a")]
    assert steps(FALLBACK, ids) == ["", "", "日", "", "", "\ufffd a", ""]
    assert steps(FALLBACK, byte_ids("😀".encode()[:3])) == ["", "", "", "\ufffd"]


def test_a_replacement_character_that_the_model_wrote_is_kept() -> None:
    assert "".join(steps(FALLBACK, byte_ids("\ufffd\ufffd".encode()))) == "\ufffd\ufffd"
    assert "".join(steps(FALLBACK, ids_of(FALLBACK, "\ufffd", "\ufffd"))) == "\ufffd\ufffd"


def test_special_and_unknown_ids_have_no_text() -> None:
    assert steps(LEVEL, [*ids_of(LEVEL, "<s>", "<think>", "</s>"), 10**6]) == ["", "<think>", "", "", ""]


def test_the_alphabet_is_the_librarys() -> None:
    assert sorted(byte_alphabet()) == sorted(pre_tokenizers.ByteLevel.alphabet())
    assert sorted(byte_alphabet().values()) == list(range(256))


def test_a_decoder_that_would_split_characters_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"decoder: \['ByteLevel', 'Strip'\] together"):
        TokenBytes({"type": "Sequence", "decoders": [{"type": "ByteLevel"}, {"type": "Strip"}]})
