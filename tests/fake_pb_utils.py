"""Triton's Python API as far as `python_backend.server` uses it, recording what it is told."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

NAME = "triton_python_backend_utils"
TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1


class TritonModelException(Exception):
    pass


@dataclass(frozen=True)
class TritonError:
    message: str
    code: int

    INTERNAL = 1
    INVALID_ARG = 3
    UNAVAILABLE = 4
    ALREADY_EXISTS = 6
    CANCELLED = 7


@dataclass(frozen=True)
class Tensor:
    named: str
    array: Any

    def name(self) -> str:
        return self.named

    def as_numpy(self) -> Any:
        return self.array


@dataclass(frozen=True)
class InferenceResponse:
    output_tensors: list[Tensor] = field(default_factory=list)
    error: TritonError | None = None

    def values(self) -> dict[str, Any]:
        return {tensor.named: np.asarray(tensor.array).tolist() for tensor in self.output_tensors}


@dataclass
class ResponseSender:
    sent: list[tuple[InferenceResponse | None, int]] = field(default_factory=list)
    cancelled: bool = False
    failures: list[str] = field(default_factory=list)
    """Messages with which the next sends fail."""

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        assert not any(flags for _, flags in self.sent), "a response after FINAL"
        if self.failures:
            raise TritonModelException(self.failures.pop(0))
        self.sent.append((response, flags))

    def is_cancelled(self) -> bool:
        return self.cancelled


@dataclass
class InferenceRequest:
    arrays: dict[str, Any]
    id: str = ""
    parameters_json: str = ""
    timeout_us: int = 0
    outputs: tuple[str, ...] = ()
    sender: ResponseSender = field(default_factory=ResponseSender)
    cancelled: bool = False

    def inputs(self) -> list[Tensor]:
        return [Tensor(name, array) for name, array in self.arrays.items()]

    def request_id(self) -> str:
        return self.id

    def parameters(self) -> str:
        return self.parameters_json

    def timeout(self) -> int:
        return self.timeout_us

    def requested_output_names(self) -> set[str]:
        return set(self.outputs)

    def get_response_sender(self) -> ResponseSender:
        return self.sender

    def is_cancelled(self) -> bool:
        return self.cancelled


class Metric:
    """Knows which threads touched it: two would abort a real server."""

    def __init__(self, labels: dict[str, str]) -> None:
        self.labels = labels
        self.value = 0.0
        self.threads: set[int] = set()

    def increment(self, by: float) -> None:
        assert by >= 0, by
        self._touch(self.value + by)

    def set(self, value: float) -> None:
        self._touch(value)

    def _touch(self, value: float) -> None:
        self.threads.add(threading.get_ident())
        self.value = value


class MetricFamily:
    COUNTER = "counter"
    GAUGE = "gauge"
    made: ClassVar[list[MetricFamily]] = []

    def __init__(self, name: str, description: str, kind: str) -> None:
        self.name = name
        self.kind = kind
        self.metrics: list[Metric] = []
        self.made.append(self)

    def Metric(self, labels: dict[str, str]) -> Metric:
        self.metrics.append(Metric(labels))
        return self.metrics[-1]


class Logger:
    lines: ClassVar[list[tuple[str, str]]] = []

    @classmethod
    def log_error(cls, text: str) -> None:
        cls.lines.append(("error", text))

    @classmethod
    def log_warn(cls, text: str) -> None:
        cls.lines.append(("warn", text))

    @classmethod
    def log_info(cls, text: str) -> None:
        cls.lines.append(("info", text))

    @classmethod
    def log_verbose(cls, text: str) -> None:
        cls.lines.append(("verbose", text))


def install() -> ModuleType:
    """Take the place of Triton's module in this process."""
    return sys.modules.setdefault(NAME, sys.modules[__name__])
