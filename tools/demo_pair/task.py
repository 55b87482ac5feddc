"""The rule-chain task: what the demo pair learns and how its answers are checked.

Owns the rule words, the rule tables and the seeds. A rule is a fixed random permutation of the states
00-99. A prompt names twelve rules and a start state; the answer lists the state after each rule. The
2,400 facts must be memorised, and rare rules are learnt late, so a small model stopped early is wrong
on few, recognisable tokens. Everything here is decided by its arguments and the seeds below.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]

RULE_WORDS = (
    "turn", "lift", "fold", "push", "spin", "flip", "roll", "bend",
    "cut", "tie", "pull", "drop", "stir", "mix", "melt", "pour",
    "shake", "slide", "twist", "press", "hold", "toss", "wrap", "swing",
)  # fmt: skip
STATE_WORDS = tuple(f"{state:02d}" for state in range(100))
CHAIN_LENGTH = 12

TABLE_SEED = 20
HELD_OUT_SEED = 21
HELD_OUT_CHAINS = 400
ZIPF_EXPONENT = 1.2


@dataclass(frozen=True, slots=True)
class Chains:
    """A set of chains: ``rules`` is [count, 12]; ``states`` is [count, 13], the start state first."""

    rules: IntArray
    states: IntArray

    def __len__(self) -> int:
        """Return how many chains there are."""
        return len(self.rules)

    def take(self, rows: IntArray) -> "Chains":
        """Return the chains of the given row numbers."""
        return Chains(self.rules[rows], self.states[rows])

    def prompt_keys(self) -> list[tuple[int, ...]]:
        """Return one hashable identity per prompt: its rules and its start state."""
        prompts = np.column_stack([self.rules, self.states[:, 0]])
        return [tuple(row) for row in prompts.tolist()]


def rule_tables() -> IntArray:
    """Return [24, 100]: the state that each rule makes of each state."""
    rng = np.random.default_rng(TABLE_SEED)
    tables: IntArray = np.stack([rng.permutation(len(STATE_WORDS)) for _ in RULE_WORDS])
    return tables


def rule_shares() -> NDArray[np.float64]:
    """Return how often each rule is used; the first words are common, the last ones rare."""
    weights = np.arange(1, len(RULE_WORDS) + 1, dtype=np.float64) ** -ZIPF_EXPONENT
    shares: NDArray[np.float64] = weights / weights.sum()
    return shares


def follow(rules: IntArray, starts: IntArray) -> Chains:
    """Apply the rules one after the other to the start states."""
    tables = rule_tables()
    states = [starts]
    for step in range(rules.shape[1]):
        states.append(tables[rules[:, step], states[-1]])
    return Chains(rules, np.stack(states, axis=1))


def sample_chains(rng: np.random.Generator, count: int) -> Chains:
    """Draw ``count`` chains."""
    rules = rng.choice(len(RULE_WORDS), size=(count, CHAIN_LENGTH), p=rule_shares())
    starts = rng.integers(len(STATE_WORDS), size=count)
    return follow(rules.astype(np.int64), starts.astype(np.int64))


def training_batches(seed: int, steps: int, batch_size: int) -> Iterator[Chains]:
    """Yield the batches that a training with this seed sees, in order."""
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        yield sample_chains(rng, batch_size)


def held_out_chains(trained: set[tuple[int, ...]]) -> Chains:
    """Return the 400 chains for evaluation and demonstration, none of them in ``trained``."""
    # A few spare draws: prompts made of the commonest rule alone could repeat a training prompt.
    drawn = sample_chains(np.random.default_rng(HELD_OUT_SEED), HELD_OUT_CHAINS + 20)
    fresh = [row for row, key in enumerate(drawn.prompt_keys()) if key not in trained]
    assert len(fresh) >= HELD_OUT_CHAINS, len(fresh)
    return drawn.take(np.array(fresh[:HELD_OUT_CHAINS]))


def prompt_text(chains: Chains, row: int) -> str:
    """Return what a client sends: twelve rule words, then the start state."""
    words = [RULE_WORDS[rule] for rule in chains.rules[row]]
    return " ".join([*words, STATE_WORDS[chains.states[row, 0]]])


def answer_text(chains: Chains, row: int) -> str:
    """Return what a right model answers: the twelve states after the start state."""
    return " ".join(STATE_WORDS[state] for state in chains.states[row, 1:])
