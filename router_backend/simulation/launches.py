"""Batches that ran, as data: when, where, why, for how long and of which requests.

What a timeline is drawn from, whether a simulation or a live server wrote it.
"""

from __future__ import annotations

from typing import NamedTuple

from router_backend.core.request import RequestId
from router_backend.scheduler.batch import LaunchReason


class LaunchRecord(NamedTuple):
    """One batch; times in seconds."""

    at: float
    model: int
    reason: LaunchReason
    step_s: float
    request_ids: tuple[RequestId, ...]
