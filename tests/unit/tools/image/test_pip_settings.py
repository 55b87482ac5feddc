"""pip's settings of this machine, as a pip.conf for a clean root."""

from __future__ import annotations

from pathlib import Path

from tools.image.pip_settings import PipSettings, pip_settings, settings_from


def test_a_machine_without_settings_hands_nothing_on() -> None:
    assert settings_from(["global.color='off'"]) == PipSettings("", ())


def test_the_environment_wins_and_the_paths_that_exist_are_named(tmp_path: Path) -> None:
    wheels, certificate = tmp_path / "wheels", tmp_path / "ca.crt"
    index = tmp_path / "index" / "simple"
    index.mkdir(parents=True)
    wheels.mkdir()
    certificate.write_text("")

    found = settings_from(
        [
            f":env:.find-links='{wheels}'",
            ":env:.default-timeout='180'",
            f"global.cert='{certificate}'",
            f"global.extra-index-url='file://{index} https://example.test/simple'",
            "global.find-links='/not/this'",
        ]
    )

    assert found.text == (
        f"[global]\ncert = {certificate}\nextra-index-url = file://{index} https://example.test/simple\n"
        f"find-links = {wheels}\ntimeout = 180\n"
    )
    assert set(found.paths) == {certificate, index.parent, wheels}, "an index points to files beside it"


def test_this_machines_settings_can_be_read() -> None:
    found = pip_settings()
    assert found.text == "" or found.text.startswith("[global]\n")
    assert all(path.exists() for path in found.paths)
