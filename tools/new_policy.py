"""Writes a routing policy to start from, and a test of it that passes.

    python -m tools.new_policy NAME

The policy goes to model_repository/NAME.py, the test to tests/unit/policies/test_NAME.py. Add the printed
line to deployment.yaml and the server loads the policy at start; nothing that exists is overwritten.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from string import Template

from router_backend.core.errors import ConfigError
from router_backend.policies.registry import FACTORIES
from tools.triton_layout import ROOT

POLICY = Template('''"""Routing policy `$name`: the large model writes what the small one is uncertain of.

A policy is written from one request's point of view and runs over all rows of a step at once. Both models
have an instance of it: `self.place` says where this one runs.
"""

import numpy as np

from router_backend.handoff.ledger import handoff_to
from router_backend.policies.base import LOCAL, BaseRouter
from router_backend.policies.options import Options
from router_backend.scheduler.batch import Needs


class $kind(BaseRouter):
    NAME = "$name"
    needs = Needs(entropy=True)
    """Numbers that the runner computes in the same pass: entropy, max_prob, topk, hidden, heads."""

    def __init__(self, place, spec):
        """`spec` holds the parameters of a request, or of the deployment; unknown ones are refused."""
        super().__init__(place)
        self.cutoff = Options(spec, ("cutoff",)).number("cutoff", 0.5)
        self.is_small = place.model == 0

    def route(self, step):
        """One destination per row: LOCAL stays here, 1 is the first of the other models."""
        is_uncertain = step.readable(step.entropy) & (step.entropy > self.cutoff)
        return np.where(is_uncertain == self.is_small, 1, LOCAL)

    def send(self, sequence, target):
        """The message that hands `sequence` over; drop=1 discards the token that was just sampled."""
        return handoff_to(sequence, target, drop=int(self.is_small))
''')

TEST = Template('''"""What the routing policy `$name` decides."""

from __future__ import annotations

import pytest

from python_backend.roles.policy_files import load_policies
from router_backend.core.request import PolicySpec
from router_backend.policies.base import LOCAL, Router
from router_backend.policies.registry import build
from tests.source_tree import ROOT
from tests.unit.policies.steps import Rows, place

REPOSITORY = ROOT / "$repository"


def router(model: int) -> Router:
    own = load_policies(["$name.py"], REPOSITORY)
    return build(PolicySpec("$name", (("cutoff", 0.5),)), place(model), own)


@pytest.mark.parametrize(("model", "destinations"), [(0, [LOCAL, 1, LOCAL]), (1, [1, LOCAL, 1])])
def test_what_is_uncertain_goes_to_the_large_model_and_comes_back(
    model: int, destinations: list[int]
) -> None:
    """A reading that is no number stays on the small model and returns from the large one."""
    rows = Rows(entropy=[0.1, 0.9, float("nan")], model=model)
    assert router(model).route(rows.batch()).tolist() == destinations
''')


def written(name: str, repository: Path, tests: Path) -> tuple[Path, Path]:
    """The paths of the new policy and its test; ConfigError when the name will not do."""
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", name):
        raise ConfigError(f"{name!r}: a policy's name has small letters, digits and _, a letter first")
    if name in FACTORIES:
        raise ConfigError(f"{name!r}: there is a built-in policy of this name")
    policy, test = repository / f"{name}.py", tests / f"test_{name}.py"
    for path in (policy, test):
        if path.exists():
            raise ConfigError(f"{path}: exists already and is left as it is")
    values = {"name": name, "kind": _kind(name), "repository": _from_root(repository)}
    for path, template in ((policy, POLICY), (test, TEST)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(template.substitute(values))
    return policy, test


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    try:
        policy, test = written(options.name, options.repository, options.tests)
    except ConfigError as error:
        print(f"new_policy: {error}", file=sys.stderr)
        return 2
    print(f"wrote {policy} and {test}")
    print(f"add to {options.repository / 'deployment.yaml'}: policy_files: [{policy.name}]")
    print(f"try it: python -m pytest {test}; make serve POLICY={options.name}")
    return 0


def _kind(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def _from_root(path: Path) -> str:
    whole = path.resolve()
    return str(whole.relative_to(ROOT)) if whole.is_relative_to(ROOT) else str(whole)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.new_policy",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", help="by which requests ask for it, e.g. my_rule")
    parser.add_argument("--repository", type=Path, default=ROOT / "model_repository")
    parser.add_argument("--tests", type=Path, default=ROOT / "tests" / "unit" / "policies")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
