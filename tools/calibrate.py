"""Chooses a routing policy's cutoff: what share of the tokens the large model then writes, and at what price.

    python -m tools.calibrate                                          # the demo pair, R-Stitch
    python -m tools.calibrate --target-share 0.2 --write               # put that cutoff into the deployment
    python -m tools.calibrate --baseline --plot curve.png              # beside random routing at equal share
    python -m tools.calibrate --deployment D.yaml --prompts P.json --policy r2r --cutoffs 0.2 0.4 0.6

Runs the prompts through the models of the deployment in this process, with the real schedulers; no server
is needed. P.json is a list of texts, or of {"prompt", "answer"}: with answers, accuracy is told too.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml

from python_backend.config import Deployment, load_deployment, parse_deployment
from python_backend.loops.base import Ask
from router_backend.core.errors import ConfigError, RouterError
from tools.calibration.curve import Choice, Point, found, table
from tools.calibration.in_process import LocalDeployment
from tools.calibration.picture import draw
from tools.triton_layout import ROOT

DEPLOYMENT = ROOT / "model_repository" / "deployment.yaml"
PROMPTS = ROOT / "model_repository" / "demo_prompts.json"
CUTOFFS: dict[str, tuple[float, ...]] = {
    "r_stitch": (0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7),
    "entropy": (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0),
    "rolling_entropy": (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0),
}
"""Where to look by default; probabilities for all other policies."""
PROBABILITIES = (0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
_POLICY = re.compile(r"^policy:.*\n(?:[ \t].*\n|\n(?=[ \t]))*", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Question:
    prompt: str
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """What is asked of whom."""

    local: LocalDeployment
    deployment: Deployment
    questions: tuple[Question, ...]
    max_tokens: int
    at_once: int

    def measured(self, choice: Choice) -> Point:
        """Every question under `choice`; its number is its seed, so a run can be repeated."""
        asks = [self._ask(number, choice) for number in range(len(self.questions))]
        clients = self.local.answers(asks, self.at_once)
        ends = [client.finish for client in clients]
        sources = [source for client in clients for source in client.sources]
        committed = max(1, len(sources))
        discarded = sum(end.discarded_tokens for end in ends)
        pairs = zip(clients, self.questions, strict=True)
        right = [client.text.split() == (question.answer or "").split() for client, question in pairs]
        return Point(
            choice.policy if choice.cutoff is not None else _alone(choice),
            choice.cutoff,
            large_share=sources.count(len(self.deployment.models) - 1) / committed,
            discarded_share=discarded / (committed + discarded),
            handoffs_per_token=sum(end.handoffs for end in ends) / committed,
            accuracy=sum(right) / len(right) if self.has_answers else None,
        )

    def told(self, policy: str, cutoff: float) -> Point:
        """The policy at a cutoff, with a word of progress."""
        point = self.measured(choice_at(self.deployment, policy, cutoff))
        print(f"{policy} {cutoff:.4g}: {point.large_share:.1%} by the large model", file=sys.stderr)
        return point

    @property
    def has_answers(self) -> bool:
        return all(question.answer is not None for question in self.questions)

    def _ask(self, number: int, choice: Choice) -> Ask:
        return Ask(
            text=self.questions[number].prompt,
            max_tokens=self.max_tokens,
            seed=number,
            policy=choice.policy,
            policy_params=dict(choice.params),
        )


def questions(path: Path, limit: int | None) -> tuple[Question, ...]:
    """The first `limit` prompts of a JSON list; ConfigError says what is wrong with the file."""
    try:
        entries = json.loads(path.read_text())[:limit]
        asked = tuple(
            Question(entry) if isinstance(entry, str) else Question(entry["prompt"], entry.get("answer"))
            for entry in entries
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path}: not a list of prompts ({error!r})") from error
    if not asked:
        raise ConfigError(f"{path}: holds no prompt")
    return asked


def choice_at(deployment: Deployment, policy: str, cutoff: float) -> Choice:
    """The policy at a cutoff, with the deployment's other parameters if it is its own."""
    kept = deployment.policy.params if policy == deployment.policy.name else {}
    params = {**kept, "p" if policy == "random" else "cutoff": cutoff}
    return Choice(policy, cutoff, tuple(sorted(params.items())))


def alone(deployment: Deployment) -> list[Choice]:
    """The first and the last model without company."""
    ends = (deployment.names[0], deployment.names[-1])
    return [Choice("fixed", None, (("entry", name), ("mode", "never"))) for name in ends]


def _alone(choice: Choice) -> str:
    return f"{dict(choice.params)['entry']}_only"


def with_policy(text: str, name: str, params: dict[str, float | int | bool | str]) -> str:
    """The deployment file `text` with this policy; every line outside the old `policy:` block stays."""
    block = yaml.safe_dump({"policy": {"name": name, "params": params}}, sort_keys=False)
    whole = text if text.endswith("\n") else text + "\n"
    changed, count = _POLICY.subn(lambda _: block, whole, count=1)
    changed = changed if count else whole + block
    parse_deployment(changed, "the changed deployment")
    return changed


def calibrated(trial: Trial, options: argparse.Namespace) -> tuple[list[Point], Point | None]:
    """All points, and the one for the wished share."""
    policies = options.policy or [trial.deployment.policy.name]
    points = [
        trial.told(policy, cutoff)
        for policy in policies
        for cutoff in options.cutoffs or CUTOFFS.get(policy, PROBABILITIES)
    ]
    chosen = None
    if options.target_share is not None:
        chosen = found(points, options.target_share, lambda cutoff: trial.told(policies[0], cutoff))
    if options.baseline:
        shares = sorted({round(point.large_share, 4) for point in points})
        choices = [*alone(trial.deployment), *(choice_at(trial.deployment, "random", p) for p in shares)]
        points += [trial.measured(choice) for choice in choices]
    return points, chosen


def run(options: argparse.Namespace) -> None:
    deployment = load_deployment(options.deployment)
    asked = questions(options.prompts, options.limit)
    with LocalDeployment(deployment, options.deployment.parent) as local:
        trial = Trial(local, deployment, asked, options.max_tokens, options.concurrency)
        points, chosen = calibrated(trial, options)
    if options.plot:
        draw(options.plot, points)
    if chosen is not None and options.write:
        choice = choice_at(deployment, chosen.policy, chosen.cutoff or 0.0)
        text = with_policy(options.deployment.read_text(), choice.policy, dict(choice.params))
        options.deployment.write_text(text)
    if options.json:
        print(json.dumps({"points": [asdict(p) for p in points], "chosen": chosen and asdict(chosen)}))
        return
    print(table(points))
    if chosen is not None:
        gives = f"gives {chosen.large_share:.1%} of the tokens to the large model"
        print(f"\n{chosen.policy}: cutoff {chosen.cutoff:.6g} {gives}")


def main(argv: Sequence[str] | None = None) -> int:
    """0 when it was measured, 1 when it could not be, 130 after Ctrl-C."""
    options = _parser().parse_args(argv)
    try:
        if options.write and options.target_share is None:
            raise ConfigError("--write: needs --target-share")
        if options.target_share is not None and len(options.policy or ()) > 1:
            raise ConfigError("--target-share: choose one --policy")
        run(options)
    except RouterError as error:
        print(f"calibrate: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.calibrate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--deployment", type=Path, default=DEPLOYMENT, help="the deployment's YAML file, in its repository")
    add("--prompts", type=Path, default=PROMPTS, help="JSON list of prompts (default: the demo's)")
    add("--limit", type=int, help="only the first N prompts")
    add("--policy", nargs="+", help="one or several; default: the deployment's")
    add("--cutoffs", type=float, nargs="+", help="where to measure; of random: its p")
    add("--target-share", type=float, help="share of tokens that the large model shall write, 0 to 1")
    add("--write", action="store_true", help="put the cutoff for that share into the deployment file")
    add("--baseline", action="store_true", help="measure each model alone and random routing too")
    add("--plot", type=Path, help="PNG to draw")
    add("--max-tokens", type=int, default=64)
    add("--concurrency", type=int, default=16, help="how many prompts at once (default: %(default)s)")
    add("--json", action="store_true", help="print JSON instead of a table")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
