"""Who may import whom (design rules 1 and 3): the core decides, the shell performs.

A rule is a table here; a failure prints the file, the line and the import that breaks it.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.source_tree import CORE, PACKAGES, ROOT, SHELL, SOURCE, Module, modules

PURE_STANDARD_LIBRARY = {
    *("__future__", "abc", "array", "bisect", "collections", "contextlib", "copy", "dataclasses", "enum"),
    *("fractions", "functools", "hashlib", "heapq", "itertools", "json", "math", "operator", "re"),
    *("statistics", "string", "struct", "types", "typing", "unicodedata", "warnings"),
}
"""What the core may use of the standard library: no clock, thread, socket, file, process or chance."""

CORE_LAYERS = {
    "core": set(),
    "native": set(),
    "kvcache": {"core", "native"},
    "handoff": {"core"},
    "stream": {"core", "handoff"},
    "policies": {"core", "handoff", "scheduler", "stream", "kvcache"},
    "scheduler": {"core", "handoff", "kvcache", "policies", "stream"},
    "simulation": {"core", "handoff", "kvcache", "policies", "scheduler", "stream"},
    "planner": {"core", "native"},
}
PLANNER_MAY_SEE = {"router_backend.core.errors"}
"""The planner knows numbers only: of the words of the core, nothing but the error tree."""

SEALED = ("runner", "transport", "server")
"""Folders of the shell that never import each other; `loops` see only their `base`."""

RECORDS = ("router_backend/core/record.py", "router_backend/handoff/codec.py")
"""The two modules of the core that know msgspec, a pure function of its arguments: what a record is, and its
bytes."""

THIRD_PARTY_HOMES = {
    "msgspec": (*RECORDS, "python_backend/transport/letters.py"),
    "pydantic": (
        *("python_backend/config.py", "python_backend/model_settings.py"),
        *("python_backend/runner/heads/", "python_backend/openai/"),
        "tools/",
    ),
    "yaml": ("python_backend/config.py", "tools/"),
    "opentelemetry": ("python_backend/roles/tracing.py",),
    "zmq": ("python_backend/transport/", "tools/bench_handoff.py"),
    "triton_python_backend_utils": ("python_backend/server/", "python_backend/model.py"),
    "torch": (
        *("python_backend/runner/torch_runner/", "python_backend/runner/trtllm_runner/"),
        *("python_backend/runner/heads/", "tools/"),
    ),
    "safetensors": ("python_backend/runner/torch_runner/", "python_backend/runner/heads/", "tools/"),
    "tensorrt_llm": ("python_backend/runner/trtllm_runner/", "tools/trtllm_tap.py"),
    "aiohttp": ("tools/",),
    "gguf": ("tools/peers/programs/",),
    "xllamacpp": ("tools/peers/programs/",),
    "tokenizers": ("python_backend/text/", "tools/"),
    "jinja2": ("python_backend/text/", "tools/"),
    "transformers": ("tools/",),
    "tritonclient": ("python_backend/client/", "tools/"),
    "grpc": ("python_backend/client/", "tools/bench_slow_reader.py"),
    "fastapi": ("python_backend/openai/",),
    "starlette": ("python_backend/openai/",),
    "uvicorn": ("python_backend/openai/", "tools/"),
    "rich": ("tools/",),
    "typer": ("tools/cli.py",),
    "matplotlib": ("tools/",),
}
EVERYWHERE = {"numpy"}
HEADS_ON_A_DEVICE = {
    f"python_backend.runner.heads.{name}" for name in ("loading", "modules", "named_tensors")
}
"""The part of the router heads that needs torch; a front reads cards and vocabularies only."""


@dataclass(frozen=True)
class Import:
    module: Module
    line: int
    target: str
    is_at_load: bool
    """False inside a function or under TYPE_CHECKING: it cannot close a cycle."""

    def __str__(self) -> str:
        return f"{self.module.where}:{self.line} imports {self.target}"

    @property
    def top(self) -> str:
        return self.target.partition(".")[0]


def _targets(module: Module, node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = node.module or ""
    if node.level:
        above = module.package.split(".")[: len(module.package.split(".")) - node.level + 1]
        base = ".".join([*above, base] if base else above)
    return [f"{base}.{alias.name}" for alias in node.names]


def _walk(node: ast.AST, is_at_load: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, is_at_load
        else:
            is_deferred = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) or (
                isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)
            )
            yield from _walk(child, is_at_load and not is_deferred)


def imports(*folders: str) -> list[Import]:
    return [
        Import(module, node.lineno, target, is_at_load)
        for module in modules(*folders)
        for node, is_at_load in _walk(module.tree, True)
        for target in _targets(module, node)
    ]


def _folder(dotted: str) -> str:
    return [*dotted.split("."), ""][1]


def _breaches(found: list[Import]) -> str:
    return "\n".join(str(item) for item in found)


def test_the_core_never_imports_the_shell_the_tools_or_the_tests() -> None:
    wrong = [item for item in imports(CORE) if item.top in {SHELL, "tools", "tests", "docker"}]
    assert not wrong, _breaches(wrong)


def test_the_core_uses_only_the_pure_part_of_the_standard_library_numpy_and_for_records_msgspec() -> None:
    allowed = PURE_STANDARD_LIBRARY | EVERYWHERE | {CORE}
    wrong = [
        item
        for item in imports(CORE)
        if item.top not in allowed
        and not (item.top == "msgspec" and item.module.where in RECORDS)
    ]
    assert not wrong, _breaches(wrong)


def test_the_core_uses_no_global_randomness() -> None:
    wrong = [
        f"{module.where}:{node.lineno}"
        for module in modules(CORE)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute)
        and node.attr == "random"
        and ast.unparse(node.value) in {"np", "numpy"}
        and not _is_seeded_generator(module, node)
    ]
    assert not wrong, wrong


def _is_seeded_generator(module: Module, node: ast.Attribute) -> bool:
    line = module.text.splitlines()[node.lineno - 1]
    return any(name in line for name in ("np.random.Generator", "np.random.default_rng(", "np.random.PCG64("))


def test_folders_of_the_core_import_downwards() -> None:
    wrong = []
    for item in imports(CORE):
        here, there = _folder(item.module.name), _folder(item.target)
        if item.top == CORE and here and there != here and there not in CORE_LAYERS[here]:
            wrong.append(item)
    assert not wrong, _breaches(wrong)


def test_the_planner_knows_only_numbers() -> None:
    wrong = [
        item
        for item in imports(CORE)
        if _folder(item.module.name) == "planner"
        and item.target.startswith("router_backend.core")
        and not any(item.target.startswith(allowed) for allowed in PLANNER_MAY_SEE)
    ]
    assert not wrong, _breaches(wrong)


def test_runner_transport_and_server_never_import_each_other() -> None:
    wrong = [
        item
        for item in imports(SHELL)
        if item.top == SHELL
        and _folder(item.module.name) in SEALED
        and _folder(item.target) in {*SEALED, "loops", "roles"} - {_folder(item.module.name)}
        and not item.target.startswith("python_backend.loops.base")
    ]
    assert not wrong, _breaches(wrong)


def test_loops_see_only_the_base_of_runner_transport_and_server() -> None:
    wrong = [
        item
        for item in imports(SHELL)
        if _folder(item.module.name) == "loops"
        and item.top == SHELL
        and _folder(item.target) in {*SEALED, "roles"}
        and item.target.split(".")[2:3] != ["base"]
    ]
    assert not wrong, _breaches(wrong)


CLIENT_SIDE = {
    "client": ("python_backend.client", "python_backend.server.contracts"),
    "openai": ("python_backend.openai", "python_backend.client"),
}
"""What runs in a process of a client's own, and all that it may see of this project."""


@pytest.mark.parametrize("folder", CLIENT_SIDE)
def test_a_client_sees_nothing_of_the_server_but_the_table_of_its_tensors(folder: str) -> None:
    wrong = [
        item
        for item in imports(SHELL)
        if item.top in SOURCE
        and _folder(item.module.name) == folder
        and not item.target.startswith(CLIENT_SIDE[folder])
    ]
    assert not wrong, _breaches(wrong)


def test_the_server_knows_nothing_of_its_clients() -> None:
    wrong = [
        item
        for item in imports(CORE, SHELL)
        if item.top == SHELL
        and _folder(item.target) in CLIENT_SIDE
        and _folder(item.module.name) not in CLIENT_SIDE
    ]
    assert not wrong, _breaches(wrong)


def test_only_the_entry_module_imports_the_roles() -> None:
    wrong = [
        item
        for item in imports(SHELL)
        if item.target.startswith("python_backend.roles")
        and _folder(item.module.name) not in {"roles", "model"}
    ]
    assert not wrong, _breaches(wrong)


def test_every_third_party_library_has_its_home() -> None:
    known = EVERYWHERE | set(SOURCE) | set(sys.stdlib_module_names)
    wrong = [
        item
        for item in imports(*SOURCE)
        if item.top not in known
        and not any(item.module.where.startswith(home) for home in THIRD_PARTY_HOMES.get(item.top, ()))
    ]
    assert not wrong, _breaches(wrong)


def _load_graph() -> dict[str, set[str]]:
    known = {module.name for module in modules(*SOURCE)}
    graph: dict[str, set[str]] = {name: set() for name in known}
    for item in imports(*SOURCE):
        if item.is_at_load:
            target = item.target if item.target in known else item.target.rpartition(".")[0]
            if target in known and target != item.module.name:
                graph[item.module.name].add(target)
    return graph


def _cycle_through(graph: dict[str, set[str]], start: str) -> list[str]:
    """Shortest path from `start` back to itself; empty when there is none."""
    paths = [[start]]
    seen: set[str] = set()
    for path in paths:
        for after in sorted(graph[path[-1]]):
            if after == start:
                return [*path, start]
            if after not in seen:
                seen.add(after)
                paths.append([*path, after])
    return []


def test_no_import_closes_a_cycle() -> None:
    graph = _load_graph()
    cycles = {tuple(sorted(set(cycle))): cycle for name in graph if (cycle := _cycle_through(graph, name))}
    assert not cycles, "\n".join(" -> ".join(cycle) for cycle in cycles.values())


HEAVY = ("torch", "tensorrt_llm", "transformers")
IMPORT_ALL = """
import importlib, sys
for name in sys.argv[2:]:
    importlib.import_module(name)
    found = set(sys.argv[1].split(",")) & set(sys.modules)
    if found:
        sys.exit(f"{name} loads {found}")
"""


def _front_modules() -> list[str]:
    names = [module.name for module in modules(SHELL)]
    light = [
        name
        for name in names
        if _folder(name) in {"loops", "text", "runner", "client"} and "_runner" not in name
    ]
    return [name for name in light if name not in HEADS_ON_A_DEVICE]


def test_nothing_a_front_imports_brings_torch_along() -> None:
    arguments = [",".join(HEAVY), CORE, *_front_modules()]
    command = [sys.executable, "-c", IMPORT_ALL, *arguments]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, text=True)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("package", PACKAGES)
def test_every_folder_of_a_package_is_itself_a_package(package: str) -> None:
    folders = {module.path.parent for module in modules(package)}
    assert not [folder for folder in folders if not (folder / "__init__.py").exists()]
