"""The stationary distribution of a chain in plain Python: the twin that defines correct.

`stationary.cpp` repeats it step by step, only faster; a property test compares them.

Gauss-Seidel in reverse postorder of a depth-first search, with Anderson's extrapolation. The chain is
often periodic, where plain power iteration does not converge. In this order a sweep follows the flow
exactly along forward edges, so that what is left to iterate is the chain watched at its back edges. Every
back edge closes a cycle whose other edges all run forward, hence some state of the watched chain returns
to itself in one step, and that chain is aperiodic. It may still be almost periodic (p = 0.05, N = 16,
threshold 10) or mix slowly (p = 0.7): the extrapolation takes 20 to 200 sweeps where sweeps alone take
600 to 10,000.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from router_backend.native.chain_spec import FloatArray, IntArray, OffsetArray

Predecessors = list[list[tuple[int, float]]]

SWEEP_LIMIT = 5_000
RESIDUAL_MAX = 1e-10
# Earlier sweeps that an extrapolation combines, and the relative weight that keeps it well-posed.
MEMORY = 5
RIDGE = 1e-10
TINY = 1e-300


def stationary_distribution(
    row_start: OffsetArray, successor: IntArray, probability: FloatArray
) -> FloatArray:
    """The solution of pi T = pi with sum(pi) = 1, float64 [S]; arrays as in `ChainGraph`.

    The chain must have one closed class. Raises ArithmeticError when the sweeps do not converge.
    """
    starts = [int(start) for start in row_start]
    targets = [int(target) for target in successor]
    order = _reverse_postorder(starts, targets)
    predecessors, stay = _transpose(order, starts, targets, [float(p) for p in probability])
    mass = np.full(len(order), 1.0 / len(order))
    memory = _Memory()
    for _ in range(SWEEP_LIMIT):
        swept = _sweep(mass, predecessors, stay)
        if np.abs(swept - mass).sum() <= RESIDUAL_MAX:
            result = np.empty(len(order))
            result[order] = swept
            return result
        mass = memory.extrapolate(mass, swept)
    raise ArithmeticError("no stationary distribution: the sweeps did not converge")


class _Memory:
    """Anderson's extrapolation: the mix of the last sweeps that would have changed least."""

    def __init__(self) -> None:
        self.last: tuple[FloatArray, FloatArray] | None = None
        self.swept_steps: list[FloatArray] = []
        self.change_steps: list[FloatArray] = []

    def extrapolate(self, mass: FloatArray, swept: FloatArray) -> FloatArray:
        """Where to sweep from next, given the last sweep's start and result."""
        change = swept - mass
        if self.last is not None:
            self.swept_steps = [*self.swept_steps, swept - self.last[0]][-MEMORY:]
            self.change_steps = [*self.change_steps, change - self.last[1]][-MEMORY:]
        self.last = swept, change
        mixed = swept.copy()
        for weight, step in zip(self._weights(change), self.swept_steps, strict=True):
            mixed -= weight * step
        # Extrapolation may leave the simplex.
        mixed = np.maximum(mixed, 0.0)
        return np.asarray(mixed / mixed.sum())

    def _weights(self, change: FloatArray) -> FloatArray:
        """Least squares: change = sum of weight * change_step."""
        if not self.change_steps:
            return np.empty(0)
        gram = np.array([[left @ right for right in self.change_steps] for left in self.change_steps])
        gram[np.diag_indices(len(gram))] *= 1.0 + RIDGE
        gram[np.diag_indices(len(gram))] += TINY
        return np.asarray(np.linalg.solve(gram, np.array([step @ change for step in self.change_steps])))


def _reverse_postorder(starts: list[int], targets: list[int]) -> list[int]:
    """States in the order that makes every edge but the back edges run forward."""
    seen = [False] * (len(starts) - 1)
    finished: list[int] = []
    for root in range(len(seen)):
        stack = [] if seen[root] else [(root, starts[root])]
        seen[root] = True
        while stack:
            state, edge = stack.pop()
            if edge == starts[state + 1]:
                finished.append(state)
                continue
            stack.append((state, edge + 1))
            if not seen[targets[edge]]:
                seen[targets[edge]] = True
                stack.append((targets[edge], starts[targets[edge]]))
    return finished[::-1]


def _transpose(
    order: Sequence[int], starts: list[int], targets: list[int], probability: list[float]
) -> tuple[Predecessors, list[float]]:
    """Incoming edges by position in `order`, and each position's probability to stay."""
    position = {state: place for place, state in enumerate(order)}
    predecessors: Predecessors = [[] for _ in order]
    stay = [0.0] * len(order)
    for place, state in enumerate(order):
        for edge in range(starts[state], starts[state + 1]):
            target = position[targets[edge]]
            if target == place:
                stay[place] += probability[edge]
            else:
                predecessors[target].append((place, probability[edge]))
    return predecessors, stay


def _sweep(start: FloatArray, predecessors: Predecessors, stay: list[float]) -> FloatArray:
    """One Gauss-Seidel sweep, rescaled to sum 1."""
    mass: list[float] = start.tolist()
    for place, incoming in enumerate(predecessors):
        inflow = sum(mass[source] * probability for source, probability in incoming)
        # An absorbing state keeps what it has and takes what flows in.
        mass[place] = inflow / (1.0 - stay[place]) if stay[place] < 1.0 else mass[place] + inflow
    swept = np.array(mass)
    return np.asarray(swept / swept.sum())
