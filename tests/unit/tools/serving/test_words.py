"""A process is listened to until it says what was waited for, and no longer."""

from __future__ import annotations

import pytest

from tools.serving.words import said_until
from tools.triton_server import ServerError


def test_what_was_said_up_to_the_words_is_told_and_the_rest_is_left() -> None:
    lines = iter(["Starting\n", "Ready: small\n", "and on\n"])
    assert said_until("Ready:", lines) == "Starting\nReady: small\n"
    assert next(lines) == "and on\n"


def test_a_process_that_ends_without_the_words_is_quoted() -> None:
    with pytest.raises(ServerError, match="did not say 'Ready:':\nno room\n"):
        said_until("Ready:", ["no room\n"])
