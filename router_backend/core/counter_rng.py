"""Random numbers that depend on where they are used and on nothing else (R10).

A draw is keyed by (seed, position, attempt, model, tag), so a request's tokens never depend on the
batch it ran in, on parking, or on how often it moved. The mixer is splitmix64's finaliser
(Steele, Lea and Flood, OOPSLA 2014).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_BITS = 2.0**-53


def _mixed(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    words = (words ^ (words >> np.uint64(30))) * _MIX_1
    words = (words ^ (words >> np.uint64(27))) * _MIX_2
    return words ^ (words >> np.uint64(31))


def uniforms(*keys: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Uniform draws in [0, 1), shape [rows] of the broadcast integer `keys` (scalars or [rows])."""
    arrays = [np.asarray(key, dtype=np.int64) for key in keys]
    words = np.empty((len(keys), max(array.size for array in arrays)), dtype=np.uint64)
    for word, array in zip(words, arrays, strict=True):
        word[:] = array.view(np.uint64)
    words = _mixed(words + _GOLDEN)
    state = np.zeros(words.shape[1], dtype=np.uint64)
    for word in words:
        state = _mixed((state + _GOLDEN) ^ word)
    return (state >> np.uint64(11)).astype(np.float64) * _BITS
