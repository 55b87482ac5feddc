"""Figures of one level of load, and the table of a sweep.

Latencies are the client's: first response and last response of each request. Tokens are the server's, as its
metrics page counts commits, because responses are coalesced and tools that count text count otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tools.loading.work import LoadError, Seen, Work

HEAD = "clients  requests  errors  first ms p50    p95  ms/token  whole ms p50    p95  tokens/s  large share"


@dataclass(frozen=True, slots=True)
class Cell:
    """Milliseconds. `per_token_ms`: mean time per token after the first response. `large_share`: part of the
    tokens that the models after the first one wrote."""

    clients: int
    requests: int
    errors: int
    first_p50_ms: float
    first_p95_ms: float
    per_token_ms: float
    whole_p50_ms: float
    whole_p95_ms: float
    tokens: int
    tokens_per_s: float
    large_share: float


def cell_of(work: Work, seen: Sequence[Seen], tokens: Mapping[str, float]) -> Cell:
    """`tokens` committed by each model meanwhile, the entry model first."""
    whole = [one for one in seen if one.first_at is not None]
    if not whole:
        why = next((one.error for one in seen if one.error), "no request was made")
        raise LoadError(f"no request was answered at {work.clients} clients: {why}")
    first = 1000.0 * np.array([float(one.first_at or 0.0) - one.asked_at for one in whole])
    lasting = 1000.0 * np.array([one.ended_at - one.asked_at for one in whole])
    total = sum(tokens.values())
    took_s = max(one.ended_at for one in seen) - min(one.asked_at for one in seen)
    later = max(1.0, total - len(whole))
    return Cell(
        clients=work.clients,
        requests=len(seen),
        errors=len(seen) - len(whole),
        first_p50_ms=float(np.percentile(first, 50)),
        first_p95_ms=float(np.percentile(first, 95)),
        per_token_ms=float((lasting - first).sum() / later),
        whole_p50_ms=float(np.percentile(lasting, 50)),
        whole_p95_ms=float(np.percentile(lasting, 95)),
        tokens=round(total),
        tokens_per_s=total / took_s if took_s else 0.0,
        large_share=1.0 - next(iter(tokens.values())) / total if total else 0.0,
    )


def table(cells: Sequence[Cell]) -> str:
    return "\n".join([HEAD, *map(_row, cells)])


def _row(cell: Cell) -> str:
    return (
        f"{cell.clients:7d}  {cell.requests:8d}  {cell.errors:6d}  {cell.first_p50_ms:12.1f}"
        f"{cell.first_p95_ms:7.1f}  {cell.per_token_ms:8.2f}  {cell.whole_p50_ms:12.1f}"
        f"{cell.whole_p95_ms:7.1f}  {cell.tokens_per_s:8.1f}  {cell.large_share:11.1%}"
    )
