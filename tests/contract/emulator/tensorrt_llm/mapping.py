"""How ranks are laid out."""

from __future__ import annotations


class Mapping:
    def __init__(self, world_size: int = 1, rank: int = 0, gpus_per_node: int = 8, tp_size: int = 1) -> None:
        assert world_size == tp_size and rank < world_size
        self.world_size, self.rank, self.gpus_per_node, self.tp_size = (
            world_size,
            rank,
            gpus_per_node,
            tp_size,
        )
