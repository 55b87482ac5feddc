"""A pair whose large model has several replicas, as far as the throughput model can say it.

In a server a request stays with the replica that it first came to, and requests are divided evenly. The chain
counts requests and does not know them apart, so in it every visit draws its replica anew: some replica idles
while two wait at another, which happens less in a server.
"""

from __future__ import annotations

from python_backend.roles import adapting
from router_backend.core.replicas import Replicas
from router_backend.planner.routing import Matrix, Routing
from router_backend.planner.system import System


def with_replicas(pair: System, replicas: int) -> System:
    """The small model and so many times the large one, each visit of which goes to any with equal chance."""
    probabilities, commits = pair.routing.probabilities, pair.routing.commits
    shares = _repeated(probabilities, replicas, 1.0 / replicas)
    small, large = pair.latencies
    return System(Routing(shares, _repeated(commits, replicas, 1.0)), (small, *[large] * replicas))


def shared(pair: tuple[int, ...], replicas: int) -> tuple[int, ...]:
    """The thresholds of a pair for its deployment, divided as `thresholds: auto` divides a plan."""
    (divided,) = adapting.shared((pair,), Replicas((1, replicas)))
    return divided


def spread(pair: tuple[int, ...], replicas: int) -> tuple[int, ...]:
    """The thresholds of a deployment, one per subserver."""
    small, large = pair
    return (small, *[large] * replicas)


def _repeated(matrix: Matrix, replicas: int, share: float) -> Matrix:
    """Rows and columns of a pair, the large model's repeated; who stays there stays at his replica."""
    (stays, leaves), (returns, keeps) = matrix
    copies = range(replicas)
    large = (tuple(keeps if here == there else 0.0 for there in copies) for here in copies)
    return ((stays, *[leaves * share] * replicas), *((returns, *row) for row in large))
