"""What the chain solvers take and return: plain arrays, shared by the compiled and the Python twin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int32]
OffsetArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class ChainSpec:
    """One chain to enumerate: M models, N requests, latencies in ticks of a common quantum.

    floor_ticks       int32 [M, N]: ticks of a step of batch b at [m, b - 1]; at least 1
    ceil_probability  float64 [M, N]: chance that this step takes one tick more, drawn at each launch
    routing           float64 [M, M]: P, rows sum to 1
    thresholds        M queue lengths that start a batch
    caps              M largest batches
    stride_ticks      most ticks that one transition may advance: 1 gives the paper's tick chain,
                      anything above the longest step gives the event chain
    state_limit       most states to enumerate
    """

    floor_ticks: IntArray
    ceil_probability: FloatArray
    routing: FloatArray
    thresholds: tuple[int, ...]
    caps: tuple[int, ...]
    stride_ticks: int
    state_limit: int


class ChainGraph(NamedTuple):
    """The reachable states and their transitions, rows in order of discovery.

    states       int32 [S, M, 3]: (waiting, running, residual ticks) of every model, after launches
    row_start    int64 [S + 1]: the transitions of state s are row_start[s] .. row_start[s + 1] - 1
    successor    int32 [E]; no state twice within a row
    probability  float64 [E]; every row sums to 1
    """

    states: IntArray
    row_start: OffsetArray
    successor: IntArray
    probability: FloatArray
