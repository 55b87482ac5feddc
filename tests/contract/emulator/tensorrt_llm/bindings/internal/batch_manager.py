"""Enumerations of the batch manager."""

from __future__ import annotations

from enum import Enum


class CacheType(Enum):
    SELF = 0
