"""Weights by key, each taken once with the shape that it must have.

Invariant: whatever is refused (missing, misshapen, not finite, left over) is named by its key.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from router_backend.core.errors import ConfigError


class NamedTensors:
    """`source` begins every complaint; the tensors come out as float32."""

    def __init__(self, tensors: Mapping[str, Tensor], source: str) -> None:
        self.source = source
        self._tensors = dict(tensors)

    def __contains__(self, key: str) -> bool:
        return key in self._tensors

    def shape(self, key: str, dims: int) -> tuple[int, ...]:
        """The shape of a tensor with `dims` dimensions; sizes are read from here, never from a config."""
        if key not in self._tensors:
            raise ConfigError(f"{self.source}: {key}: missing")
        shape = tuple(self._tensors[key].shape)
        if len(shape) != dims or 0 in shape:
            raise ConfigError(f"{self.source}: {key}: shape {list(shape)} where {dims} dimensions are needed")
        return shape

    def take(self, key: str, *shape: int) -> Tensor:
        """The tensor, which is not taken twice."""
        found = self.shape(key, len(shape))
        if found != shape:
            raise ConfigError(f"{self.source}: {key}: shape {list(found)} where {list(shape)} is needed")
        tensor = self._tensors.pop(key).float()
        if not bool(tensor.isfinite().all()):
            raise ConfigError(f"{self.source}: {key}: holds numbers that are not finite")
        return tensor

    def drop(self, key: str) -> None:
        """A key that means nothing at inference, if it is there."""
        self._tensors.pop(key, None)

    def refuse_rest(self) -> None:
        """Raise ConfigError for a key that nobody took: the network has a part that is not known here."""
        if self._tensors:
            raise ConfigError(f"{self.source}: {min(self._tensors)}: unknown key")
