"""Reading a policy's parameters: known names, right types, finite values, or an error that says so."""

from __future__ import annotations

import math
from collections.abc import Collection

from router_backend.core.errors import ConfigError
from router_backend.core.request import PolicySpec


class Options:
    """The parameters of one `PolicySpec`; every getter checks, `known` refuses what nobody reads."""

    def __init__(self, spec: PolicySpec, known: Collection[str]) -> None:
        self._policy = spec.name
        self._values = spec.options()
        unknown = sorted(self._values.keys() - set(known))
        if unknown:
            names = ", ".join(sorted(known))
            raise ConfigError(f"{spec.name}.{unknown[0]}: unknown parameter; known are {names}")

    def number(self, name: str, default: float) -> float:
        """A finite or infinite number, never NaN."""
        value = self._values.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
            raise ConfigError(f"{self._policy}.{name}: {value!r} is not a number")
        return float(value)

    def count(self, name: str, default: int) -> int:
        """A whole number of at least 1."""
        value = self._values.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ConfigError(f"{self._policy}.{name}: {value!r} is not a whole number of at least 1")
        return value

    def text(self, name: str, default: str) -> str:
        value = self._values.get(name, default)
        if not isinstance(value, str):
            raise ConfigError(f"{self._policy}.{name}: {value!r} is not a text")
        return value

    def choice(self, name: str, default: str, allowed: Collection[str]) -> str:
        value = self._values.get(name, default)
        if value not in allowed:
            raise ConfigError(f"{self._policy}.{name}: {value!r} is not one of {', '.join(sorted(allowed))}")
        return str(value)
