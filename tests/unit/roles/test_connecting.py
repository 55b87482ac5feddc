"""From a deployment to a listening endpoint, and the deployments that are refused before."""

from __future__ import annotations

from pathlib import Path

import pytest

from python_backend.config import Deployment, parse_deployment
from python_backend.roles.connecting import open_transport
from python_backend.transport.base import Peer
from python_backend.transport.keyring import write_keys
from router_backend.core.errors import ConfigError
from tests.free_ports import free_addresses


def tcp(addresses: dict[str, str], **settings: object) -> Deployment:
    given = {"models": [{"name": name} for name in ("small", "large")], "transport": "tcp"}
    return parse_deployment(str({**given, "addresses": addresses, **settings}), "test")


@pytest.mark.parametrize("keys", ["", "keys"])
def test_endpoints_of_a_tcp_deployment_find_each_other(tmp_path: Path, keys: str) -> None:
    deployment = tcp(free_addresses(["small", "large"]), keys=keys)
    assert arrived(deployment, tmp_path) == [("small", [b"x"])]


def arrived(deployment: Deployment, folder: Path) -> list[tuple[str, list[bytes]]]:
    """What the large model hears after the small one has posted `x`."""
    write_keys(folder / "keys", deployment.endpoints)
    small, large = (open_transport(deployment, folder, name) for name in deployment.names)
    small.post(Peer("large"), [b"x"])
    # TCP with keys answers the handshake in its own poll.
    found = next(found for found in (large.poll(0.1) for _ in range(200)) if found)
    for transport in (small, large):
        transport.close()
    return found


def test_ipc_is_the_default_and_lies_in_the_private_folder(tmp_path: Path) -> None:
    deployment = parse_deployment("models: [{name: small}]", "test")
    transport = open_transport(deployment, tmp_path, "small", {"TOKEN_ROUTER_RUN_DIR": str(tmp_path / "run")})
    found = [path.name for path in (tmp_path / "run").iterdir()]
    transport.close()

    assert (deployment.transport, found) == ("ipc", ["small.ipc"])


OUTSIDE = {"small": "127.0.0.1:1", "large": "10.0.0.2:2"}


def test_tcp_without_keys_stays_on_the_loopback_interface_unless_told_otherwise() -> None:
    with pytest.raises(ConfigError, match=r"keys: 10.0.0.2:2 can be reached from other machines: make keys"):
        tcp(OUTSIDE)
    with pytest.raises(ConfigError, match=r"keys: example:2 can be reached"):
        tcp({**OUTSIDE, "large": "example:2"})
    for allowed in (
        tcp(OUTSIDE, insecure=True),
        tcp(OUTSIDE, keys="keys"),
        tcp({"small": "localhost:1", "large": "[::1]:2"}),
    ):
        assert allowed.transport == "tcp"


def test_a_model_without_an_address_and_an_address_without_a_port_are_named() -> None:
    with pytest.raises(ConfigError, match=r"addresses: 'large' is missing: give its host:port"):
        tcp({"small": "127.0.0.1:1"})
    with pytest.raises(ConfigError, match=r"addresses.large: String should match pattern"):
        tcp({"small": "127.0.0.1:1", "large": "10.0.0.2"})


def test_who_listens_elsewhere_is_found_at_its_address(tmp_path: Path) -> None:
    """As in a container: it listens on all interfaces, its peers know it by a name."""
    ports = {name: address.rpartition(":")[2] for name, address in free_addresses(["small", "large"]).items()}
    addresses = {"small": f"127.0.0.1:{ports['small']}", "large": f"localhost:{ports['large']}"}
    deployment = tcp(addresses, keys="keys", listen={"large": f"0.0.0.0:{ports['large']}"})
    assert arrived(deployment, tmp_path) == [("small", [b"x"])]


INSIDE = {"small": "127.0.0.1:1", "large": "localhost:2"}


def test_a_listener_on_all_interfaces_needs_keys_however_it_is_reached() -> None:
    listen = {"large": "0.0.0.0:2"}
    with pytest.raises(ConfigError, match=r"keys: 0.0.0.0:2 can be reached from other machines"):
        tcp(INSIDE, listen=listen)
    assert tcp(INSIDE, listen=listen, keys="keys").listen == listen
    assert tcp(INSIDE, listen=listen, insecure=True).listen == listen


@pytest.mark.parametrize("address", ["0.0.0.0:2", "[::]:2"])
def test_an_address_that_only_a_listener_can_use_is_refused_with_the_cure(address: str) -> None:
    with pytest.raises(ConfigError, match=r"addresses.large: .* no place that peers can reach: move it"):
        tcp({**INSIDE, "large": address}, keys="keys")


def test_a_listener_that_nobody_could_find_and_one_without_a_port_are_named() -> None:
    with pytest.raises(ConfigError, match=r"listen: 'router' has no entry in addresses: give the host:port"):
        tcp(INSIDE, listen={"router": "127.0.0.1:3"})
    with pytest.raises(ConfigError, match=r"listen.large: String should match pattern"):
        tcp(INSIDE, listen={"large": "0.0.0.0"})
