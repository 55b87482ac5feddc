"""Python's records at Triton's levels."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from python_backend.server import log
from tests.fake_pb_utils import Logger


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    Logger.lines.clear()
    installed = log.install("small")
    yield installed
    installed.handlers = []
    installed.propagate = True


def test_every_module_logs_to_triton_under_the_models_name(logger: logging.Logger) -> None:
    child = logging.getLogger("python_backend.roles.door")
    child.error("bad %d", 1)
    child.warning("odd")
    child.info("so")
    logger.setLevel(logging.DEBUG)
    child.debug("detail")
    name = "small: python_backend.roles.door"
    assert Logger.lines == [
        ("error", f"{name}: bad 1"),
        ("warn", f"{name}: odd"),
        ("info", f"{name}: so"),
        ("verbose", f"{name}: detail"),
    ]


def test_installing_twice_logs_once(logger: logging.Logger) -> None:
    log.install("small").info("once")
    assert len(Logger.lines) == 1
