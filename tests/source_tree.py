"""The repository as the tests of its shape see it: which files there are, parsed once.

Reads only. Generated and installed files (what git ignores) are not part of it.
"""

from __future__ import annotations

import ast
import subprocess
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CORE = "router_backend"
SHELL = "python_backend"
PACKAGES = (CORE, SHELL)
SOURCE = (*PACKAGES, "tools", "docker")

Definition = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Function:
    """A function's body without its docstring, and what a reader must hold in mind to call it."""

    where: str
    node: Definition
    lines: int
    is_method: bool

    @property
    def parameters(self) -> int:
        arguments = self.node.args
        named = len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs)
        has_self = self.is_method and not _has_decorator(self.node, "staticmethod")
        return named + bool(arguments.vararg) + bool(arguments.kwarg) - has_self

    @property
    def is_stub(self) -> bool:
        """Nothing but a docstring and `...`: the member of a Protocol."""
        return all(_is_constant(statement) for statement in self.node.body)


@dataclass(frozen=True)
class Module:
    """One Python file."""

    path: Path
    text: str = field(repr=False)
    tree: ast.Module = field(repr=False)

    @property
    def where(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @property
    def name(self) -> str:
        parts = self.path.relative_to(ROOT).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def package(self) -> str:
        """The package that relative imports start from."""
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())

    def functions(self) -> list[Function]:
        return [
            Function(f"{self.where}:{node.lineno} {node.name}", node, _body_lines(node), is_method)
            for node, is_method in _definitions(self.tree)
        ]

    def classes(self) -> list[ast.ClassDef]:
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef)]


@cache
def tracked_files() -> tuple[Path, ...]:
    """Every file that is, or could be, committed."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    paths = (ROOT / name for name in listed.stdout.split("\0") if name)
    return tuple(sorted(path for path in paths if path.is_file()))


@cache
def modules(*folders: str) -> tuple[Module, ...]:
    """The Python files under these top-level folders."""
    wanted = [path for path in tracked_files() if path.suffix == ".py"]
    inside = [path for path in wanted if path.relative_to(ROOT).parts[0] in folders]
    return tuple(_parsed(path) for path in inside)


def _parsed(path: Path) -> Module:
    text = path.read_text()
    return Module(path, text, ast.parse(text, str(path)))


def _definitions(tree: ast.AST) -> list[tuple[Definition, bool]]:
    found = []
    for parent in ast.walk(tree):
        for child in ast.iter_child_nodes(parent):
            if isinstance(child, Definition):
                found.append((child, isinstance(parent, ast.ClassDef)))
    return found


def _body_lines(node: Definition) -> int:
    """Lines of code from `def` to the end, docstring and blank lines not counted."""
    assert node.end_lineno is not None
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    if not body:
        return 1
    first = body[0].lineno
    signature = node.body[0].lineno - node.lineno
    return max(1, signature) + node.end_lineno - first + 1 if first > node.lineno else 1


def _is_constant(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _has_decorator(node: Definition, name: str) -> bool:
    return any(isinstance(item, ast.Name) and item.id == name for item in node.decorator_list)
