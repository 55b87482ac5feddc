"""How Python is set in a process that serves: few garbage collections, quick changes between threads.

Belongs to the process, so the composition root of a door or a bench calls it once, when everything is built.
"""

from __future__ import annotations

import gc
import sys

SWITCH_INTERVAL_S = 0.0005
"""A tenth of Python's default: one busy thread holds up responses and hand-offs by this much at most."""
GARBAGE_OBJECTS = 50_000
"""New objects between two garbage collections. At Python's 700 every other step would end with one, on cold
caches; what a step leaves behind is freed by its reference counts."""


def settle() -> None:
    """What exists now is never looked through for garbage again."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.freeze()
    gc.set_threshold(GARBAGE_OBJECTS)
