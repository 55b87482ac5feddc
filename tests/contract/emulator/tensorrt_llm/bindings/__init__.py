"""Enumerations of the C++ side."""

from __future__ import annotations

from enum import Enum


class DataType(Enum):
    HALF = "float16"
    FLOAT = "float32"
    BF16 = "bfloat16"
