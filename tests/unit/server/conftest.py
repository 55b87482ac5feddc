"""These modules import Triton's API, which exists only inside its processes."""

from __future__ import annotations

from tests import fake_pb_utils

fake_pb_utils.install()
