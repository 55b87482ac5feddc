"""Policies by name, and the instances that a scheduler uses."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from types import MappingProxyType

from router_backend.core.errors import ConfigError
from router_backend.core.request import PolicySpec
from router_backend.policies.base import HoldingRouter, Place, Router
from router_backend.policies.cascade import Cascade
from router_backend.policies.citer import Citer
from router_backend.policies.co_llm import CoLlm
from router_backend.policies.drafting import Bild, Speculative
from router_backend.policies.fixed import Fixed
from router_backend.policies.guard import GuardedRouter
from router_backend.policies.mixture import Mixture
from router_backend.policies.query_level import QueryLevel
from router_backend.policies.r2r import R2R
from router_backend.policies.r_stitch import RStitch
from router_backend.policies.threshold_rules import Entropy, MaxProb, Random, RollingEntropy

Factory = Callable[[Place, PolicySpec], Router]

FACTORIES: MappingProxyType[str, Factory] = MappingProxyType(
    {
        "bild": Bild,
        "cascade": Cascade,
        "citer": Citer,
        "co_llm": CoLlm,
        "entropy": Entropy,
        "fixed": Fixed,
        "max_prob": MaxProb,
        "mixture": Mixture,
        "query_level": QueryLevel,
        "r2r": R2R,
        "r_stitch": RStitch,
        "random": Random,
        "rolling_entropy": RollingEntropy,
        "speculative": Speculative,
    }
)


NONE: MappingProxyType[str, Factory] = MappingProxyType({})


def build(spec: PolicySpec, place: Place, own: Mapping[str, Factory] = NONE) -> Router:
    """The policy that `spec` names, for one model; ConfigError names an unknown policy or parameter.

    `own` are the deployment's policies beside the built-in ones.
    """
    factory = FACTORIES.get(spec.name) or own.get(spec.name)
    if factory is None:
        known = ", ".join(sorted({*FACTORIES, *own}))
        raise ConfigError(f"policy: {spec.name!r} is unknown; known are {known}")
    return factory(place, spec)


class PolicyBook:
    """The policy instances of one model, built once per distinct spec, the least used forgotten first."""

    def __init__(self, place: Place, size_max: int = 256, own: Mapping[str, Factory] = NONE) -> None:
        self.place = place
        self.wrap: Callable[[HoldingRouter], HoldingRouter] = lambda router: router
        """What every instance is put into; the shell times decisions so."""
        self._own = own
        self._size_max = size_max
        self._routers: OrderedDict[PolicySpec, HoldingRouter] = OrderedDict()

    def router(self, spec: PolicySpec) -> HoldingRouter:
        found = self._routers.get(spec)
        if found is None:
            found = GuardedRouter(spec.name, build(spec, self.place, self._own))
            found = self._routers[spec] = self.wrap(found)
            if len(self._routers) > self._size_max:
                self._routers.popitem(last=False)
        else:
            self._routers.move_to_end(spec)
        return found
