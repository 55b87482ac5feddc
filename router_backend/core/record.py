"""A record: frozen data that is made, packed and read while a hand-off waits.

Effects and messages are records, so that compiled code builds, packs and reads them: behind a step the
caches are cold, and a frozen dataclass then takes several times as long. Must never have behaviour of its
own. The invariant: a record never changes, and two of one class with equal fields are equal.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

AnyRecord = TypeVar("AnyRecord", bound="Record")


class Record(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Base of all; defaults do not travel. None can reach itself, so no garbage collector looks at it."""

    def replaced(self: AnyRecord, **changes: Any) -> AnyRecord:
        """The same record but for these fields; TypeError for one that it has not."""
        return msgspec.structs.replace(self, **changes)
