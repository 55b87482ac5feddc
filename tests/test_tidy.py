"""The bars of design section 6, kept by measuring every file.

A bar that is missed prints what misses it and by how much, so that the cure needs no second look.
"""

from __future__ import annotations

import ast
import re
from statistics import median

import pytest

from tests.source_tree import CORE, PACKAGES, ROOT, SOURCE, Function, Module, modules, tracked_files

FILE_LINES_MAX = 300
TEST_FILE_LINES_MAX = 400
FUNCTION_LINES_MEDIAN_MAX = 8
FUNCTION_LINES_9_IN_10_MAX = 30
FUNCTION_LINES_MAX = 60
PARAMETERS_MAX = 5
TEST_LINES_PER_SOURCE_LINE_MIN = 0.9
GENERATED_BYTES_MAX = 25_000_000

VAGUE_WORDS = {"manager", "helper", "helpers", "util", "utils", "misc"}
VAGUE_FILES = VAGUE_WORDS | {"common"}
ALLOWED_VAGUE = {"BlockManager"}
ALLOWED_VAGUE_FILES = {"block_manager"}
BROAD = {"Exception", "BaseException"}

MACHINE_PATHS = [
    re.compile(rf"(?<![\w.])/{root}/\w") for root in ("work", "root", "home", "opt/pypi", "opt/wheels")
]
REGISTRY_HOSTS = [
    "pypi" + ".org",
    "python" + "hosted.org",
    "download.py" + "torch.org",
    "registry.npm" + "js",
]
TEXT_SUFFIXES = {"", ".py", ".md", ".toml", ".txt", ".sh", ".yaml", ".yml", ".json", ".pbtxt", ".cpp", ".cfg"}


def functions(*folders: str) -> list[Function]:
    found = [function for module in modules(*folders) for function in module.functions()]
    return [function for function in found if not function.is_stub]


def _report(rows: list[str]) -> str:
    return "\n" + "\n".join(rows)


def test_no_source_file_is_too_long() -> None:
    long = [f"{module.where}: {module.lines}" for module in modules(*SOURCE) if module.lines > FILE_LINES_MAX]
    assert not long, _report(long)


def test_no_test_file_is_too_long() -> None:
    long = [
        f"{module.where}: {module.lines}" for module in modules("tests") if module.lines > TEST_FILE_LINES_MAX
    ]
    assert not long, _report(long)


@pytest.mark.parametrize("folder", [*PACKAGES, "tools"])
def test_functions_are_short(folder: str) -> None:
    lengths = sorted(function.lines for function in functions(folder))
    assert median(lengths) <= FUNCTION_LINES_MEDIAN_MAX, f"median {median(lengths)} lines"
    at_nine_tenths = lengths[(len(lengths) * 9 - 1) // 10]
    assert at_nine_tenths <= FUNCTION_LINES_9_IN_10_MAX, f"nine in ten have up to {at_nine_tenths} lines"


def test_no_function_is_too_long() -> None:
    long = [f"{f.where}: {f.lines}" for f in functions(*SOURCE, "tests") if f.lines > FUNCTION_LINES_MAX]
    assert not long, _report(long)


def test_no_function_takes_more_than_five_parameters() -> None:
    wide = [f"{f.where}: {f.parameters}" for f in functions(*SOURCE) if f.parameters > PARAMETERS_MAX]
    assert not wide, _report(wide)


def test_every_function_of_the_source_is_annotated_in_full() -> None:
    bare = [f.where for module in modules(*SOURCE) for f in module.functions() if not _is_annotated(f)]
    assert not bare, _report(bare)


def _is_annotated(function: Function) -> bool:
    arguments = function.node.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    starred = [item for item in (arguments.vararg, arguments.kwarg) if item]
    own = named[1:] if function.is_method and named and named[0].arg in {"self", "cls"} else named
    return function.node.returns is not None and all(item.annotation for item in [*own, *starred])


def test_every_module_says_what_it_is() -> None:
    found = [module for module in modules(*SOURCE, "tests") if module.text.strip()]
    silent = [
        module.where for module in found if not ast.get_docstring(module.tree) and not _is_one_line(module)
    ]
    assert not silent, _report(silent)


def _is_one_line(module: Module) -> bool:
    """A backend's model.py or a test package's marker: one import says it all."""
    return len(module.tree.body) == 1


def test_every_base_module_documents_what_it_offers() -> None:
    silent = [
        name
        for module in modules(*PACKAGES)
        if module.path.name == "base.py"
        for name in _undocumented(module)
    ]
    assert not silent, _report(silent)


def _undocumented(module: Module) -> list[str]:
    public = [
        node
        for node in module.tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_")
    ]
    return [f"{module.where} {node.name}" for node in public if not ast.get_docstring(node)]


def test_no_except_catches_everything() -> None:
    """Clean-up and translation may: such a handler ends in `raise`."""
    broad = [
        f"{module.where}:{node.lineno}"
        for module in modules(*SOURCE)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ExceptHandler) and _is_broad(node)
    ]
    assert not broad, _report(broad)


def _is_broad(handler: ast.ExceptHandler) -> bool:
    if isinstance(handler.body[-1], ast.Raise):
        return False
    if handler.type is None:
        return True
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(item, ast.Name) and item.id in BROAD for item in caught)


def test_no_exception_is_swallowed_without_a_word() -> None:
    """`except X: pass` says nothing about why; `contextlib.suppress`, a comment or an `else` does."""
    silent = [
        f"{module.where}:{handler.lineno}"
        for module in modules(*SOURCE)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Try) and not node.orelse
        for handler in node.handlers
        if all(isinstance(step, ast.Pass) for step in handler.body)
        and "#" not in "".join(module.text.splitlines()[handler.lineno - 1 : handler.end_lineno])
    ]
    assert not silent, _report(silent)


def test_names_say_what_a_thing_is() -> None:
    vague = [
        f"{module.where} {name}"
        for module in modules(*SOURCE)
        for name in _defined_names(module)
        if set(_words(name)) & VAGUE_WORDS and name not in ALLOWED_VAGUE
    ]
    vague += [
        module.where
        for module in modules(*SOURCE)
        if set(module.path.stem.split("_")) & VAGUE_FILES and module.path.stem not in ALLOWED_VAGUE_FILES
    ]
    assert not vague, _report(vague)


def _defined_names(module: Module) -> list[str]:
    return [*(node.name for node in module.classes()), *(f.node.name for f in module.functions())]


def _words(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)]


def test_no_unfinished_work_is_left_in_the_text() -> None:
    marks = re.compile("|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X"]))
    found = [
        f"{module.where}:{number}"
        for module in modules(*SOURCE, "tests")
        for number, line in enumerate(module.text.splitlines(), 1)
        if marks.search(line)
    ]
    assert not found, _report(found)


def test_no_path_of_a_machine_and_no_registry_host_is_committed() -> None:
    found = []
    for path in tracked_files():
        if path.suffix in TEXT_SUFFIXES and path.stat().st_size < 1_000_000:
            text = path.read_text(errors="replace")
            hits = [host for host in REGISTRY_HOSTS if host in text]
            hits += [match[0] for pattern in MACHINE_PATHS if (match := pattern.search(text))]
            found += [f"{path.relative_to(ROOT)}: {hit}" for hit in hits]
    assert not found, _report(found)


def test_no_bytecode_and_no_library_is_committed() -> None:
    built = [path for path in tracked_files() if path.suffix in {".pyc", ".pyo", ".so", ".o"}]
    assert not built, _report([str(path.relative_to(ROOT)) for path in built])


def test_what_was_generated_stays_small() -> None:
    sizes = {
        path.relative_to(ROOT).as_posix(): path.stat().st_size
        for path in tracked_files()
        if path.is_relative_to(ROOT / "model_repository")
    }
    assert sum(sizes.values()) < GENERATED_BYTES_MAX, sizes


def test_there_is_about_as_much_test_as_source() -> None:
    source = sum(module.lines for module in modules(*PACKAGES, "tools", "docker"))
    tests = sum(module.lines for module in modules("tests"))
    assert tests >= TEST_LINES_PER_SOURCE_LINE_MIN * source, f"{tests} lines of tests for {source} of source"


def test_the_core_has_no_print_and_no_environment() -> None:
    found = [
        f"{module.where}:{node.lineno} {node.func.id}"
        for module in modules(CORE)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"print", "open", "input", "eval", "exec"}
    ]
    assert not found, _report(found)
