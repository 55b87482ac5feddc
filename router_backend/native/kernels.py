"""The engine's compiled loops, where they were built: products with packed weights, paged attention.

Owns the choice: `compiled()` is the module, or None with one warning, and then an engine takes what its
own library offers. `kernels_plain` defines what each loop must answer.
"""

from __future__ import annotations

import warnings
from functools import lru_cache
from types import ModuleType

from router_backend.native.kernels_plain import LAYOUT

try:
    from router_backend.native import _kernels as _compiled
except ImportError:
    _compiled = None  # type: ignore[assignment]


def compiled() -> ModuleType | None:
    """The module of `_kernels.pyi`, or None where it was not built."""
    if getattr(_compiled, "LAYOUT", None) == LAYOUT:
        return _compiled
    # An older build may lack functions, and would take weights of the new layout for those of its own.
    _warn_once("not built" if _compiled is None else "of an older version")
    return None


@lru_cache(maxsize=1)
def _warn_once(state: str) -> None:
    warnings.warn(
        f"native kernels are {state}; a CPU engine decodes two to three times slower. To build them: "
        "python setup.py build_ext --inplace",
        RuntimeWarning,
        stacklevel=3,
    )
