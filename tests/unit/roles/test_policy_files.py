"""A user's policies: found by name, checked before anything runs, and blamed by file and method."""

from __future__ import annotations

from pathlib import Path

import pytest

from python_backend.roles.policy_files import load_policies
from router_backend.core.errors import ConfigError
from router_backend.core.request import ModelIndex, PolicySpec
from router_backend.policies.base import Place
from router_backend.policies.registry import PolicyBook, build

HEAD = "from router_backend.policies.base import BaseRouter\n"
MINE = f"""{HEAD}
class Mine(BaseRouter):
    NAME = "mine"
    def __init__(self, place, spec):
        super().__init__(place)
        self.options = spec.options()
"""
BARE = """
from router_backend.scheduler.batch import Needs
class Bare:
    NAME = "bare"
    needs = Needs()
    def __init__(self, place, spec): ...
    def entry(self, request): ...
    def route(self, step): ...
    def send(self, sequence, target): ...
    def receive(self, sequence, handoff): ...
"""


def place() -> Place:
    return Place(ModelIndex(0), ("small", "large"), ModelIndex(0), 97)


def write(folder: Path, text: str, name: str = "mine.py") -> str:
    (folder / name).write_text(text)
    return name


def test_a_class_with_a_name_is_a_policy_like_the_built_in_ones(tmp_path: Path) -> None:
    own = load_policies([write(tmp_path, MINE)], tmp_path)
    spec = PolicySpec("mine", (("a", 1),))

    assert build(spec, place(), own).options == {"a": 1}  # type: ignore[attr-defined]
    assert build(PolicySpec("fixed"), place(), own).needs == build(PolicySpec("fixed"), place()).needs
    assert PolicyBook(place(), own=own).router(spec).needs.heads == ()
    with pytest.raises(ConfigError, match=r"'other' is unknown; known are .*mine"):
        build(PolicySpec("other"), place(), own)


def test_a_class_of_no_ancestry_will_do_and_a_file_may_hold_several(tmp_path: Path) -> None:
    files = [write(tmp_path, MINE), write(tmp_path, BARE + MINE.replace("mine", "third"), "two.py")]

    assert sorted(load_policies(files, tmp_path)) == ["bare", "mine", "third"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 +", r"mine\.py: SyntaxError: invalid syntax"),
        ("import nowhere", r"mine\.py: ModuleNotFoundError: No module named 'nowhere'"),
        (HEAD, r'mine\.py: has no policy: give its class a name, e\.g\. NAME = "mine"'),
        (MINE.replace('"mine"', '"My Own"'), r"mine\.py: Mine\.NAME: 'My Own' must be small letters"),
        (MINE.replace('"mine"', '"fixed"'), r"mine\.py: Mine\.NAME: there is a policy 'fixed' already"),
        (MINE.replace(", spec)", ")"), r"mine\.py: Mine\.__init__: must take \(place, spec\): too many"),
        (MINE + "    def route(self): ...\n", r"mine\.py: Mine\.route: must take \(step\): too many"),
        (MINE + "    def send(self, a): ...\n", r"Mine\.send: must take \(sequence, target\): too many"),
        (BARE.replace("def entry", "def enter"), r"mine\.py: Bare\.entry: is missing: derive the class from"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_file_and_method(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load_policies([write(tmp_path, text)], tmp_path)


def test_the_same_name_twice_is_refused(tmp_path: Path) -> None:
    files = [write(tmp_path, MINE), write(tmp_path, MINE, "again.py")]
    with pytest.raises(ConfigError, match=r"again\.py: Mine\.NAME: there is a policy 'mine' already"):
        load_policies(files, tmp_path)


@pytest.mark.parametrize("file", ["../mine.py", "link.py"])
def test_a_path_that_leads_out_of_the_repository_is_refused(tmp_path: Path, file: str) -> None:
    (tmp_path / "inside").mkdir()
    write(tmp_path, MINE)
    (tmp_path / "inside" / "link.py").symlink_to(tmp_path / "mine.py")
    with pytest.raises(ConfigError, match=f"policy_files: '{file}' leads out of the repository"):
        load_policies([file], tmp_path / "inside")


def test_a_missing_file_and_a_file_of_another_kind_are_named(tmp_path: Path) -> None:
    write(tmp_path, MINE, "mine.txt")
    with pytest.raises(ConfigError, match=r"there is no file .*/gone\.py"):
        load_policies(["gone.py"], tmp_path)
    with pytest.raises(ConfigError, match=r"mine\.txt: not a Python file"):
        load_policies(["mine.txt"], tmp_path)


def test_a_constructor_speaks_for_its_parameters_and_is_blamed_for_all_else(tmp_path: Path) -> None:
    raising = MINE + "        raise {}\n"
    own = raising.format("RuntimeError('too late')")
    with pytest.raises(ConfigError, match=r"mine\.py: Mine\.__init__: RuntimeError: too late"):
        build(PolicySpec("mine"), place(), load_policies([write(tmp_path, own)], tmp_path))
    errors = "from router_backend.core.errors import ConfigError\n"
    refusing = errors + raising.format("ConfigError('mine.x')")
    with pytest.raises(ConfigError, match=r"^TR_CONFIG: mine\.x$"):
        build(PolicySpec("mine"), place(), load_policies([write(tmp_path, refusing)], tmp_path))


def test_needs_must_be_needs(tmp_path: Path) -> None:
    wrong = MINE + "        self.needs = ['entropy']\n"
    with pytest.raises(ConfigError, match=r"mine\.py: Mine\.needs: must be a Needs"):
        build(PolicySpec("mine"), place(), load_policies([write(tmp_path, wrong)], tmp_path))
