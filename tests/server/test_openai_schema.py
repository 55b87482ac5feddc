"""Requests generated from our own OpenAPI description: no answer is a fault of the server.

Without schemathesis' own pytest plugin, which does not know this pytest.
"""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from python_backend.openai.app import ServerSettings, create_app

pytestmark = pytest.mark.server

MAX_TOKENS = 8
CHECKS = (
    not_a_server_error,
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
API = create_app(ServerSettings()).openapi()
OPERATIONS = [(path, method.upper()) for path, methods in API["paths"].items() for method in methods]
CHAT = [{"role": "user", "content": "turn lift 42"}]
HOPELESS = ("n", "best_of", "logprobs", "top_logprobs", "suffix", "tools", "tool_choice", "response_format")
"""Fields that a random value almost always has refused."""
BOUNDED = settings(
    max_examples=25,
    derandomize=True,
    database=None,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)


def fitting(body: dict[str, Any]) -> dict[str, Any]:
    """For the model that is there, short, and without what is always refused, so that it gets to the door."""
    kept = {name: value for name, value in body.items() if name not in HOPELESS}
    prompt = {"messages": CHAT} if "messages" in body else {"prompt": "turn lift 42"}
    return {**kept, **prompt, "model": "token_router", "max_tokens": MAX_TOKENS}


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_no_request_makes_the_server_fail(openai_url: str, path: str, method: str) -> None:
    schema = schemathesis.openapi.from_dict(API)
    schema.config.update(base_url=openai_url)
    strategy: Any = schema[path][method].as_strategy()

    @BOUNDED
    @given(case=strategy)
    def send(case: Any) -> None:
        if isinstance(case.body, dict) and len(str(case.body)) % 2:
            case.body = fitting(case.body)
        seen.add(case.call_and_validate(checks=CHECKS).status_code)

    seen: set[int] = set()
    send()
    assert seen
    if method == "POST":
        assert {200, 400} <= seen, seen
