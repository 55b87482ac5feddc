"""The same greedy answer from our runner and from the LLM API on the same weights.

Two implementations of one network differ in the last bits; the answers may part where the two best tokens are
nearly equal, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence

from python_backend.runner.base import ModelRunner
from router_backend.scheduler.batch import Needs
from tools.trtllm_check.scenarios import is_near_tie
from tools.trtllm_check.stepper import Reading, Stepper
from tools.trtllm_check.verdict import Outcome, Verdict


def greedy_readings(runner: ModelRunner, prompt: Sequence[int], count: int) -> list[Reading]:
    """`count` tokens one after the other, each with what was read behind it."""
    return _readings(Stepper(runner), prompt, count)


def greedy_tokens(runner: ModelRunner, prompt: Sequence[int], count: int) -> list[int]:
    """The same of a runner that shows tokens and nothing else."""
    return [reading.token for reading in _readings(Stepper(runner, Needs()), prompt, count)]


def _readings(stepper: Stepper, prompt: Sequence[int], count: int) -> list[Reading]:
    text = stepper.text(prompt)
    readings = []
    for _ in range(count):
        readings += stepper.fed(text)
        text.tokens.append(readings[-1].token)
    stepper.clear()
    return readings


def answer_verdict(readings: Sequence[Reading], reference: Sequence[int], tolerance: float) -> Verdict:
    """`readings` are our runner's, `reference` the LLM API's tokens behind the same prompt."""
    subject = f"{len(reference)} greedy tokens against the LLM API"
    for place, (reading, token) in enumerate(zip(readings, reference, strict=True)):
        if reading.token == token:
            continue
        where = f"token {place} is {reading.token}, the LLM API says {token}"
        if is_near_tie(reading, tolerance):
            return Verdict(Outcome.PASS, subject, f"equal up to a near tie: {where}")
        return Verdict(Outcome.FAIL, subject, f"{where}; the engine was built of other weights, or is wrong")
    return Verdict(Outcome.PASS, subject, "equal")
