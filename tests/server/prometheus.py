"""A real Prometheus, on a free port of the loopback interface, that scrapes one server every half second."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.server.clients import WAIT_S, eventually
from tests.source_tree import ROOT
from tools.triton_layout import LOOPBACK, Ports, chosen_ports
from tools.triton_server import TritonServer

MONITORING = ROOT / "docker" / "monitoring"
IS_INSTALLED = shutil.which("prometheus") is not None and shutil.which("promtool") is not None


@dataclass(frozen=True)
class Prometheus:
    url: str

    def get(self, path: str, **query: str) -> Any:
        """The answer's `data`; an error of Prometheus fails the test with its words."""
        try:
            with urllib.request.urlopen(
                f"{self.url}{path}?{urllib.parse.urlencode(query)}", timeout=WAIT_S
            ) as got:
                return json.load(got)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{query}: {error.read().decode()}") from error

    def ask(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """(labels, value) of every series that the instant query finds."""
        found = self.get("/api/v1/query", query=expression)["result"]
        return [(one["metric"], float(one["value"][1])) for one in found]

    def value(self, expression: str) -> float:
        """Of a query that finds one number; NaN before there is one."""
        found = self.ask(expression)
        return found[0][1] if found else float("nan")

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=WAIT_S) as got:
                return bool(got.status == 200)
        except (OSError, urllib.error.URLError):
            return False


@contextmanager
def scraping(server: TritonServer, folder: Path) -> Iterator[Prometheus]:
    """The committed configuration with this server as its target, and evaluated often enough for a test."""
    config = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "1s"}
    config["scrape_configs"][0]["static_configs"] = [{"targets": [f"{LOOPBACK}:{server.ports.metrics}"]}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    shutil.copy(MONITORING / "alerts.yml", folder)
    address = f"{LOOPBACK}:{chosen_ports(Ports()).http}"
    command = ["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--web.listen-address={address}"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, f"--storage.tsdb.path={folder / 'data'}"], stdout=log, stderr=subprocess.STDOUT
        )
    try:
        prometheus = Prometheus(f"http://{address}")
        assert eventually(prometheus.is_ready), (folder / "prometheus.log").read_text()[-2000:]
        yield prometheus
    finally:
        process.terminate()
        process.wait(WAIT_S)
