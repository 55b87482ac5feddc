"""Every system by name, as something that can be opened, asked and closed.

The composition root of the benchmark: it alone knows which servers a system consists of.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import aiohttp

from tools.peer_environments import environment_python
from tools.peers import routed, servers, standard
from tools.peers.closed_loop import System
from tools.peers.pair import NAMES, THIN, Pair, random_pair
from tools.triton_server import TritonServer

ONE_TOKEN_TIMEOUT_S = 300.0
DRAFT_TOKENS = 4
"""How many tokens the small model drafts before the large one checks them."""


@dataclass(frozen=True, slots=True)
class Kit:
    """What systems are made from. `tokens_max` is the longest text, `callers_max` the most clients."""

    pair: Pair
    folder: Path
    tokens_max: int
    callers_max: int
    tell: Callable[[str], None]


Opener = Callable[[Kit], AbstractAsyncContextManager[System]]


def ours(mode: str, policy: str, options: dict[str, Any]) -> Opener:
    """Our server in `mode`, every request under `policy`."""

    @contextlib.asynccontextmanager
    async def opened(kit: Kit) -> AsyncIterator[System]:
        with routed.serving(kit.pair, kit.folder / "server", mode) as server:
            async with routed.asked(server, policy, options) as system:
                yield system

    return opened


@contextlib.asynccontextmanager
async def thin_attention(kit: Kit) -> AsyncIterator[System]:
    """Ours with hardly any attention in its models: how the cost of the rest grows with the text."""
    thin = replace(kit, pair=random_pair(kit.folder / "thin", THIN))
    async with ours("eager_async", "random", {})(thin) as system:
        yield system


@contextlib.asynccontextmanager
async def standard_ours(kit: Kit) -> AsyncIterator[System]:
    with routed.serving(kit.pair, kit.folder / "server", "eager_async") as server:
        async with called_by_token(server) as system:
            yield system


@contextlib.asynccontextmanager
async def called_by_token(server: TritonServer) -> AsyncIterator[standard.Standard]:
    """The models of our running server, each asked for one token at a time."""
    by_token = [standard.Ours(f"{server.http_url}/v2/models/{name}/generate") for name in NAMES]
    async with _session() as session:
        yield standard.Standard(by_token, session, [server.pid])


@contextlib.asynccontextmanager
async def standard_vllm(kit: Kit) -> AsyncIterator[System]:
    python = environment_python("vllm", kit.tell)
    launches = [
        servers.vllm_launch(python, model, kit.tokens_max, core, kit.folder / f"vllm-{name}.log")
        for core, (name, model) in enumerate(kit.pair.folders.items())
    ]
    with servers.running(*launches) as found:
        by_token = [
            standard.Vllm(f"{one.url}/v1/completions", str(model))
            for one, model in zip(found, kit.pair.folders.values(), strict=True)
        ]
        async with _session() as session:
            yield standard.Standard(by_token, session, [one.pid for one in found])


@contextlib.asynccontextmanager
async def standard_llama_cpp(kit: Kit) -> AsyncIterator[System]:
    python = environment_python("llama_cpp", kit.tell)
    slots = servers.Slots(kit.callers_max, kit.tokens_max)
    launches = [
        servers.llama_launch(python, model, slots, kit.folder / f"llama_cpp-{name}.log")
        for name, model in kit.pair.folders.items()
    ]
    with servers.running(*launches) as found:
        by_token = [standard.LlamaCpp(f"{one.url}/completion") for one in found]
        async with _session() as session:
            yield standard.Standard(by_token, session, [one.pid for one in found])


@contextlib.asynccontextmanager
async def research_loop(kit: Kit) -> AsyncIterator[System]:
    from tools.peers.research_loop import ResearchLoop

    with contextlib.closing(ResearchLoop(kit.pair)) as system:
        yield system


@contextlib.asynccontextmanager
async def assisted(kit: Kit) -> AsyncIterator[System]:
    from tools.peers.assisted import Assisted

    with contextlib.closing(Assisted(kit.pair)) as system:
        yield system


SYSTEMS = MappingProxyType(
    {
        **{mode: ours(mode, "random", {}) for mode in routed.MODES},
        "small_only": ours("eager_async", "fixed", {"mode": "never", "entry": "small"}),
        "large_only": ours("eager_async", "fixed", {"mode": "never", "entry": "large"}),
        "speculative": ours("eager_async", "speculative", {"k": DRAFT_TOKENS}),
        "standard_ours": standard_ours,
        "standard_vllm": standard_vllm,
        "standard_llama_cpp": standard_llama_cpp,
        "research_loop": research_loop,
        "assisted_generation": assisted,
        "thin_attention": thin_attention,
    }
)
COMPARED = tuple(name for name in SYSTEMS if name != "thin_attention")


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=ONE_TOKEN_TIMEOUT_S)
    )
