"""Enumeration of the chain in plain Python: the twin that defines correct.

`chain.cpp` repeats it step by step, only faster; a property test compares them. Nothing here knows
tokens per second: states and probabilities only.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import comb

import numpy as np

from router_backend.native.chain_spec import ChainGraph, ChainSpec

ModelState = tuple[int, int, int]
State = tuple[ModelState, ...]
Split = tuple[tuple[int, ...], float]


class _Enumeration:
    """Breadth-first search over the reachable states of one chain."""

    def __init__(self, spec: ChainSpec) -> None:
        self.spec = spec
        self.model_count = len(spec.thresholds)
        self.index: dict[State, int] = {}
        self.states: list[State] = []

    def identify(self, state: State) -> int:
        found = self.index.get(state)
        if found is None:
            if len(self.states) >= self.spec.state_limit:
                raise OverflowError(f"the chain has more than {self.spec.state_limit} states")
            found = self.index[state] = len(self.states)
            self.states.append(state)
        return found

    def start(self) -> None:
        """All requests wait at model 0, which launches them."""
        concurrency = self.spec.floor_ticks.shape[1]
        idle: State = ((concurrency, 0, 0),) + ((0, 0, 0),) * (self.model_count - 1)
        for state, _ in self.launches(idle, 0):
            self.identify(state)

    def transitions(self, state: State) -> dict[int, float]:
        """Successors of a state with their probabilities, in order of discovery."""
        elapsed = min(residual for _, running, residual in state if running)
        elapsed = min(elapsed, self.spec.stride_ticks)
        row: dict[int, float] = {}
        for arrived, split_probability in self.completions(state, elapsed, 0):
            for launched, launch_probability in self.launches(arrived, 0):
                successor = self.identify(launched)
                row[successor] = row.get(successor, 0.0) + split_probability * launch_probability
        return row

    def completions(self, state: State, elapsed: int, model: int) -> Iterator[tuple[State, float]]:
        """States before any launch, after `elapsed` ticks of the models from `model` on."""
        if model == self.model_count:
            yield state, 1.0
            return
        waiting, running, residual = state[model]
        if running and residual > elapsed:
            later = _replace(state, model, (waiting, running, residual - elapsed))
            yield from self.completions(later, elapsed, model + 1)
            return
        done = _replace(state, model, (waiting, 0, 0))
        for counts, probability in self.splits(running, model):
            moved = tuple((k + extra, b, r) for (k, b, r), extra in zip(done, counts, strict=True))
            for arrived, rest in self.completions(moved, elapsed, model + 1):
                yield arrived, probability * rest

    def splits(self, running: int, model: int) -> list[Split]:
        """Where the requests of a completed batch go: the multinomial of row `model` of P."""
        return multinomial(running, tuple(float(p) for p in self.spec.routing[model]))

    def launches(self, state: State, model: int) -> Iterator[tuple[State, float]]:
        """Start every idle model whose queue has reached its threshold; each launch draws its ticks."""
        if model == self.model_count:
            yield state, 1.0
            return
        waiting, running, _ = state[model]
        if running or waiting < self.spec.thresholds[model]:
            yield from self.launches(state, model + 1)
            return
        batch = min(waiting, self.spec.caps[model])
        for ticks, probability in self.durations(model, batch):
            started = _replace(state, model, (waiting - batch, batch, ticks))
            for launched, rest in self.launches(started, model + 1):
                yield launched, probability * rest

    def durations(self, model: int, batch: int) -> list[tuple[int, float]]:
        floor = int(self.spec.floor_ticks[model, batch - 1])
        longer = float(self.spec.ceil_probability[model, batch - 1])
        both = [(floor, 1.0 - longer), (floor + 1, longer)]
        return [(ticks, probability) for ticks, probability in both if probability > 0.0]


def _replace(state: State, model: int, entry: ModelState) -> State:
    return (*state[:model], entry, *state[model + 1 :])


@lru_cache(maxsize=4096)
def multinomial(count: int, row: tuple[float, ...]) -> list[Split]:
    """Every way to send `count` requests along `row`, with its probability; impossible ways left out."""
    if len(row) == 1:
        return [((count,), row[0] ** count)] if count == 0 or row[0] > 0.0 else []
    ways: list[Split] = []
    for here in range(count + 1):
        weight = comb(count, here) * row[0] ** here
        if weight > 0.0:
            rest = multinomial(count - here, row[1:])
            ways += [((here, *tail), weight * probability) for tail, probability in rest]
    return ways


def enumerate_chain(spec: ChainSpec) -> ChainGraph:
    """All states reachable from "everyone waits at model 0", and their transitions.

    Raises OverflowError when there are more states than `spec.state_limit`.
    """
    search = _Enumeration(spec)
    search.start()
    row_start: list[int] = [0]
    successor: list[int] = []
    probability: list[float] = []
    position = 0
    while position < len(search.states):
        row = search.transitions(search.states[position])
        successor += row.keys()
        probability += row.values()
        row_start.append(len(successor))
        position += 1
    return ChainGraph(
        np.array(search.states, dtype=np.int32),
        np.array(row_start, dtype=np.int64),
        np.array(successor, dtype=np.int32),
        np.array(probability, dtype=np.float64),
    )
