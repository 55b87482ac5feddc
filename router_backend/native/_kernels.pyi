import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Longs = npt.NDArray[np.int64]

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
    queries: Floats, keys: Floats, values: Floats, where: tuple[Longs, Longs, Longs], call: tuple[Floats, int]
) -> None: ...
def instruction_sets() -> list[str]: ...
def use(name: str) -> None: ...
