"""Our own client: one thread per client, streams over gRPC. Needs nothing that is not here already."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from python_backend.client.errors import ClientError
from python_backend.client.options import Options
from python_backend.client.sync_client import TokenRouterClient
from tools.loading.work import Seen, Target, Work


def load(target: Target, work: Work, folder: Path) -> list[Seen]:
    """A closed loop: each client asks again as soon as its answer has ended."""
    del folder
    prompts = itertools.islice(itertools.cycle(work.prompts), work.requests)
    turns = threading.Lock()
    with TokenRouterClient(target.grpc) as client, ThreadPoolExecutor(work.clients) as pool:
        jobs = [pool.submit(_client, client, work, prompts, turns) for _ in range(work.clients)]
        return [seen for job in jobs for seen in job.result()]


def _client(
    client: TokenRouterClient, work: Work, prompts: Iterator[str], turns: threading.Lock
) -> list[Seen]:
    found = []
    while True:
        with turns:
            prompt = next(prompts, None)
        if prompt is None:
            return found
        found.append(_asked(client, prompt, Options(max_tokens=work.max_tokens)))


def _asked(client: TokenRouterClient, prompt: str, options: Options) -> Seen:
    asked_at = time.perf_counter()
    first_at: float | None = None
    try:
        with client.stream(prompt, options) as chunks:
            for _ in chunks:
                first_at = first_at or time.perf_counter()
    except ClientError as error:
        return Seen(asked_at, None, time.perf_counter(), str(error))
    return Seen(asked_at, first_at, time.perf_counter())
