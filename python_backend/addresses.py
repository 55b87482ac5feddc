"""Which addresses a deployment over TCP may name: where endpoints are reached, and where they listen.

Judges text only: looks no name up and opens no socket. The invariant: what can be reached from other machines
is protected, by keys or by the operator's word.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping


def address_problem(
    addresses: Mapping[str, str], listen: Mapping[str, str], needed: Iterable[str], is_protected: bool
) -> str:
    """What is wrong with host:port by endpoint, with the key and the cure; empty if nothing is."""
    for name in needed:
        if name not in addresses:
            return f"addresses: {name!r} is missing: give its host:port"
    for name in listen:
        if name not in addresses:
            return f"listen: {name!r} has no entry in addresses: give the host:port at which peers reach it"
    for name, address in addresses.items():
        if is_everywhere(address):
            return (
                f"addresses.{name}: {address} is no place that peers can reach: move it to listen, and give "
                "the host's own name or address here"
            )
    outside = [address for address in (*addresses.values(), *listen.values()) if not is_loopback(address)]
    if outside and not is_protected:
        return (
            f"keys: {outside[0]} can be reached from other machines: make keys with python -m "
            "tools.make_keys and name their folder, or set insecure: true"
        )
    return ""


def is_loopback(address: str) -> bool:
    """Can host:port be reached from this machine only."""
    try:
        return ipaddress.ip_address(_host(address)).is_loopback
    except ValueError:
        return _host(address) == "localhost"


def is_everywhere(address: str) -> bool:
    """Does host:port stand for all interfaces of a host (0.0.0.0, [::]), which helps a listener only."""
    try:
        return ipaddress.ip_address(_host(address)).is_unspecified
    except ValueError:
        return False


def _host(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")
