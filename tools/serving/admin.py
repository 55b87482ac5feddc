"""What the supervisor asks of Triton's HTTP endpoints: load, unload, metrics.

Owns no state. Every call is bounded in time; AdminError carries Triton's own words.
"""

from __future__ import annotations

import http.client
import json
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field

from tools.metrics_page import samples_in


class AdminError(Exception):
    """Triton refused, or could not be reached."""


@dataclass(frozen=True, slots=True)
class Admin:
    """The administrator's view of one server; URLs as `http://host:port`."""

    http_url: str
    metrics_url: str
    timeout_s: float = 120.0
    """A load returns when the model is ready."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Sent along: the key of restricted endpoints, where there is one."""

    def load(self, model: str) -> None:
        self._ordered(f"{model}/load")

    def unload(self, model: str) -> None:
        self._ordered(f"{model}/unload")

    def peers_up(self) -> dict[str, bool]:
        """By model: whether every process that reports on it hears it; others are absent."""
        return peers_up(_asked("GET", self.metrics_url, 5.0, {}))

    def _ordered(self, what: str) -> None:
        _asked("POST", f"{self.http_url}/v2/repository/models/{what}", self.timeout_s, self.headers)


def peers_up(metrics: str) -> dict[str, bool]:
    """`token_router_peer_up` samples in Prometheus text, by the model that they are about."""
    found: dict[str, bool] = {}
    for one in samples_in(metrics):
        if one.name == "peer_up":
            name = one.labels["model"]
            found[name] = found.get(name, True) and one.value > 0
    return found


def _asked(method: str, url: str, timeout_s: float, headers: Mapping[str, str]) -> str:
    where = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port or 80, timeout=timeout_s)
    try:
        body = "{}" if method == "POST" else None
        connection.request(method, where.path, body=body, headers=dict(headers))
        response = connection.getresponse()
        text = response.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        raise AdminError(f"{url}: {error or type(error).__name__}") from error
    finally:
        connection.close()
    if response.status != 200:
        raise AdminError(f"{url}: {response.status}: {_reason(text)}")
    return text


def _reason(text: str) -> str:
    try:
        return str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        return text[:200]
