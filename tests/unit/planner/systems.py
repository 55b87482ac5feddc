"""The systems that the planner's tests share: the emulated A100 pair and its variants."""

from __future__ import annotations

from router_backend.planner.latency import constant, sloped
from router_backend.planner.routing import discard_and_return, mixture
from router_backend.planner.system import System

CONSTANT = (constant(6.0), constant(27.9))
SLOPED = (sloped(6.0, 0.1), sloped(27.9, 0.4))
A100_PAIR = System(discard_and_return(0.35), CONSTANT)
THREE_MODELS = System(mixture((0.5, 0.3, 0.2)), (constant(6.0), constant(13.5), constant(28.5)))


def constant_pair(route_probability: float) -> System:
    """The A100 pair under another probability to leave the small model."""
    return System(discard_and_return(route_probability), CONSTANT)


def sloped_pair(route_probability: float) -> System:
    """The same with a latency that grows with the batch: 6 + 0.1 (b - 1), 27.9 + 0.4 (b - 1) ms."""
    return System(discard_and_return(route_probability), SLOPED)
