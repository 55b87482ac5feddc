"""What goes to the runner, what comes back, and what a policy sees of it.

Rows of a `BatchPlan` mix freely: one new token on an existing cache is a decode row, more is an
extend row, and a long prompt comes in chunks of which only the last one samples. Every array of a
`StepOutput` and of a `StepBatch` has one entry per *sampling* row, in plan order.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Sequences
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from router_backend.core.counter_rng import uniforms
from router_backend.core.request import ModelIndex, RequestId, RequestKey, Sampling
from router_backend.core.sequence import Sequence

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float32]
BoolArray = npt.NDArray[np.bool_]


class Needs(NamedTuple):
    """The numbers that a policy wants the runner to compute in the same pass, from raw logits."""

    entropy: bool = False
    """Shannon entropy in nats over the real vocabulary."""
    max_prob: bool = False
    topk: int = 0
    """How many of the largest logits, sorted downwards."""
    hidden: bool = False
    """Last hidden state after the final norm, at the predicting position."""
    heads: tuple[str, ...] = ()
    """Names of router heads to evaluate on the model's device in the same step, sorted."""

    def union(self, other: Needs) -> Needs:
        return Needs(
            self.entropy or other.entropy,
            self.max_prob or other.max_prob,
            max(self.topk, other.topk),
            self.hidden or other.hidden,
            tuple(sorted({*self.heads, *other.heads})),
        )


class Row(NamedTuple):
    """One sequence's share of a step.

    `token_ids` are fed at positions start .. start + len - 1; `blocks` is the sequence's block table
    (block b covers positions b * block_size ...), long enough for all of them. The runner must not
    keep or change it.
    """

    request_id: RequestId
    token_ids: list[int]
    start: int
    blocks: list[int]
    is_sampling: bool
    """False for a chunk in the middle of a longer extension: its logits are not wanted."""
    sampling: Sampling
    attempt: int
    history: Sequences[int] = ()
    """The sequence's tokens, prompt included; of a sampling row `end` many, by whatever author."""
    prompt_len: int = 0
    stop_ids: frozenset[int] = frozenset()
    draft: int = 0
    """So many of a sampling row's last tokens are a draft, to be read too (`DraftReading`); else 0."""
    epoch: int = 0

    @property
    def key(self) -> RequestKey:
        return RequestKey(self.request_id, self.epoch)

    @property
    def end(self) -> int:
        """KV length after the step; also the absolute position of the token that is sampled."""
        return self.start + len(self.token_ids)


class LaunchReason(str, Enum):
    """Why a batch started."""

    THRESHOLD = "threshold"
    DEADLINE = "deadline"
    IDLE_RELEASE = "idle_release"
    DRAIN = "drain"
    ALONE = "alone"
    BARRIER = "barrier"
    """A barrier mode's leader said so."""


@dataclass(frozen=True, slots=True)
class Launch:
    reason: LaunchReason


@dataclass(frozen=True, slots=True)
class Hold:
    """Nothing to run before `until` (seconds on the caller's clock) or the next event; None = no limit."""

    until: float | None = None


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """One step of the engine; every block it needs is already reserved."""

    step: int
    rows: tuple[Row, ...]
    needs: Needs
    reason: LaunchReason

    @property
    def num_tokens(self) -> int:
        return sum(len(row.token_ids) for row in self.rows)

    @property
    def sampling_rows(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.is_sampling)


@dataclass(frozen=True, slots=True)
class DraftReading:
    """What a model makes of drafts; K = the longest draft among the plan's sampling rows.

    `tokens` int[R, K]: what the model itself would have written in place of each drafted token, drawn as it
    draws any token of that position. `nll` float[R, K]: -ln of the drafted token's probability, from raw
    logits at temperature 1. The rest tells of `tokens` what a `StepOutput` tells of its own: `logprobs`
    float[R, K], `top_ids` int[R, K, n], `top_logprobs` float[R, K, n]. Nothing has a meaning beyond the
    length of a row's draft.
    """

    tokens: IntArray
    nll: FloatArray
    logprobs: FloatArray | None = None
    top_ids: IntArray | None = None
    top_logprobs: FloatArray | None = None


@dataclass(frozen=True, slots=True)
class StepOutput:
    """What a runner computed; R = number of sampling rows, in plan order.

    `tokens` int[R]; `logprobs` float[R] of the sampled tokens at temperature 1; the rest only when
    the plan's needs ask: `entropy` float[R] in nats, `max_prob` float[R], `topk_ids` int[R, k] and
    `topk_logits` float[R, k] sorted downwards, `hidden` float[R, H], `scores[head]` float[R].
    `top_ids` int[R, n] and `top_logprobs` float[R, n], sorted downwards, only when a row's sampling asks for
    top tokens: n = the most that any row asks for; rows that do not ask hold nothing of meaning. `draft` only
    when a sampling row carries a draft; all other columns are about the token after it.
    """

    tokens: IntArray
    logprobs: FloatArray | None = None
    entropy: FloatArray | None = None
    max_prob: FloatArray | None = None
    topk_ids: IntArray | None = None
    topk_logits: FloatArray | None = None
    hidden: Any = None
    scores: Mapping[str, FloatArray] = field(default_factory=dict)
    top_ids: IntArray | None = None
    top_logprobs: FloatArray | None = None
    draft: DraftReading | None = None


class StepBatch:
    """What a policy sees: the sampling rows of one step that follow this policy.

    Signals are those of `StepOutput`, restricted to these rows. Columns of integers are built when
    they are asked for, so that a policy pays only for what it reads.
    """

    __slots__ = ("_index", "_output", "_unreadable", "model", "sequences")

    def __init__(
        self,
        model: ModelIndex,
        sequences: Sequences[Sequence],
        output: StepOutput,
        index: IntArray | None = None,
    ) -> None:
        self.model = model
        self.sequences = sequences
        self._output = output
        self._index = index
        self._unreadable: BoolArray | None = None

    def __len__(self) -> int:
        return len(self.sequences)

    def _picked(self, column: npt.NDArray[Any] | None, name: str) -> npt.NDArray[Any]:
        assert column is not None, f"the policy reads {name} but its needs do not ask for it"
        return column if self._index is None else column[self._index]

    @property
    def tokens(self) -> IntArray:
        """int[B]: the sampled, tentative tokens."""
        return self._picked(self._output.tokens, "tokens")

    @property
    def logprobs(self) -> FloatArray:
        """float[B]: of the sampled tokens, from raw logits at temperature 1."""
        return self._picked(self._output.logprobs, "logprobs")

    @property
    def draft_len(self) -> IntArray:
        """int[B]: length of each row's draft; only in `verify`, where every row has one."""
        return np.array([sequence.draft for sequence in self.sequences], dtype=np.int64)

    @property
    def draft_tokens(self) -> IntArray:
        """int[B, K]: the drafted tokens, -1 beyond the end of a row's draft."""
        tokens = np.full(self.own_tokens.shape, -1, dtype=np.int64)
        for line, sequence in zip(tokens, self.sequences, strict=True):
            line[: sequence.draft] = sequence.tokens[-sequence.draft :]
        return tokens

    @property
    def own_tokens(self) -> IntArray:
        """int[B, K]: what this model would have written in place of each drafted token."""
        return self._picked(self._draft.tokens, "own_tokens")

    @property
    def draft_nll(self) -> FloatArray:
        """float[B, K], nats: -ln p of each drafted token."""
        return self._picked(self._draft.nll, "draft_nll")

    @property
    def _draft(self) -> DraftReading:
        assert self._output.draft is not None, "the policy reads a draft where there is none"
        return self._output.draft

    @property
    def entropy(self) -> FloatArray:
        """float[B], nats."""
        return self._picked(self._output.entropy, "entropy")

    @property
    def max_prob(self) -> FloatArray:
        return self._picked(self._output.max_prob, "max_prob")

    @property
    def topk_ids(self) -> IntArray:
        return self._picked(self._output.topk_ids, "topk_ids")

    @property
    def topk_logits(self) -> FloatArray:
        return self._picked(self._output.topk_logits, "topk_logits")

    @property
    def hidden(self) -> npt.NDArray[Any]:
        return self._picked(self._output.hidden, "hidden")

    def score(self, head: str) -> FloatArray:
        """float[B]: what router head `head` says of each row."""
        return self._picked(self._output.scores.get(head), f"score {head!r}")

    def readable(self, signal: npt.NDArray[Any]) -> BoolArray:
        """bool[B]: where `signal` is a number to decide by; the other rows are counted."""
        is_finite: BoolArray = np.isfinite(signal)
        if not all(is_finite.tolist()):
            sick = ~is_finite
            self._unreadable = sick if self._unreadable is None else self._unreadable | sick
        return is_finite

    @property
    def num_unreadable(self) -> int:
        """Rows whose policy fell back because a signal was NaN or infinite."""
        return 0 if self._unreadable is None else int(np.count_nonzero(self._unreadable))

    @property
    def position(self) -> IntArray:
        """int[B]: absolute position of the sampled token, prompt included."""
        return np.array([len(sequence.tokens) for sequence in self.sequences], dtype=np.int64)

    @property
    def out_step(self) -> IntArray:
        """int[B]: index of the sampled token in the answer."""
        return np.array([sequence.out_step for sequence in self.sequences], dtype=np.int64)

    @property
    def stay(self) -> IntArray:
        """int[B]: tokens sampled here since the last arrival, this one included (1 = first)."""
        return np.array([sequence.stay for sequence in self.sequences], dtype=np.int64)

    @property
    def attempt(self) -> IntArray:
        """int[B]: discards so far at this position, by anybody."""
        return np.array([sequence.attempt for sequence in self.sequences], dtype=np.int64)

    def uniform(self, tag: int) -> npt.NDArray[np.float64]:
        """float[B] in [0, 1): draws keyed by (seed, position, attempt, model, tag)."""
        seeds = [sequence.request.sampling.seed for sequence in self.sequences]
        return uniforms(seeds, self.position, self.attempt, int(self.model), tag)
