"""A piece's log-probabilities as the tensors of its door.

Two languages: JSON as Triton's vLLM backend writes it, arrays as TensorRT-LLM's ensemble has them. The
invariant: as many entries as tokens, and a running sum that does not depend on how the answer was cut.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from python_backend.loops.base import Likely, Piece, TokenReport
from python_backend.server.values import Array

Arrays = dict[str, Array]


@dataclass(slots=True)
class RunningSum:
    """Of an answer's log-probabilities, in nats; added up one by one, so cuts do not change its rounding."""

    total: float = field(default=0.0, init=False)

    def add(self, piece: Piece) -> Array:
        """FP32 [1]: of all tokens up to and with `piece`."""
        for report in piece.logprobs:
            self.total += report.own.logprob
        return np.array([self.total], dtype=np.float32)


def as_json(piece: Piece) -> str:
    """A list with one object per token, by token id, as Triton's vLLM backend has it.

    The token that was written comes first and has its author as `source`; then the author's likeliest.
    `rank` counts from 1 and is null for a written token that is not among those.
    """
    pairs = zip(piece.logprobs, piece.sources, strict=bool(piece.logprobs))
    return json.dumps([_described(report, source) for report, source in pairs])


def as_tensors(piece: Piece) -> Arrays:
    """TensorRT-LLM's `output_log_probs` [beams, tokens], and the likeliest tokens [tokens, top]."""
    if not piece.logprobs:
        return {}
    own = np.array([[report.own.logprob for report in piece.logprobs]], dtype=np.float32)
    tops = [report.top for report in piece.logprobs]
    if not tops[0]:
        return {"output_log_probs": own}
    return {
        "output_log_probs": own,
        "top_log_prob_ids": np.array([[one.token_id for one in top] for top in tops], dtype=np.int32),
        "top_log_probs": np.array([[one.logprob for one in top] for top in tops], dtype=np.float32),
    }


def _described(report: TokenReport, source: int) -> dict[str, Any]:
    ranks = {likely.token_id: rank for rank, likely in enumerate(report.top, 1)}
    own = report.own
    written = {**_candidate(own, ranks.get(own.token_id)), "source": source}
    others = {
        str(likely.token_id): _candidate(likely, rank)
        for rank, likely in enumerate(report.top, 1)
        if likely.token_id != own.token_id
    }
    return {str(own.token_id): written, **others}


def _candidate(likely: Likely, rank: int | None) -> dict[str, Any]:
    return {
        "logprob": likely.logprob,
        "rank": rank,
        "decoded_token": likely.spelling.decode(errors="replace"),
        "bytes": list(likely.spelling),
    }
