from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from router_backend.native.network_plain import Elsewhere, Layer, Matrix, Shape, StepIndex, Tables, Where

Floats = npt.NDArray[np.float32]
Longs = npt.NDArray[np.int64]
LAYOUT: int

def linear_half(weights: npt.NDArray[np.uint16], x: Floats, y: Floats, threads: int) -> None: ...
def linear_single(weights: Floats, x: Floats, y: Floats, threads: int) -> None: ...
def linear_int8(
    weights: npt.NDArray[np.int8],
    scales: Floats,
    sums: npt.NDArray[np.int32],
    x: Floats,
    call: tuple[Floats, int],
) -> None: ...
def paged_attention(
    queries: Floats,
    keys: npt.NDArray[Any],
    values: npt.NDArray[Any],
    where: tuple[Longs, Longs, Longs],
    call: tuple[Floats, int],
) -> None: ...
def fill_tables(tables: Longs, blocks: list[list[int]], counts: Longs) -> None: ...
def instruction_sets() -> list[str]: ...
def use(name: str) -> None: ...

class Network:
    def __init__(self, shape: Shape, tables: Tables, layers: Sequence[Layer], head: Matrix) -> None: ...
    def forward(
        self,
        step: StepIndex,
        where: Where | None,
        pool: npt.NDArray[Any],
        answers: tuple[Floats, Floats | None],
        elsewhere: Elsewhere | None,
        threads: int,
    ) -> None: ...
