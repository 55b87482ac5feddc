"""What a process that was started says, up to the words that were waited for."""

from __future__ import annotations

from collections.abc import Iterable

from tools.triton_layout import ServerError


def said_until(words: str, lines: Iterable[str]) -> str:
    """All of it, the line that holds `words` included; ServerError with all of it if none does.

    `lines` are a process's output as they come. Only its end bounds the wait.
    """
    said: list[str] = []
    for line in lines:
        said.append(line)
        if words in line:
            return "".join(said)
    raise ServerError(f"it ended and did not say {words!r}:\n{''.join(said)}")
