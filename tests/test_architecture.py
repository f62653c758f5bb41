"""The plan of the house: imports go backward along the list of rooms, and never in a circle."""

import ast
import re
import shutil
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "tilth"

# In import order: a room may import those before it, and itself.
ROOMS = [
    "errors",
    "lazy",
    "formatting",
    "schema",
    "files",
    "config",
    "corpus",
    "tokenizer",
    "data",
    "recipes",
    "accounting",
    "model",
    "optim",
    "runs",
    "generation",
    "training",
    "report",
    "lab",
    "exporting",
    "studio",
    "cli",
]
# These read run directories; they never train.
FORBIDDEN = {("exporting", "training"), ("studio", "training")}
# Quick to start and light to install: what stands here never imports torch, not even in a function.
WITHOUT_TORCH = {
    "errors",
    "lazy",
    "files",
    "formatting",
    "schema",
    "config",
    "corpus",
    "tokenizer",
    "recipes",
    "accounting",
    "report",
}
MODULES_WITHOUT_TORCH = {
    "tilth.data.guarding",
    "tilth.data.nanogpt",
    "tilth.data.token_files",
    "tilth.data.tokenizing",
    "tilth.data.verifying",
    "tilth.generation.decoding",
    "tilth.generation.language_model",
    "tilth.generation.native_decoder",
    "tilth.generation.sampling",
    "tilth.optim.groups",
    "tilth.optim.schedule",
    "tilth.runs.checkpoints",
    "tilth.runs.metrics",
    "tilth.runs.packing",
    "tilth.runs.run",
    "tilth.runs.tensors",
}


def imports_of(file, module):
    """(line, imported module) of every import in a file, in-function ones and names included."""
    package = module if file.stem == "__init__" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(file.read_text(), str(file))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: -node.level + 1 or None] if node.level else []
            base = ".".join([*parents, *([node.module] if node.module else [])])
            for alias in node.names:
                # `from tilth import files` and `from tilth.cli import app` may name modules.
                yield node.lineno, f"{base}.{alias.name}"
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            # import_module("tilth.model"), and the "tilth.cli.demo:demo" of lazy verbs
            and (match := re.fullmatch(r"(tilth(?:\.\w+)+)(?::\w+)?", node.value))
        ):
            yield node.lineno, match[1]


def module_name(file, package):
    parts = ["tilth", *file.relative_to(package).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def violations(package):
    """A sentence for each import that the plan of the house forbids."""
    found = []
    files = {module_name(file, package): file for file in sorted(package.rglob("*.py"))}
    graph = {module: set() for module in files}
    for module, file in files.items():
        if module in {"tilth", "tilth.__main__"}:
            continue  # the front doors open every room
        room = module.split(".")[1]
        if room not in ROOMS:
            found.append(f"{file}: {room} is not a room of the house; the rooms are {ROOMS}")
            continue
        stub = file.with_suffix(".pyi")  # of an `__init__`: what `tilth.lazy` imports
        sources = [file, stub] if stub.exists() else [file]
        imports = [(source, *each) for source in sources for each in imports_of(source, module)]
        for source, line, imported in imports:
            place = f"{source}:{line}: {module} imports {imported}"
            root, _, rest = imported.partition(".")
            if root == "torch" and (room in WITHOUT_TORCH or module in MODULES_WITHOUT_TORCH):
                found.append(f"{place}, but does its work without torch")
            other = rest.split(".")[0]
            if root != "tilth" or other not in ROOMS:
                continue
            if ROOMS.index(other) > ROOMS.index(room):
                found.append(f"{place}, but {other} comes after {room}")
            if (room, other) in FORBIDDEN:
                found.append(f"{place}, but {room} reads run directories and never trains")
            # The longest prefix that is a module: the rest of the name is inside it.
            target = imported
            while target not in files:
                target = target.rpartition(".")[0]
            # Naming a sibling through the room's own __init__ is no import of the whole room.
            if target != module and not module.startswith(f"{target}."):
                graph[module].add(target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found.append(f"imports go in a circle: {' -> '.join(reversed(error.args[1]))}")
    return found


def test_the_house_is_built_to_plan():
    assert not violations(PACKAGE), "\n".join(violations(PACKAGE))


@pytest.mark.parametrize(
    ("planted", "complaint"),
    [
        ("from tilth.cli import main", "cli comes after tokenizer"),
        ("import tilth.cli.app", "cli comes after tokenizer"),
        ("from tilth import cli", "cli comes after tokenizer"),
        ("from ..cli import app", "cli comes after tokenizer"),
        ("def late():\n    from tilth.cli.demo import demo", "cli comes after tokenizer"),
        ("import_module('tilth.cli')", "cli comes after tokenizer"),
        ("import torch.nn", "without torch"),
        ("from torch import nn", "without torch"),
        ("import tilth.tokenizer.planted_too", "imports go in a circle"),
    ],
)
def test_a_planted_import_is_found_and_named(tmp_path, planted, complaint):
    package = tmp_path / "tilth"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    bad = package / "tokenizer" / "planted.py"
    bad.write_text(planted + "\n")
    (package / "tokenizer" / "planted_too.py").write_text("import tilth.tokenizer.planted\n")
    (problem,) = violations(package)
    assert complaint in problem
    assert "tilth.tokenizer.planted" in problem


def test_a_planted_import_in_a_stub_is_found(tmp_path):
    package = tmp_path / "tilth"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    with (package / "config" / "__init__.pyi").open("a") as stub:
        stub.write("from tilth.training.loop import train as train\n")
    assert any("training comes after config" in problem for problem in violations(package))


def test_an_unplanned_room_is_found(tmp_path):
    package = tmp_path / "tilth"
    (package / "utils").mkdir(parents=True)
    (package / "utils" / "__init__.py").touch()
    assert "utils is not a room" in violations(package)[0]


def test_every_package_has_a_docstring():
    for folder in (path for path in PACKAGE.iterdir() if any(path.glob("*.py"))):
        assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text())), folder


def test_only_the_bindings_know_python():
    for file in (ROOT / "core").rglob("*.[ch]pp"):
        knows_python = re.search(r"#include\s+<(nanobind|Python\.h)", file.read_text()) is not None
        assert knows_python == (file.stem == "bindings"), file
