"""The Triton models in front: `token_router` (door "text") and the ensemble's `router` (door "ensemble")."""

from __future__ import annotations

from python_backend.roles.cancel_bridge import CancelListener, bridge_endpoint
from python_backend.roles.door import TONGUES, Door
from python_backend.roles.front import Front
from python_backend.roles.place import Place, socket_dir
from python_backend.transport.unix_transport import UnixTransport
from router_backend.core.errors import ConfigError


def front_door(place: Place) -> Door:
    deployment = place.deployment()
    kind = place.parameter("door", "text")
    if kind not in TONGUES:
        raise ConfigError(f"{place.name}: parameter door: {kind!r} is not one of {sorted(TONGUES)}")
    service = Front(deployment, place.repository, place.name)
    door = Door(service, TONGUES[kind], deployment.front.cancel_poll_ms / 1000, {"door": place.name})
    if kind == "ensemble":
        transport = UnixTransport(socket_dir(deployment), bridge_endpoint(place.name))
        door.listen_for_cancels(CancelListener(transport, door.cancel_uid))
    return door
