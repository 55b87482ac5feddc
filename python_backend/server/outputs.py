"""From a `Piece` to output tensors, as numpy arrays by name.

Each `Shape` builds all outputs that a piece can fill; whoever sends keeps those that the client requested
(an unrequested output corrupts the memory of Triton 24.10's stub). The invariant: what was streamed and
what one response holds are the same values, counts of the prompt are told once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from python_backend.loops.base import Finish, Piece
from python_backend.server.logprobs import Arrays, RunningSum, as_json, as_tensors
from python_backend.server.tensors import Asked
from router_backend.core.effects import Reason

__all__ = ["Arrays", "RouterShape", "Shape", "TextShape", "TokensShape", "error_text", "joined"]


def joined(pieces: Sequence[Piece]) -> Piece:
    """All pieces of an answer as one."""
    return Piece(
        text="".join(piece.text for piece in pieces),
        token_ids=tuple(chain.from_iterable(piece.token_ids for piece in pieces)),
        sources=tuple(chain.from_iterable(piece.sources for piece in pieces)),
        chars=tuple(chain.from_iterable(piece.chars for piece in pieces)),
        prompt_tokens=max((piece.prompt_tokens for piece in pieces), default=0),
        finish=pieces[-1].finish if pieces else None,
        logprobs=tuple(chain.from_iterable(piece.logprobs for piece in pieces)),
    )


@dataclass(slots=True)
class TextShape:
    """`token_router`: no batch dimension, counts UINT32."""

    asked: Asked
    is_driven = False
    _told_prompt: bool = field(default=False, init=False)
    _sum: RunningSum = field(default_factory=RunningSum, init=False)

    def arrays(self, piece: Piece) -> Arrays:
        counts = _counts(self.asked, piece, self._told_prompt)
        self._told_prompt |= "num_input_tokens" in counts
        return {
            "text_output": _strings(piece.text),
            **self._logprobs(piece),
            **{name: np.array([count], dtype=np.uint32) for name, count in counts.items()},
            **_routing(self.asked, piece),
            **_ending(self.asked, piece.finish),
        }

    def keepalive(self) -> Arrays | None:
        return None

    def _logprobs(self, piece: Piece) -> Arrays:
        total = self._sum.add(piece)
        if not piece.logprobs and piece.finish is None:
            return {}
        returns = self.asked.returns
        told = {"logprobs": _strings(as_json(piece))} if returns.logprobs and piece.logprobs else {}
        return {**told, "cumulative_logprob": total} if returns.cumulative_logprob else told


@dataclass(slots=True)
class TokensShape:
    """A subserver alone: one row, one beam."""

    asked: Asked
    is_driven = False
    _sum: RunningSum = field(default_factory=RunningSum, init=False)

    def arrays(self, piece: Piece) -> Arrays:
        return {
            **_output_ids(piece),
            **_rows(_logprobs(self.asked, piece, self._sum)),
            **_rows(_reason(piece.finish)),
        }

    def keepalive(self) -> Arrays | None:
        return None


@dataclass(slots=True)
class RouterShape:
    """The ensemble's middle step: text and uid in every response, errors as data once it was driven."""

    asked: Asked
    _told_prompt: bool = field(default=False, init=False)
    _sum: RunningSum = field(default_factory=RunningSum, init=False)

    @property
    def is_driven(self) -> bool:
        return self.asked.uid is not None

    def arrays(self, piece: Piece) -> Arrays:
        counts = _counts(self.asked, piece, self._told_prompt)
        self._told_prompt |= "num_input_tokens" in counts
        return {
            **self._always(piece.text),
            **_output_ids(piece),
            **_rows({name: np.array([count], dtype=np.int32) for name, count in counts.items()}),
            **_rows(_logprobs(self.asked, piece, self._sum)),
            **_rows(_routing(self.asked, piece)),
            **_rows(_ending(self.asked, piece.finish)),
            **_rows(_error(piece.finish)),
        }

    def keepalive(self) -> Arrays | None:
        """An empty response, so that a cancelled ensemble gets to run its next step and tell us."""
        return self._always("") if self.is_driven and self.asked.ask.is_streaming else None

    def _always(self, text: str) -> Arrays:
        uid = {} if self.asked.uid is None else {"request_uid": np.array([self.asked.uid], dtype=np.uint64)}
        return _rows({"text": _strings(text), **uid})


Shape = TextShape | TokensShape | RouterShape


def _logprobs(asked: Asked, piece: Piece, running: RunningSum) -> Arrays:
    """What TensorRT-LLM's clients ask for with `return_log_probs`."""
    total = running.add(piece)
    if not asked.returns.logprobs or (not piece.logprobs and piece.finish is None):
        return {}
    return {**as_tensors(piece), "cum_log_probs": total}


def _counts(asked: Asked, piece: Piece, told_prompt: bool) -> dict[str, int]:
    counts = {}
    if asked.returns.input_tokens and piece.prompt_tokens and not told_prompt:
        counts["num_input_tokens"] = piece.prompt_tokens
    if asked.returns.output_tokens:
        counts["num_output_tokens"] = len(piece.token_ids)
    return counts


def _routing(asked: Asked, piece: Piece) -> Arrays:
    if not (asked.returns.routing or asked.returns.logprobs):
        return {}
    per_token = {"token_source": piece.sources, "token_chars": piece.chars}
    tokens = {name: np.array(each, dtype=np.int32) for name, each in per_token.items() if each}
    if piece.finish is None or not asked.returns.routing:
        return dict(tokens)
    return {
        **tokens,
        "num_switches": np.array([piece.finish.handoffs], dtype=np.int32),
        "num_discarded_tokens": np.array([piece.finish.discarded_tokens], dtype=np.int32),
    }


def _ending(asked: Asked, finish: Finish | None) -> Arrays:
    """What is told at the end."""
    return {**_seed(asked, finish), **_finish_reason(asked, finish)}


def _seed(asked: Asked, finish: Finish | None) -> Arrays:
    if not asked.returns.seed or finish is None or finish.seed is None:
        return {}
    return {"seed_used": np.array([finish.seed], dtype=np.uint64)}


def _finish_reason(asked: Asked, finish: Finish | None) -> Arrays:
    """When asked for, and always when the answer is not what it seems."""
    is_whole = finish is None or finish.reason in (Reason.STOP, Reason.LENGTH)
    if is_whole and not asked.returns.finish_reason:
        return {}
    stop = {"stop_reason": _strings(finish.stop_text)} if finish is not None and finish.stop_text else {}
    return {**_reason(finish), **stop}


def _reason(finish: Finish | None) -> Arrays:
    return {} if finish is None else {"finish_reason": _strings(finish.reason.value)}


def _error(finish: Finish | None) -> Arrays:
    if finish is None or finish.reason is not Reason.ERROR:
        return {}
    return {"error_message": _strings(error_text(finish))}


def error_text(finish: Finish) -> str:
    """What the client reads: the stable code first."""
    if finish.message.startswith(finish.code):
        return finish.message or "TR_ERROR: the request failed"
    return f"{finish.code}: {finish.message}"


def _output_ids(piece: Piece) -> Arrays:
    return {
        "output_ids": np.array([[piece.token_ids]], dtype=np.int32).reshape(1, 1, -1),
        "sequence_length": np.array([[len(piece.token_ids)]], dtype=np.int32),
    }


def _rows(arrays: Arrays) -> Arrays:
    """`arrays` with the batch dimension of one row."""
    return {name: array[np.newaxis] for name, array in arrays.items()}


def _strings(*texts: str) -> np.ndarray[Any, np.dtype[np.object_]]:
    return np.array([text.encode() for text in texts], dtype=np.object_)
