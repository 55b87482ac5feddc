"""What a client discourages or forbids, checked by one rule at every door.

Ranges are those on which the engines agree (OpenAI's for penalties and biases). Must never look at models
or queues. Every message names the field, the value and the cure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

from python_backend.loops.base import Ask
from router_backend.core.errors import RequestError
from router_backend.core.request import Sampling

PENALTY_MAX = 2.0
BIAS_MAX = 100.0
BIASES_MAX = 1024
BAD_WORDS_MAX = 128
BAD_WORD_CHARS_MAX = 256
BAD_WORD_TOKENS_MAX = 256

Runs = tuple[tuple[int, ...], ...]


def read_penalties(ask: Ask, sampling: Sampling) -> Sampling:
    """`sampling` with the ask's penalties and its least probability."""
    min_p = _within("min_p", ask.min_p, 0.0, 1.0, 0.0)
    repetition = ask.repetition_penalty
    if repetition is not None and not 0.0 < repetition <= PENALTY_MAX:
        raise RequestError(
            f"repetition_penalty: {repetition} must be above 0 and at most {PENALTY_MAX:g} (1 = off)"
        )
    return replace(
        sampling,
        min_p=min_p,
        repetition_penalty=1.0 if repetition is None else repetition,
        presence_penalty=_signed("presence_penalty", ask.presence_penalty),
        frequency_penalty=_signed("frequency_penalty", ask.frequency_penalty),
    )


def read_min_tokens(asked: int | None, max_tokens: int) -> int:
    """How many tokens an answer of at most `max_tokens` must have before it may end by itself."""
    least = 0 if asked is None else asked
    if not 0 <= least <= max_tokens:
        raise RequestError(f"min_tokens: {least} must be from 0 (off) to max_tokens, which is {max_tokens}")
    return least


def read_logit_bias(biases: tuple[tuple[int, float], ...], vocab_size: int) -> tuple[tuple[int, float], ...]:
    """Sorted by token id, each id once."""
    if len(biases) > BIASES_MAX:
        raise RequestError(f"logit_bias: {len(biases)} entries, at most {BIASES_MAX} are allowed")
    rising = tuple(sorted(biases))
    for token, bias in rising:
        if not 0 <= token < vocab_size:
            raise RequestError(f"logit_bias: {token} is no token id: use 0..{vocab_size - 1}")
        _within(f"logit_bias[{token}]", bias, -BIAS_MAX, BIAS_MAX, 0.0)
    twice = next((token for (token, _), (other, _) in pairwise(rising) if token == other), None)
    if twice is not None:
        raise RequestError(f"logit_bias: {twice} is there twice: give each token id once")
    return rising


def read_bad_words(words: tuple[str, ...], spell: Callable[[str], Runs]) -> Runs:
    """Every run of token ids by which `spell` can write one of `words`, each once, in order."""
    if len(words) > BAD_WORDS_MAX:
        raise RequestError(f"bad_words: {len(words)} words, at most {BAD_WORDS_MAX} are allowed")
    for word in words:
        if not word:
            raise RequestError('bad_words: "" is in every text: leave it out')
        if len(word) > BAD_WORD_CHARS_MAX:
            raise RequestError(
                f"bad_words: a word of {len(word)} characters; at most {BAD_WORD_CHARS_MAX} may be"
            )
    return tuple(dict.fromkeys(run for word in words for run in spell(word)))


def read_bad_ids(runs: Runs, vocab_size: int) -> Runs:
    """Bad words that the client has turned into token ids itself."""
    if len(runs) > BAD_WORDS_MAX:
        raise RequestError(f"bad_words_list: {len(runs)} words, at most {BAD_WORDS_MAX} are allowed")
    for run in runs:
        if len(run) > BAD_WORD_TOKENS_MAX:
            raise RequestError(
                f"bad_words_list: a word of {len(run)} tokens; at most {BAD_WORD_TOKENS_MAX} may be"
            )
        wrong = next((token for token in run if not 0 <= token < vocab_size), None)
        if wrong is not None:
            raise RequestError(f"bad_words_list: {wrong} is no token id: use 0..{vocab_size - 1}")
    return runs


def _signed(field: str, value: float | None) -> float:
    return _within(field, value, -PENALTY_MAX, PENALTY_MAX, 0.0)


def _within(field: str, value: float | None, least: float, most: float, default: float) -> float:
    """`value`, or `default` where the client gave none; not a number fits no range."""
    if value is None:
        return default
    if not least <= value <= most:
        raise RequestError(f"{field}: {value} must be from {least:g} to {most:g} ({default:g} = off)")
    return value
