"""Finds a request's stop strings in its text, wherever tokens and models happen to cut it.

Matching is on text, character by character, so the result cannot depend on the cuts. Text that could
be the beginning of a stop string is held back, never more than the longest one less a character;
nothing of a matched stop string ever leaves. The match that ends first wins, the longest of equals.
"""

from __future__ import annotations


class _Matcher:
    """Knuth, Morris and Pratt's automaton for one stop string."""

    __slots__ = ("_fallback", "held", "stop")

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.held = 0
        """Characters of `stop` that the text ends with."""
        self._fallback = _fallbacks(stop)

    def advance(self, char: str) -> bool:
        """True when `char` completes the stop string."""
        held = self.held
        while held and self.stop[held] != char:
            held = self._fallback[held - 1]
        self.held = held + 1 if self.stop[held] == char else 0
        return self.held == len(self.stop)

    def step_back(self) -> None:
        """After a match that ends nothing: a later one may begin within it."""
        self.held = self._fallback[self.held - 1]


def _fallbacks(stop: str) -> list[int]:
    """For each prefix, the length of its longest proper suffix that is a prefix too."""
    table = [0] * len(stop)
    for index in range(1, len(stop)):
        size = table[index - 1]
        while size and stop[size] != stop[index]:
            size = table[size - 1]
        table[index] = size + 1 if stop[size] == stop[index] else 0
    return table


class StopStrings:
    """Holds back and matches for one request. `stops` must not contain the empty string."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        assert all(stops), stops
        self.matched = ""
        """The stop string that ended the text; nothing is released after it."""
        self._matchers = [_Matcher(stop) for stop in stops]
        self._held = ""

    def feed(self, text: str) -> str:
        """The part of the text so far that is safe to show and was not released before."""
        if self.matched or not self._matchers:
            return "" if self.matched else text
        for end, char in enumerate(text, 1):
            complete = [matcher.stop for matcher in self._matchers if matcher.advance(char)]
            if complete:
                self.matched = max(complete, key=len)
                return self._release(self._held + text[:end], len(self.matched), "")
        return self._shown(text)

    def pass_over(self, text: str) -> str:
        """As `feed`, for text in which no stop string may end; one that begins in it may end later."""
        if self.matched or not self._matchers:
            return "" if self.matched else text
        for char in text:
            for matcher in self._matchers:
                if matcher.advance(char):
                    matcher.step_back()
        return self._shown(text)

    def finish(self) -> str:
        """The text that was held back and turned out to be no stop string."""
        return self._release(self._held, 0, "")

    def _shown(self, text: str) -> str:
        """All but what could be the beginning of a stop string."""
        whole = self._held + text
        keep = max(matcher.held for matcher in self._matchers)
        return self._release(whole, keep, whole[len(whole) - keep :])

    def _release(self, whole: str, keep: int, held: str) -> str:
        self._held = held
        return whole[: len(whole) - keep]
