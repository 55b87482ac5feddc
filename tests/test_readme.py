"""What the README says is so: its commands exist, its links lead somewhere, its policy runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

import router_backend.policies.registry as registry
from python_backend.roles.policy_files import load_policies
from router_backend.core.request import PolicySpec
from router_backend.scheduler.batch import StepOutput
from tests.builders import handoffs, plan, request, scheduler
from tests.source_tree import ROOT

PAGES = ("README.md", *(str(page.relative_to(ROOT)) for page in sorted((ROOT / "docs").glob("*.md"))))
README = (ROOT / "README.md").read_text()
POLICY_LINES_MAX = 15


def commands(pattern: str) -> list[str]:
    return sorted({name for page in PAGES for name in re.findall(pattern, (ROOT / page).read_text())})


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def make_variables() -> set[str]:
    return set(re.findall(r"^([A-Z_]+) \?=", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_every_make_target_of_the_text_exists() -> None:
    assert set(commands(r"make ([a-z]+)")) - {"it"} <= make_targets()


def test_every_variable_given_to_make_exists() -> None:
    given = {name for line in commands(r"(make [a-z]+ .*)") for name in re.findall(r"([A-Z_]+)=", line)}
    assert given
    assert given <= make_variables()


def test_make_help_lists_every_target_that_a_person_calls() -> None:
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    assert {
        line.split()[1] for line in shown.splitlines() if line.startswith("  make ")
    } >= make_targets() - {"help"}


@pytest.mark.parametrize("tool", commands(r"python -m (tools\.[a-z_]+)"))
def test_every_tool_of_the_text_explains_itself(tool: str) -> None:
    run = subprocess.run(
        [sys.executable, "-m", tool, "--help"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
    )
    assert "usage: " in run.stdout


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_of_the_repository(page: str) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text())
    here = (ROOT / page).parent
    assert [link for link in links if not (here / link).exists()] == []


def test_the_map_names_folders_that_exist() -> None:
    table = README.split("## Map of the tree")[1].split("##")[0]
    folders = re.findall(r"^\| `([a-z_]+)/`", table, re.MULTILINE)
    assert len(folders) >= 6
    assert [folder for folder in folders if not (ROOT / folder).is_dir()] == []


def policy_text() -> str:
    return README.split("```python\n")[1].split("```")[0]


def test_the_policy_is_as_short_as_the_text_says() -> None:
    lines = [line for line in policy_text().splitlines() if line.strip()]
    assert len(lines) <= POLICY_LINES_MAX, len(lines)


@pytest.fixture
def hesitant(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> PolicySpec:
    """The README's policy, loaded from a file as the text tells."""
    (tmp_path / "hesitant.py").write_text(policy_text())
    own = load_policies(["hesitant.py"], tmp_path)
    monkeypatch.setattr(registry, "FACTORIES", MappingProxyType({**registry.FACTORIES, **own}))
    return PolicySpec("hesitant", (("cutoff", 1.5),))


def candidates(token: int, gap: float) -> StepOutput:
    """One row whose best two logits are `gap` apart."""
    return StepOutput(
        np.array([token]),
        topk_ids=np.array([[token, 50]]),
        topk_logits=np.array([[gap, 0.0]], dtype=np.float32),
    )


def test_the_policy_of_the_text_routes_an_uncertain_token_and_brings_it_back(hesitant: PolicySpec) -> None:
    small, large = scheduler(0), scheduler(1)
    small.admit(request(policy=hesitant), 0.0)

    kept = small.apply(plan(small), candidates(10, gap=2.0), 0.0)
    assert handoffs(kept) == []
    (left,) = handoffs(small.apply(plan(small), candidates(11, gap=1.0), 0.0))
    assert (left.target, left.token_ids) == (1, (1, 2, 3, 10))

    large.resume(left, 0.0)
    (back,) = handoffs(large.apply(plan(large), candidates(12, gap=9.0), 0.0))
    assert (back.target, back.token_ids) == (0, (12,))


def test_the_readme_says_in_five_lines_what_this_is() -> None:
    first = README.split("\n\n")[1]
    assert len(first.splitlines()) <= 5


def test_the_error_page_lists_every_code() -> None:
    sources = [*(ROOT / "router_backend").rglob("*.py"), *(ROOT / "python_backend").rglob("*.py")]
    raised = {code for path in sources for code in re.findall(r"\bTR_[A-Z]+(?:_[A-Z]+)*\b", path.read_text())}
    listed = set(re.findall(r"`(TR_[A-Z_]+)`", (ROOT / "docs" / "errors.md").read_text()))

    assert listed == raised
