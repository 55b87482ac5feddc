"""The measured hot paths, compiled, each with a plain Python twin that defines correct.

Owns the choice between the two: the compiled twin where it was built, else the plain one, with one
warning on first use. Callers never see which one answers, except in time (about 60x).
`python setup.py build_ext --inplace` builds the compiled twin in a checkout; `pip install .` tries to.
"""

from __future__ import annotations

import warnings
from functools import lru_cache

from router_backend.native import chain_plain, stationary_plain
from router_backend.native.chain_spec import ChainGraph, ChainSpec, FloatArray, IntArray, OffsetArray

try:
    from router_backend.native import _chain as _compiled
except ImportError:
    _compiled = None  # type: ignore[assignment]

__all__ = [
    "ChainGraph",
    "ChainSpec",
    "FloatArray",
    "IntArray",
    "OffsetArray",
    "enumerate_chain",
    "is_compiled",
    "stationary_distribution",
]


def is_compiled() -> bool:
    """Whether the compiled twin was built and answers."""
    return _compiled is not None


@lru_cache(maxsize=1)
def _warn_once() -> None:
    warnings.warn(
        "native chain solver is not built; the Python twin answers, about 60 times slower",
        RuntimeWarning,
        stacklevel=3,
    )


def enumerate_chain(spec: ChainSpec) -> ChainGraph:
    """Reachable states and transitions of a chain; see `chain_plain.enumerate_chain`."""
    if _compiled is None:
        _warn_once()
        return chain_plain.enumerate_chain(spec)
    return ChainGraph(*_compiled.enumerate_chain(spec))


def stationary_distribution(
    row_start: OffsetArray, successor: IntArray, probability: FloatArray
) -> FloatArray:
    """pi of a chain, float64 [S]; see `stationary_plain.stationary_distribution`."""
    if _compiled is None:
        _warn_once()
        return stationary_plain.stationary_distribution(row_start, successor, probability)
    return _compiled.stationary_distribution(row_start, successor, probability)
