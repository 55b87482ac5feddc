"""What custom operators look up while a model runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

current: list[dict[str, Any]] = []


@contextlib.contextmanager
def model_extra_attrs(attrs: dict[str, Any]) -> Iterator[None]:
    current.append(attrs)
    try:
        yield
    finally:
        current.pop()
