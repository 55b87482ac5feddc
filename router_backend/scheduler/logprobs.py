"""What is reported of each sampled token's likelihood, to the clients that asked.

Reads a step's output and nothing else, so a figure never depends on the batch. A discarded token's is
thrown away with it: only what is committed is ever told (F28).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from router_backend.core.effects import LOGPROB_MIN, TokenLogprobs
from router_backend.core.sequence import Sequence
from router_backend.scheduler.batch import DraftReading, FloatArray, StepOutput

Told = tuple[TokenLogprobs, ...]
"""What a client asked to know of one token; empty if it did not ask."""


def logprobs_of(sampled: list[Sequence], picked: list[int], output: StepOutput) -> list[Told]:
    """What is told of each row of `sampled`, whose entry of `output` is `picked`."""
    return [
        _told(sequence.request.sampling.logprobs, entry, output)
        for sequence, entry in zip(sampled, picked, strict=True)
    ]


def logprobs_instead(sequence: Sequence, entry: int, place: int, draft: DraftReading) -> Told:
    """What is told of the token that a model writes in place of token number `place` of a draft."""
    instead = StepOutput(draft.tokens[entry])
    if draft.logprobs is not None:
        instead = replace(instead, logprobs=draft.logprobs[entry])
    if draft.top_ids is not None and draft.top_logprobs is not None:
        instead = replace(instead, top_ids=draft.top_ids[entry], top_logprobs=draft.top_logprobs[entry])
    return _told(sequence.request.sampling.logprobs, place, instead)


def _told(count: int | None, entry: int, output: StepOutput) -> Told:
    return () if count is None else (_entry(count, entry, output),)


def _entry(count: int, entry: int, output: StepOutput) -> TokenLogprobs:
    assert output.logprobs is not None, "a request asks for log-probabilities, the runner gave none"
    own = _bounded(output.logprobs[entry : entry + 1])[0]
    if not count:
        return TokenLogprobs(own)
    assert output.top_ids is not None and output.top_logprobs is not None, "the runner gave no top tokens"
    values = _bounded(output.top_logprobs[entry, :count])
    return TokenLogprobs(own, tuple(zip(output.top_ids[entry, :count].tolist(), values, strict=True)))


def _bounded(values: FloatArray) -> list[float]:
    found: list[float] = np.nan_to_num(values, nan=LOGPROB_MIN).clip(LOGPROB_MIN, 0.0).tolist()
    return found
