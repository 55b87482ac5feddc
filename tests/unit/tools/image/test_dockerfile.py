"""Reading a Dockerfile: continued lines, flags, stages, variables, and what is refused."""

from __future__ import annotations

import pytest

from tools.image.dockerfile import DockerfileError, Instruction, expanded, instructions, pairs, parsed

TWO_STAGES = """
# syntax=docker/dockerfile:1
ARG SUITE=bookworm
FROM debian:${SUITE}-slim AS build
RUN first \\
 # a comment inside
 && second
FROM debian:${SUITE}-slim
COPY --from=build --chown=1:1 /a /b
"""


def test_stages_hold_their_instructions_and_arguments_fill_their_bases() -> None:
    file = parsed(TWO_STAGES, {"SUITE": "trixie"})

    assert [(stage.base, stage.name) for stage in file.stages] == [
        ("debian:trixie-slim", "build"),
        ("debian:trixie-slim", ""),
    ]
    assert file.stages[0].instructions == (Instruction("RUN", "first && second", (), 5),)
    assert file.stages[1].instructions == (
        Instruction("COPY", "/a /b", (("from", "build"), ("chown", "1:1")), 9),
    )


def test_an_instruction_is_shown_as_it_was_written() -> None:
    (item,) = instructions("COPY --from=build /a /b")
    assert (str(item), item.flag("from"), item.flag("chown")) == ("COPY --from=build /a /b", "build", "")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("ADD a b", "line 1: ADD: not one of ARG, CMD, COPY"),
        ("RUN a", "no FROM"),
        ("ENV A=b\nFROM x", "line 1: ENV in front of the first FROM"),
        ("FROM a b", "line 1: FROM a b: not `FROM image"),
        ("FROM x\nRUN <<EOF", "line 2: RUN: here-documents"),
        ("FROM x\nRUN a \\", "line 2: the last line ends in a backslash"),
    ],
)
def test_what_cannot_be_run_is_refused_with_its_line(text: str, complaint: str) -> None:
    with pytest.raises(DockerfileError) as error:
        parsed(text, {})
    assert str(error.value).startswith(complaint)


def test_exec_form_is_an_array_and_shell_form_is_none() -> None:
    assert Instruction("CMD", '["a", "b c"]').array == ("a", "b c")
    assert Instruction("CMD", "a b").array is None
    with pytest.raises(DockerfileError, match="line 3: CMD: not a JSON array"):
        _ = Instruction("CMD", "[a]", (), 3).array


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("$A/${A}", "1/1"),
        ("${B:-two}${A:-two}", "two1"),
        ("${A:+set}${B:+set}", "set"),
        ("$B|\\$A", "|$A"),
    ],
)
def test_variables_are_filled_in_as_docker_does(text: str, filled: str) -> None:
    assert expanded(text, {"A": "1"}) == filled


def test_pairs_are_quoted_as_in_a_shell_and_need_an_equals_sign() -> None:
    assert pairs(Instruction("ENV", 'A=1 B="two $X"'), {"X": "words"}) == {"A": "1", "B": "two words"}
    with pytest.raises(DockerfileError, match="line 7: ENV A: write KEY=value"):
        pairs(Instruction("ENV", "A 1", (), 7), {})
