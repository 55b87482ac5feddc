"""What a Dockerfile says about the image beside its files."""

from __future__ import annotations

from collections.abc import Mapping

from tools.image.dockerfile import Instruction, instructions
from tools.image.settings import PATH, ImageSettings, applied


def after(text: str, given: Mapping[str, str] | None = None) -> ImageSettings:
    settings = ImageSettings()
    for item in instructions(text):
        settings = applied(item, settings, given or {})
    return settings


def test_the_environment_wins_over_a_build_argument_and_an_argument_given_over_its_default() -> None:
    settings = after("ARG A=1\nARG B=2\nENV B=three PATH=/x:$PATH", {"A": "given"})
    assert settings.variables == {"A": "given", "B": "three", "PATH": f"/x:{PATH}"}
    assert settings.environment == {"B": "three", "PATH": f"/x:{PATH}"}


def test_folders_follow_each_other_and_a_user_has_the_group_of_its_number() -> None:
    settings = after("WORKDIR /a\nWORKDIR b/../c\nUSER 7")
    assert (settings.workdir, settings.user) == ("/a/c", "7:7")
    assert after("USER 7:8").user == "7:8"


def test_commands_in_shell_form_run_in_the_shell_that_was_chosen() -> None:
    settings = after('SHELL ["/bin/bash", "-c"]\nENTRYPOINT ["run"]\nCMD serve it\nEXPOSE 1 2')
    assert (settings.entrypoint, settings.command) == (("run",), ("/bin/bash", "-c", "serve it"))
    assert settings.ports == ("1", "2")
    assert settings.run_command(Instruction("RUN", "x")) == ("/bin/bash", "-c", "x")


def test_the_health_check_is_kept_and_files_change_nothing() -> None:
    settings = after('HEALTHCHECK --interval=5s CMD ["ask"]')
    assert settings.healthcheck == ("ask",)
    assert applied(Instruction("COPY", "a b"), settings, {}) == settings
