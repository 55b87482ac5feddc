"""What a kernel does with a step's block tables: reads and writes of one row over a paged pool."""

from __future__ import annotations

from typing import Any

import torch


class PagedStep:
    """B rows. `pool` is [units, heads, T, D]; `keys` and `values` [B, M] are units of layer 0, and layer l
    lies at 2 * places[l] behind them."""

    plan: dict[str, Any]
    tokens: torch.Tensor
    positions: torch.Tensor
    counts: list[int]
    lengths: list[int]
    types: list[int]
    pool: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    places: list[int]

    def kv(self, row: int, layer: int) -> torch.Tensor:
        """[2, heads, positions, D]: all slots of the row's blocks, copied."""
        sides = [self.pool[self._units(row, layer, side)] for side in (0, 1)]
        return torch.stack(sides).transpose(1, 2).flatten(2, 3)

    def write(self, row: int, layer: int, new: torch.Tensor) -> None:
        """`new` [2, heads, tokens, D] behind what the row has; what lies behind that is made unreadable."""
        size = self.plan["tokens_per_block"]
        for side in (0, 1):
            units = self._units(row, layer, side)
            places = torch.arange(self.lengths[row] - self.counts[row], len(units) * size)
            slots = torch.full((len(places), *new.shape[1::2]), torch.nan)
            slots[: self.counts[row]] = new[side].transpose(0, 1)
            self.pool[units[places // size], :, places % size] = slots

    def past(self, row: int) -> int:
        """How much of the cache the row's queries see. Without paged context FMHA a context row sees none."""
        past = self.lengths[row] - self.counts[row]
        return past if self.plan["use_paged_context_fmha"] or self.types[row] else 0

    def _units(self, row: int, layer: int, side: int) -> torch.Tensor:
        count = -(-self.lengths[row] // self.plan["tokens_per_block"])
        offsets = (self.keys, self.values)[side][row, :count]
        assert len(offsets) == count, "a row's block table is too short"
        return offsets + 2 * self.places[layer]
