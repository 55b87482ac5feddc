"""A server that others can reach keeps the endpoints that change it to itself."""

from __future__ import annotations

from tools.serving.exposure import Exposure, exposure


def test_on_the_loopback_interface_nothing_is_added() -> None:
    assert exposure("127.0.0.1") == Exposure((), ())


def test_anywhere_else_both_protocols_ask_for_the_key_of_this_run() -> None:
    first, second = exposure("0.0.0.0"), exposure("0.0.0.0")
    ((header, key),) = first.headers
    rule = f"model-repository,shared-memory,trace,logging:{header}={key}"
    assert first.arguments == (f"--http-restricted-api={rule}", f"--grpc-restricted-protocol={rule}")
    assert len(key) == 32
    assert first.headers != second.headers
