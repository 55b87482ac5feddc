"""The front process without Triton: builds the parts, starts them, stops them in reverse.

Holds every client and runs no model code. Must never import torch or Triton; the doors bring asks
and response ports, and this gives back ids.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread

from python_backend.config import Deployment
from python_backend.loops.ask_fields import SEED_MAX
from python_backend.loops.base import Ask, ResponsePort
from python_backend.loops.front_counts import FrontSnapshot
from python_backend.loops.front_figures import samples
from python_backend.loops.front_loop import FrontLoop, FrontParts
from python_backend.loops.request_door import RequestDoor
from python_backend.roles.agreeing import read_agreement
from python_backend.roles.connecting import open_transport
from python_backend.roles.place import tokenizer_dir
from python_backend.roles.samples import identity_samples
from python_backend.roles.tracing import open_tracing
from python_backend.text.tokenizer import load_tokenizer
from python_backend.transport.base import HandoffTransport
from router_backend.core.request import RequestId

DRAIN_S = 5.0
"""What open requests get to finish in when the server stops."""
JOIN_S = 5.0
"""What the threads may take to end after the requests have ended."""


class Front:
    """One door's front. `endpoint` is the name of its Triton model; ConfigError if it cannot be built."""

    def __init__(
        self,
        deployment: Deployment,
        repository: Path,
        endpoint: str,
        transport: HandoffTransport | None = None,
    ) -> None:
        self._names = deployment.names
        self._subservers = deployment.subservers
        self._identity = identity_samples(deployment, "front")
        text = load_tokenizer(tokenizer_dir(deployment, repository))
        dice = random.SystemRandom()
        agreement = read_agreement(deployment, repository)
        door = RequestDoor(deployment, agreement, text, endpoint, lambda: dice.randint(0, SEED_MAX))
        self._readers = ThreadPoolExecutor(1, thread_name_prefix="door")
        self._transport = transport or open_transport(deployment, repository, endpoint)
        parts = FrontParts(deployment, endpoint, dice.getrandbits(48), door, text, self._readers)
        self._loop = FrontLoop(parts, self._transport, time.monotonic)
        self._tracing = open_tracing(os.environ, deployment.names, deployment.entry_index, endpoint)
        if self._tracing is not None:
            self._loop.trace(self._tracing.note)
        self._thread = Thread(target=self._loop.run, name="front", daemon=True)

    def start(self) -> None:
        self._thread.start()
        if self._tracing is not None:
            self._tracing.start()

    def submit(self, ask: Ask, port: ResponsePort) -> RequestId:
        """Take over a client and return at once; see `FrontLoop.submit`."""
        return self._loop.submit(ask, port)

    def cancel(self, request_id: RequestId) -> None:
        """The client is gone. From any thread, as often as it is noticed."""
        self._loop.cancel(request_id)

    def picture(self) -> FrontSnapshot:
        """How things stood at the last heartbeat."""
        return self._loop.snapshot()

    def snapshot(self) -> Mapping[str, float]:
        """The same as flat samples for the metrics page."""
        refused = {"peers_refused_total": float(self._transport.refused)}
        return samples(self._loop.snapshot(), self._names, self._subservers) | refused | self._identity

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def stop(self, within_s: float = DRAIN_S) -> None:
        """Finish the open requests or end them with an error within this time, then free everything."""
        self._loop.stop(within_s)
        if self._thread.ident is not None:
            self._thread.join(within_s + JOIN_S)
        self._readers.shutdown(wait=False, cancel_futures=True)
        if self._tracing is not None:
            self._tracing.stop()
        if not self._thread.is_alive():
            self._transport.close()

