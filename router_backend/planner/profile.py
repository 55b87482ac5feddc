"""The two files a planner reads, as parsed JSON: a step profile and a pair of matrices.

Profile: one entry per model, the entry model first; `batch_max` may be left out.

    {"models": [{"name": "small", "batch_max": 64,
                 "steps": [{"batch": 1, "step_ms": 6.0}, {"batch": 8, "step_ms": 6.7}]},
                {"name": "large", "steps": [{"batch": 1, "step_ms": 27.9}]}]}

Matrices (arXiv:2610.12242, Appendix D); `commits` may be left out: then every token is kept.

    {"routing": [[0.65, 0.35], [1.0, 0.0]], "commits": [[1, 0], [1, 0]]}

Other keys are allowed beside these (where and how it was measured). Reading the file is the caller's work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from router_backend.core.errors import ConfigError
from router_backend.planner.latency import StepLatency
from router_backend.planner.routing import Matrix, Routing
from router_backend.planner.system import UNCAPPED, System


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """Measured step latency and largest batch of one model."""

    name: str
    latency: StepLatency
    batch_max: int = UNCAPPED


def parse_profile(document: object) -> tuple[ModelProfile, ...]:
    """The models of a profile; a `ConfigError` names the field that is wrong, such as
    `models[1].steps[0].step_ms`."""
    models = _list("models", _field("", document, "models"))
    return tuple(_model(f"models[{i}]", entry) for i, entry in enumerate(models))


def parse_routing(document: object) -> Routing:
    """The matrices of a routing algorithm."""
    routing = _matrix("routing", _field("", document, "routing"))
    given = document.get("commits") if isinstance(document, Mapping) else None
    keep_all = tuple((1.0,) * len(routing) for _ in routing)
    return Routing(routing, keep_all if given is None else _matrix("commits", given))


def profiled_system(profiles: tuple[ModelProfile, ...], routing: Routing) -> System:
    """The system of these models under this routing."""
    if len(profiles) != routing.model_count:
        raise ConfigError(f"models: the routing has {routing.model_count}, the profile {len(profiles)}")
    latencies = tuple(profile.latency for profile in profiles)
    return System(routing, latencies, tuple(profile.batch_max for profile in profiles))


def _model(path: str, entry: object) -> ModelProfile:
    name = entry.get("name", path) if isinstance(entry, Mapping) else path
    steps = _list(f"{path}.steps", _field(path, entry, "steps"))
    points = tuple(_point(f"{path}.steps[{i}]", step) for i, step in enumerate(steps))
    try:
        latency = StepLatency(points)
    except ConfigError as error:
        raise ConfigError(f"{path}.{error.args[0]}") from error
    given = entry.get("batch_max") if isinstance(entry, Mapping) else None
    batch_max = UNCAPPED if given is None else _whole(f"{path}.batch_max", given)
    return ModelProfile(str(name), latency, batch_max)


def _point(path: str, step: object) -> tuple[int, float]:
    batch = _whole(f"{path}.batch", _field(path, step, "batch"))
    return batch, _number(f"{path}.step_ms", _field(path, step, "step_ms"))


def _matrix(path: str, value: object) -> Matrix:
    rows = enumerate(_list(path, value))
    return tuple(
        tuple(_number(f"{path}[{i}][{j}]", cell) for j, cell in enumerate(_list(f"{path}[{i}]", row)))
        for i, row in rows
    )


def _field(path: str, entry: object, key: str) -> object:
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{path or 'document'}: an object is expected")
    if key not in entry:
        raise ConfigError(f"{path}.{key}: missing" if path else f"{key}: missing")
    value: object = entry[key]
    return value


def _list(path: str, value: object) -> list[object]:
    if not isinstance(value, list):
        raise ConfigError(f"{path}: a list is expected")
    return value


def _number(path: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigError(f"{path}: a number is expected, got {value!r}")
    return float(value)


def _whole(path: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{path}: a whole number of at least 1 is expected, got {value!r}")
    return value
