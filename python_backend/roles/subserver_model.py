"""The Triton model of one subserver: what requests are routed to, callable alone with token ids."""

from __future__ import annotations

import os
from collections.abc import Mapping

from python_backend.loops.base import Ask, ResponsePort
from python_backend.loops.flat_samples import Samples
from python_backend.roles.door import TOKENS_TONGUE, Door
from python_backend.roles.place import Place
from python_backend.roles.samples import familiar_samples, identity_samples, subserver_samples
from python_backend.roles.subserver import Subserver, build_subserver
from router_backend.core.errors import ConfigError
from router_backend.core.request import RequestId


class SubserverService:
    """A subserver as a door sees it."""

    def __init__(self, subserver: Subserver, identity: Samples) -> None:
        self._subserver = subserver
        self._identity = identity

    def start(self) -> None:
        self._subserver.start()

    def submit(self, ask: Ask, port: ResponsePort) -> RequestId:
        return self._subserver.ask(ask, port)

    def cancel(self, handle: RequestId) -> None:
        self._subserver.cancel(handle)

    def snapshot(self) -> Mapping[str, float]:
        figures = self._subserver.snapshot()
        return {
            **subserver_samples(figures),
            **familiar_samples(figures),
            **self._identity,
            "healthy": self._subserver.is_healthy,
            "seconds_since_progress": self._subserver.stalled_s,
        }

    def stop(self) -> None:
        self._subserver.stop()


def subserver_door(place: Place) -> Door:
    """The Triton model's name is that of the subserver."""
    deployment = place.deployment()
    if place.name not in deployment.subservers:
        raise ConfigError(f"{place.name}: not a model of the deployment, which has {deployment.subservers}")
    subserver = build_subserver(deployment, place.name, place.repository, os.environ)
    identity = identity_samples(deployment, deployment.served(place.name).engine)
    service = SubserverService(subserver, identity)
    return Door(service, TOKENS_TONGUE, deployment.front.cancel_poll_ms / 1000, {"model": place.name})
