"""A plan for many live requests in a fraction of a second, while the server runs.

The exact chain of a hundred requests takes seconds. What pays there is known in shape: the slowest model
waits for some share of all requests, the others for one or a few. Only such thresholds are simulated.
"""

from __future__ import annotations

from collections.abc import Iterator

from router_backend.planner.monte_carlo import Effort, simulate_best
from router_backend.planner.system import System
from router_backend.planner.thresholds import Method, Plan, Search, Thresholds, choose

SHARES = (0.25, 0.4, 0.5, 0.6, 0.7)
"""Of the live requests, for the slowest model. Any two of the candidates have their minimum among them."""
FEW = 10
"""The others wait for one request, or for one in this many."""
EFFORT = Effort(turns=1000, warmup_turns=150)


def sparse_plan(system: System, concurrency: int, search: Search, effort: Effort = EFFORT) -> Plan:
    """The best of about ten vectors, all thresholds 1 among them; needs at least 4 requests."""
    candidates = sorted(set(_candidates(system, concurrency)))
    predictions = simulate_best(system, candidates, concurrency, search.seed, effort)
    ranked = sorted(predictions, key=lambda one: (-one.throughput, sum(one.thresholds), one.thresholds))
    reason, chosen = choose(ranked, search)
    return Plan(concurrency, Method.SIMULATION, reason, chosen, tuple(ranked))


def _candidates(system: System, concurrency: int) -> Iterator[Thresholds]:
    times = [latency.step_ms(concurrency) for latency in system.latencies]
    slowest, caps = times.index(max(times)), system.caps(concurrency)
    yield (1,) * len(times)
    for others in (1, max(1, concurrency // (FEW * (len(times) - 1)))):
        for share in SHARES:
            large = max(2, round(share * concurrency))
            row = [large if model == slowest else others for model in range(len(times))]
            yield tuple(min(threshold, cap) for threshold, cap in zip(row, caps, strict=True))
