"""Drafts: the small model writes some tokens ahead, the large one verifies them all in one step.

The small side holds back what it writes and hands it over as a draft: after `k` tokens, at an end, or where
it would rather not write. The large side keeps a beginning of the draft, writes the next token itself and
hands back. What each method keeps, and which model starts, is all that differs.
"""

from __future__ import annotations

import numpy as np

from router_backend.core.errors import ConfigError
from router_backend.core.request import ModelIndex, PolicySpec, Request
from router_backend.core.sequence import Sequence
from router_backend.handoff.ledger import handoff_to
from router_backend.handoff.message import DRAFT_MAX, Handoff
from router_backend.policies.base import Place
from router_backend.policies.pair import PairRouter
from router_backend.scheduler.batch import BoolArray, IntArray, Needs, StepBatch

BILD_K = 10
FALLBACK_CUTOFF = 0.6
ROLLBACK_CUTOFF_NATS = 5.0
SPECULATIVE_K = 4
FALLBACK_KEY = "falls back"


def leading(is_kept: BoolArray) -> IntArray:
    """int[B]: how many entries of each row of bool[B, K] are true before the first false one."""
    counts: IntArray = np.logical_and.accumulate(is_kept, axis=1).sum(axis=1)
    return counts


class DraftingRouter(PairRouter):
    """Subclasses say what is kept of a draft."""

    def __init__(self, place: Place, spec: PolicySpec, known: tuple[str, ...], k: int) -> None:
        super().__init__(place, spec, (*known, "k"))
        self._k = self.options.count("k", k)
        if self._k > DRAFT_MAX:
            raise ConfigError(f"{spec.name}.k: {self._k} is above {DRAFT_MAX}")
        self.holds_back = self.is_small

    def leaves(self, step: StepBatch) -> BoolArray:
        return step.stay >= self._k

    def returns(self, step: StepBatch) -> BoolArray:
        return np.full(len(step), True)

    def send(self, sequence: Sequence, target: ModelIndex) -> Handoff:
        return handoff_to(sequence, target)

    def at_end(self, sequence: Sequence) -> ModelIndex | None:
        """An end is verified like any token."""
        return self.large

    def verify(self, step: StepBatch) -> IntArray:
        """int[B]: the length of the beginning of each draft that stays."""
        return leading(self.keeps(step) & (np.arange(step.own_tokens.shape[1]) < step.draft_len[:, None]))

    def keeps(self, step: StepBatch) -> BoolArray:
        """bool[B, K]: which drafted tokens may stay if all before them do."""
        raise NotImplementedError


class Speculative(DraftingRouter):
    """A drafted token stays if it is the one that the large model would have written itself.

    So the answer is the large model's own, token for token. Greedy: arXiv:2211.17192 with its acceptance
    at temperature 0. With sampling, the large model's draw is keyed by position as ever, and the draft
    must hit it: the distribution is exact too, and fewer tokens stay than by that paper's min(1, p/q).
    """

    def __init__(self, place: Place, spec: PolicySpec) -> None:
        super().__init__(place, spec, (), SPECULATIVE_K)

    def keeps(self, step: StepBatch) -> BoolArray:
        is_own: BoolArray = step.own_tokens == step.draft_tokens
        return is_own


class Bild(DraftingRouter):
    """BiLD, big little decoder: fall back when unsure, roll back what the large model finds unlikely.

    Source: arXiv:2302.07863 and its code, `modeling_t5.py`: the large model starts; the small one writes at
    most `k` tokens and falls back, its token discarded, when its largest probability is < `cutoff`; the
    draft is cut before the first token with -ln p > `rollback_cutoff` under the large model, which writes
    that position. A cutoff above 1 always falls back: the large model alone.
    """

    def __init__(self, place: Place, spec: PolicySpec) -> None:
        super().__init__(place, spec, ("cutoff", "rollback_cutoff"), BILD_K)
        self._fallback = self.options.number("cutoff", FALLBACK_CUTOFF)
        self._rollback_nats = self.options.number("rollback_cutoff", ROLLBACK_CUTOFF_NATS)
        self.needs = Needs(max_prob=self.is_small)

    def entry(self, request: Request) -> ModelIndex:
        return self.large

    def leaves(self, step: StepBatch) -> BoolArray:
        falls_back = step.readable(step.max_prob) & (step.max_prob < self._fallback)
        for row in np.flatnonzero(falls_back).tolist():
            step.sequences[row].scratch[FALLBACK_KEY] = True
        return falls_back | super().leaves(step)

    def send(self, sequence: Sequence, target: ModelIndex) -> Handoff:
        return handoff_to(sequence, target, drop=int(sequence.scratch.pop(FALLBACK_KEY, False)))

    def keeps(self, step: StepBatch) -> BoolArray:
        """A probability that is no number rolls nothing back; none at all (infinity) does."""
        nll = step.draft_nll
        is_drafted = np.arange(nll.shape[1]) < step.draft_len[:, None]
        step.readable(np.where((np.isnan(nll) & is_drafted).any(axis=1), np.nan, 0.0))
        rolls_back: BoolArray = nll > self._rollback_nats
        return ~rolls_back
