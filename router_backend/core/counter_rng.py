"""Random numbers that depend on where they are used and on nothing else (R10).

A draw is keyed by (seed, position, attempt, model, tag), so a request's tokens never depend on the
batch it ran in, on parking, or on how often it moved. The mixer is splitmix64's finaliser
(Steele, Lea and Flood, OOPSLA 2014).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np
import numpy.typing as npt

_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB
_WORD = (1 << 64) - 1
_GOLDEN_WORD, _MIX_WORD_1, _MIX_WORD_2 = map(np.uint64, (_GOLDEN, _MIX_1, _MIX_2))
_BITS = 2.0**-53
FEW = 12
"""Rows for which plain numbers are faster than arrays: a draw is some sixty operations in a row."""


def uniforms(*keys: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Uniform draws in [0, 1), shape [rows] of the broadcast integer `keys` (scalars or [rows])."""
    arrays = [np.asarray(key, dtype=np.int64) for key in keys]
    words = np.empty((len(keys), max(array.size for array in arrays)), dtype=np.uint64)
    for word, array in zip(words, arrays, strict=True):
        word[:] = array.view(np.uint64)
    if words.shape[1] <= FEW:
        return np.array([_draw(row) for row in zip(*words.tolist(), strict=True)], dtype=np.float64)
    return _draws(words)


def _draws(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    words = _mixed_all(words + _GOLDEN_WORD)
    state = np.zeros(words.shape[1], dtype=np.uint64)
    for word in words:
        state = _mixed_all((state + _GOLDEN_WORD) ^ word)
    return (state >> np.uint64(11)).astype(np.float64) * _BITS


def _mixed_all(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    words = (words ^ (words >> np.uint64(30))) * _MIX_WORD_1
    words = (words ^ (words >> np.uint64(27))) * _MIX_WORD_2
    return words ^ (words >> np.uint64(31))


def _draw(words: Iterable[int]) -> float:
    """`_draws` of one row."""
    state = 0
    for word in words:
        state = _mixed((state + _GOLDEN & _WORD) ^ _first_mixed(word))
    return (state >> 11) * _BITS


@lru_cache(maxsize=1024)
def _first_mixed(word: int) -> int:
    """Seeds, models and tags come again at every step."""
    return _mixed(word + _GOLDEN & _WORD)


def _mixed(word: int) -> int:
    word = (word ^ (word >> 30)) * _MIX_1 & _WORD
    word = (word ^ (word >> 27)) * _MIX_2 & _WORD
    return word ^ (word >> 31)
