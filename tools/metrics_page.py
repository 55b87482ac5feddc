"""This project's samples of a server's metrics page (Prometheus text), and sums of them."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass

WAIT_S = 10.0
_SAMPLE = re.compile(r"^token_router_(\w+)\{([^}]*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


class MetricsPageError(Exception):
    """There is nothing to read; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Sample:
    """`name` without the prefix `token_router_`."""

    name: str
    labels: dict[str, str]
    value: float


def samples_in(text: str) -> list[Sample]:
    """Of this project, in the page's order."""
    return [
        Sample(name, dict(_LABEL.findall(labels)), float(value))
        for name, labels, value in _SAMPLE.findall(text)
    ]


def read(url: str) -> list[Sample]:
    """The page's samples of this project; MetricsPageError when nobody answers or there are none."""
    try:
        with urllib.request.urlopen(url, timeout=WAIT_S) as page:
            text = page.read().decode()
    except (urllib.error.URLError, TimeoutError, ConnectionError, ValueError) as error:
        raise MetricsPageError(
            f"no metrics at {url} ({error}): start a server with `make serve`, or give --url"
        ) from error
    found = samples_in(text)
    if not found:
        raise MetricsPageError(f"{url} has no metrics of TokenRouter: is it another server's page?")
    return found


def total(samples: Iterable[Sample], name: str, **labels: str) -> float:
    """Sum of the samples of `name` that carry these labels; 0 where there are none yet."""
    wanted = labels.items()
    return sum(one.value for one in samples if one.name == name and wanted <= one.labels.items())
