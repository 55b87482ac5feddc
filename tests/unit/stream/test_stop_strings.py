"""Stop strings across cuts: nothing of a match leaves, everything else does (F04, F06)."""

import pytest

from router_backend.stream.stop_strings import StopStrings


def released(stops: tuple[str, ...], *texts: str) -> tuple[list[str], str, str]:
    """(what each text released, what the end released, what matched)."""
    matcher = StopStrings(stops)
    steps = [matcher.feed(text) for text in texts]
    return steps, matcher.finish(), matcher.matched


def test_a_match_across_tokens_and_models_never_leaks() -> None:
    assert released(("DEFGHIJ",), "abcDEF", "G", "HI", "Jk") == (["abc", "", "", ""], "", "DEFGHIJ")


def test_held_text_that_is_no_match_comes_out_complete() -> None:
    assert released(("DEFGHIJ",), "DEF", "G", "HI", "X") == (["", "", "", "DEFGHIX"], "", "")


def test_held_text_comes_out_at_the_end() -> None:
    assert released(("\n\n",), "a\n") == (["a"], "\n", "")


def test_the_match_that_ends_first_wins() -> None:
    assert released(("abcd", "bc"), "xabcd") == (["xa"], "", "bc")


def test_of_matches_that_end_together_the_longest_wins() -> None:
    assert released(("bc", "abc"), "xabc") == (["x"], "", "abc")


def test_a_self_overlapping_stop_string_is_found() -> None:
    assert released(("aab",), "aaa", "b") == (["a", ""], "", "aab")
    assert released(("abab",), "abaabab") == (["aba"], "", "abab")


def test_no_more_is_held_back_than_could_still_match() -> None:
    assert released((" Q:", "xy"), "a Q", "z", "x") == (["a", " Qz", ""], "x", "")


def test_nothing_is_released_after_a_match() -> None:
    matcher = StopStrings(("b",))
    assert [matcher.feed(text) for text in ("abc", "d")] == ["a", ""]


def test_text_passed_over_matches_nothing_but_may_begin_a_match() -> None:
    matcher = StopStrings(("aba", "xy"))
    assert [matcher.pass_over("cabab"), matcher.feed("z"), matcher.matched] == ["cab", "abz", ""]
    assert [matcher.pass_over("xyx"), matcher.feed("yz"), matcher.matched] == ["xy", "", "xy"]
    assert matcher.pass_over("q") == ""
    assert StopStrings(()).pass_over("q") == "q"


def test_without_stop_strings_text_passes() -> None:
    assert released((), "a", "b") == (["a", "b"], "", "")


def test_the_empty_stop_string_is_our_mistake() -> None:
    with pytest.raises(AssertionError):
        StopStrings(("a", ""))
