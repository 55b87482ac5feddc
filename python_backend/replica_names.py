"""How the subservers of a deployment are called: a model's first replica by its name, the next `<name>_2` ...

Judges names only. The invariant: in a deployment without a problem no two Triton models have one name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

NAME_LENGTH_MAX = 64
"""Of a socket's name (`transport/directory.py`)."""


def subserver_names(models: Sequence[tuple[str, int]]) -> tuple[str, ...]:
    """By number (`core/replicas.py`), of (name, how many replicas) of every model."""
    firsts = (name for name, _ in models)
    return (*firsts, *(f"{name}_{copy}" for name, count in models for copy in range(2, count + 1)))


def replica_problem(models: Sequence[tuple[str, int]], doors: Iterable[str]) -> str:
    """What is wrong with the names of further replicas, with the cure; empty if nothing is."""
    names = subserver_names(models)
    taken = {*names[: len(models)], *doors}
    for name in names[len(models) :]:
        if name in taken:
            return f"replicas: {name!r} would be a replica and another model: rename the model"
        if len(name) > NAME_LENGTH_MAX:
            return f"replicas: {name!r} is longer than {NAME_LENGTH_MAX} characters: shorten the model's name"
        taken.add(name)
    return ""
