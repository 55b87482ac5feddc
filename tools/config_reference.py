"""Writes the tables of docs/configuration.md from the settings in python_backend.

`python -m tools.config_reference` rewrites what is between the page's two markers; `--check` changes nothing
and fails when the tables are not the code's. A key's meaning is the text below it in the code.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import sys
from collections.abc import Sequence
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from python_backend import config
from python_backend.model_settings import ModelSettings, Settings
from tools.marked_page import DOCS, add_options, bring_up_to_date

COMMAND = "python -m tools.config_reference"
SECTIONS = (
    ("The deployment", config.Deployment),
    ("Each of `models`", ModelSettings),
    ("`policy`", config.PolicySettings),
    ("`front`", config.FrontSettings),
)
WORDS = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    tuple: "list",
    dict: "mapping",
}


def meanings(settings: type[Settings]) -> dict[str, str]:
    """Key -> the text below it in the class, on one line; keys that speak for themselves have none."""
    (body,) = ast.parse(inspect.getsource(settings)).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
            found[ast.unparse(field.target)] = " ".join(str(ast.literal_eval(text.value)).split())
    return found


def table(title: str, settings: type[Settings]) -> str:
    told = meanings(settings)
    columns = ["| key | default | allowed | meaning |", "|---|---|---|---|"]
    head = [f"### {title}", "", str(settings.__doc__), "", *columns]
    rows = [_row(name, field, told.get(name, "")) for name, field in settings.model_fields.items()]
    return "\n".join([*head, *rows])


def _row(name: str, field: FieldInfo, meaning: str) -> str:
    default = "required" if field.is_required() else _shown(field.default)
    return f"| `{name}` | {default} | {_allowed(field)} | {meaning} |"


def _shown(value: Any) -> str:
    if isinstance(value, Settings):
        return "see below"
    if value in ("", None, (), {}):
        return "none"
    return f"`{list(value) if isinstance(value, tuple) else getattr(value, 'value', value)}`"


def _allowed(field: FieldInfo) -> str:
    """The type in words and its limits."""
    limits = filter(None, map(_limit, field.metadata))
    return ", ".join([_words(field.annotation), *limits])


def _words(kind: Any) -> str:
    """A type as a reader of YAML calls it."""
    parts = get_args(kind)
    if get_origin(kind) is Literal:
        return " or ".join(map(str, parts))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return " or ".join(str(one.value) for one in kind)
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(_words(part) for part in parts if part is not NoneType)
    plain = get_origin(kind) or kind
    return WORDS.get(plain, "mapping" if issubclass(plain, Settings) else plain.__name__)


def _limit(one: object) -> str:
    for name, sign in (("ge", "at least"), ("gt", "above"), ("le", "at most"), ("lt", "below")):
        if hasattr(one, name):
            return f"{sign} {getattr(one, name)}"
    return ""


def tables() -> str:
    return "\n\n".join(table(title, settings) for title, settings in SECTIONS)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0 when the page is current (or was made so), 1 otherwise."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    add_options(parser, DOCS / "configuration.md")
    return bring_up_to_date(parser.parse_args(argv), "configuration", COMMAND, tables())


if __name__ == "__main__":
    sys.exit(main())
