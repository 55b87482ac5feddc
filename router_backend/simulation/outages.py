"""Who is away, what happens because of it, and what each process believes of the others.

The nouns of `MortalCluster`; they decide nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from router_backend.core.request import Request, RequestKey
from router_backend.handoff.farewells import Farewells
from router_backend.simulation.cluster import Delivery, StepDone
from router_backend.stream.lives import LossPolicy


class Outage(NamedTuple):
    """Subserver number `model` is away from `at` on for `lasts_s` seconds: killed, or only stopped."""

    model: int
    at: float
    lasts_s: float
    is_death: bool


@dataclass(frozen=True, slots=True)
class Faults:
    """Outages of one model do not overlap; others notice one after `notice_s` and up to as much more."""

    loss: LossPolicy
    outages: tuple[Outage, ...]
    notice_s: float = 2.0


class Fall(NamedTuple):
    outage: Outage


class Rise(NamedTuple):
    outage: Outage


class Notice(NamedTuple):
    observer: int
    model: int
    falls: int


class Letter(NamedTuple):
    source: int
    births: tuple[int, int]
    """Of the processes that wrote it and that it was written to."""
    inner: Delivery


class Late(NamedTuple):
    request: Request


class Again(NamedTuple):
    key: RequestKey


@dataclass(slots=True)
class Body:
    """One model's process, as it really is."""

    births: int = 0
    falls: int = 0
    fell_at: float = 0.0
    is_dead: bool = False
    asleep: list[Letter | StepDone] = field(default_factory=list)
    """What happened to it while it slept."""


@dataclass(slots=True)
class View:
    """What one process believes of the others."""

    births: list[int]
    lost: set[int] = field(default_factory=set)
    farewells: Farewells = field(default_factory=Farewells)
