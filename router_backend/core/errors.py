"""The errors of the system, one tree.

A request error ends that request, a runner error ends the requests of its batch, and a broken
invariant (an `AssertionError`, never one of these) stops the subserver loudly.
"""

from __future__ import annotations


class RouterError(Exception):
    """Base of every error that this project raises about the world."""

    code = "TR_ERROR"

    def __str__(self) -> str:
        return f"{self.code}: {super().__str__()}"


class ConfigError(RouterError):
    """A configuration value cannot be used; the message names the key and the cure."""

    code = "TR_CONFIG"


class RequestError(RouterError):
    """A client's request cannot be served as written; the message names the field."""

    code = "TR_INVALID_ARGUMENT"


class CapacityError(RouterError):
    """There is no room: a queue is full, or the request can never fit a pool."""

    code = "TR_CAPACITY"


class ProtocolError(RouterError):
    """Two processes disagree about a request."""

    code = "TR_PROTOCOL"


class LocalProtocolError(ProtocolError):
    """We were about to do something that the protocol forbids."""


class RemoteProtocolError(ProtocolError):
    """A peer sent something that the protocol forbids."""


class PeerLostError(RouterError):
    """A process that held the request is gone."""

    code = "TR_PEER_LOST"


class PolicyError(RouterError):
    """A routing policy raised, or answered nonsense."""

    code = "TR_POLICY"


class RunnerError(RouterError):
    """The engine failed to execute a batch."""

    code = "TR_RUNNER"


class EngineLostError(RunnerError):
    """The engine is gone, and every KV cache with it: the subserver cannot go on."""
