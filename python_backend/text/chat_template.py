"""Renders a chat with the template that came with the model.

The template is code from a model directory: it runs in jinja2's immutable sandbox with the few
names that Hugging Face templates expect, and can reach nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import meta
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from router_backend.core.errors import ConfigError, RequestError

_FAULTS = (jinja2.TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError)
"""What a template that meets a chat it was not written for can raise."""


class ChatTemplate:
    """`tokens` are the special tokens by name (`bos_token`, `eos_token`, ...) as text."""

    def __init__(
        self, source: str, tokens: Mapping[str, str], now: Callable[[], datetime] = datetime.now
    ) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = lambda form: now().strftime(form)
        self._tokens = dict(tokens)
        try:
            parsed = environment.parse(source)
            self._template = environment.from_string(parsed)
        except jinja2.TemplateSyntaxError as error:
            raise ConfigError(f"chat_template: line {error.lineno}: {error.message}") from error
        self._shows_tools = "tools" in meta.find_undeclared_variables(parsed)

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        """The prompt up to where the assistant speaks; RequestError where the template objects, and where it
        would not show the `tools` to the model."""
        if tools and not self._shows_tools:
            raise RequestError("tools: the model's chat template does not show tools: leave them out")
        names = {"messages": messages, "tools": tools or None, "add_generation_prompt": True}
        try:
            return self._template.render(**names, **self._tokens)
        except _FAULTS as error:
            raise RequestError(f"messages: the model's chat template refuses them: {error}") from error


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _to_json(value: object, ensure_ascii: bool = False, indent: int | None = None) -> str:
    """Plain JSON; jinja2's own filter escapes HTML, which would change the prompt."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)
