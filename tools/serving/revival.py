"""When to take a dead model out of the server, and when to put it back.

Pure: decided by what was seen and the time that is given. Triton 2.51 never restarts a dead Python process
and keeps calling its model ready; unloading makes readiness tell the truth, loading again brings it back.
Invariant: between two attempts to load one model lies a growing back-off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

BACKOFF_S_FIRST = 1.0
BACKOFF_S_MAX = 60.0
BACKOFF_GROWTH = 2.0


class Sight(Enum):
    """What one look at a model showed."""

    UP = "up"
    SILENT = "silent"
    """Its process is there but its peers do not hear it."""
    GONE = "gone"
    """Its process is not there."""


class Step(Enum):
    """What to do about a model now."""

    UNLOAD = "unload"
    LOAD = "load"


@dataclass(slots=True)
class _Patient:
    unwell_since: float | None = None
    load_at: float | None = None
    """Set while the model is unloaded."""
    backoff_s: float = BACKOFF_S_FIRST
    well_since: float | None = None

    def is_due(self, sight: Sight, now: float, silent_s_max: float) -> bool:
        """Whether the model must be taken out: at once if its process is gone, after a while if silent."""
        if sight is Sight.UP:
            self.unwell_since = None
            return False
        self.unwell_since = now if self.unwell_since is None else self.unwell_since
        return sight is Sight.GONE or now - self.unwell_since >= silent_s_max


@dataclass(slots=True)
class Revival:
    """One server's models. Call `steps` after every look, `loaded` or `refused` after every LOAD."""

    silent_s_max: float = 10.0
    _patients: dict[str, _Patient] = field(default_factory=dict)

    def steps(self, seen: Mapping[str, Sight], now: float) -> list[tuple[str, Step]]:
        """What to do now, by model name, in the order given."""
        found = []
        for name, sight in seen.items():
            step = self._step(self._patients.setdefault(name, _Patient()), sight, now)
            if step is not None:
                found.append((name, step))
        return found

    def loaded(self, name: str, now: float) -> None:
        """The model is back; the back-off is forgotten once it has stayed that long."""
        patient = self._patients[name]
        patient.load_at = patient.unwell_since = None
        patient.well_since = now

    def refused(self, name: str, now: float) -> None:
        """The model could not be loaded: wait longer before the next attempt."""
        self._postpone(self._patients[name], now)

    def out(self) -> tuple[str, ...]:
        """The models that are unloaded at present."""
        return tuple(name for name, patient in self._patients.items() if patient.load_at is not None)

    def _step(self, patient: _Patient, sight: Sight, now: float) -> Step | None:
        if patient.load_at is not None:
            return Step.LOAD if now >= patient.load_at else None
        if patient.is_due(sight, now, self.silent_s_max):
            self._postpone(patient, now)
            return Step.UNLOAD
        self._forgive(patient, sight, now)
        return None

    def _postpone(self, patient: _Patient, now: float) -> None:
        patient.load_at = now + patient.backoff_s
        patient.backoff_s = min(patient.backoff_s * BACKOFF_GROWTH, BACKOFF_S_MAX)
        patient.well_since = None

    def _forgive(self, patient: _Patient, sight: Sight, now: float) -> None:
        if (
            sight is Sight.UP
            and patient.well_since is not None
            and now - patient.well_since >= patient.backoff_s
        ):
            patient.backoff_s, patient.well_since = BACKOFF_S_FIRST, None
