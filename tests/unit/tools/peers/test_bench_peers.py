"""A system that cannot be measured costs the others nothing."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from types import MappingProxyType

import pytest

from tests.unit.tools.peers.test_closed_loop import Instant
from tools import bench_peers
from tools.peers.standard import StandardError
from tools.peers.systems import Kit


class Refusing(Instant):
    async def answer(self, question: object) -> AsyncIterator[tuple[int, int]]:
        raise StandardError("the server is gone")
        yield 1, 0


def always(system: Instant) -> object:
    @contextlib.asynccontextmanager
    async def opened(kit: Kit) -> AsyncIterator[Instant]:
        yield system

    return opened


def test_the_others_are_measured_and_the_failure_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    systems = {"broken": always(Refusing()), "whole": always(Instant())}
    monkeypatch.setattr(bench_peers, "SYSTEMS", MappingProxyType(systems))
    monkeypatch.setattr(bench_peers, "random_pair", lambda folder: bench_peers.Pair(folder, folder))
    monkeypatch.setattr(bench_peers.Pair, "vocab_size", property(lambda pair: 128))
    options = ["--systems", *systems, "--concurrency", "2", "--output", "4", "--repeat", "1", "--json"]

    assert bench_peers.main(options) == 1
    document = json.loads(capsys.readouterr().out)
    assert [row["system"] for row in document["rows"]] == ["whole"]
    assert document["failures"] == ["broken: the server is gone"]
