"""Imports between packages go one way, without cycles, and the picture of them is current."""

import ast
import re
import shutil
from graphlib import CycleError, TopologicalSorter

import pytest

from scripts.draw_packages import (
    ENTRY_POINTS,
    PACKAGE,
    PICTURE,
    ROOT,
    draw,
    module_files,
    read_imports,
)

# In import order: a package imports only packages above it.
PACKAGES = [
    "errors",
    "lazy",
    "formatting",
    "schema",
    "files",
    "config",
    "executors",
    "corpus",
    "tokenizer",
    "data",
    "recipes",
    "formats",
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
# These packages read run directories and never train.
FORBIDDEN = {("exporting", "training"), ("studio", "training")}
# Packages and modules that never import torch, not even in a function: they start fast, and they
# work in the base install.
WITHOUT_TORCH = {
    "errors",
    "lazy",
    "files",
    "formatting",
    "schema",
    "config",
    "executors",
    "corpus",
    "tokenizer",
    "recipes",
    "formats",
    "accounting",
    "report",
    "exporting",
    "studio",
}
MODULES_WITHOUT_TORCH = {
    "tilth.data.encoding",
    "tilth.data.guarding",
    "tilth.data.nanogpt",
    "tilth.data.splitmix64",
    "tilth.data.tasks",
    "tilth.data.token_files",
    "tilth.data.tokenizing",
    "tilth.data.verifying",
    "tilth.generation.decoding",
    "tilth.generation.language_model",
    "tilth.generation.native_decoder",
    "tilth.generation.sampling",
    "tilth.generation.sources",
    "tilth.optim.groups",
    "tilth.optim.schedule",
    "tilth.runs.checkpoints",
    "tilth.runs.metrics",
    "tilth.runs.packing",
    "tilth.runs.run",
    "tilth.runs.tensors",
}


def violations(package):
    """Return a sentence for each import that breaks the order."""
    found = []
    modules = module_files(package)
    graph = {module: set() for module in modules}
    for module, files in modules.items():
        if module in ENTRY_POINTS:
            continue
        name = module.split(".")[1]
        if name not in PACKAGES:
            found.append(f"{files[0]}: {name} is not in the list of packages: {PACKAGES}")
            continue
        imports = [(file, *each) for file in files for each in read_imports(file, module)]
        for file, line, imported in imports:
            place = f"{file}:{line}: {module} imports {imported}"
            root, _, rest = imported.partition(".")
            if root == "torch" and (name in WITHOUT_TORCH or module in MODULES_WITHOUT_TORCH):
                found.append(f"{place}, but must work without torch")
            other = rest.split(".")[0]
            if root != "tilth" or other not in PACKAGES:
                continue
            if PACKAGES.index(other) > PACKAGES.index(name):
                found.append(f"{place}, but {other} comes after {name}")
            if (name, other) in FORBIDDEN:
                found.append(f"{place}, but {name} reads run directories and never trains")
            # The longest prefix that is a module: the rest of the name is inside it.
            target = imported
            while target not in modules:
                target = target.rpartition(".")[0]
            # An import of a sibling through the package does not depend on the whole package.
            if target != module and not module.startswith(f"{target}."):
                graph[module].add(target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found.append(f"import cycle: {' -> '.join(reversed(error.args[1]))}")
    return found


def test_imports_follow_the_order():
    assert not violations(PACKAGE), "\n".join(violations(PACKAGE))


def test_picture_of_packages_is_current():
    assert PICTURE.read_text() == draw(PACKAGE), "run python scripts/draw_packages.py"


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
        ("import tilth.tokenizer.planted_too", "import cycle"),
    ],
)
def test_planted_import_is_found_and_named(tmp_path, planted, complaint):
    package = tmp_path / "tilth"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    bad = package / "tokenizer" / "planted.py"
    bad.write_text(planted + "\n")
    (package / "tokenizer" / "planted_too.py").write_text("import tilth.tokenizer.planted\n")
    (problem,) = violations(package)
    assert complaint in problem
    assert "tilth.tokenizer.planted" in problem


def test_planted_import_in_stub_is_found(tmp_path):
    package = tmp_path / "tilth"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    with (package / "config" / "__init__.pyi").open("a") as stub:
        stub.write("from tilth.training.loop import train as train\n")
    assert any("training comes after config" in problem for problem in violations(package))


def test_unlisted_package_is_found(tmp_path):
    package = tmp_path / "tilth"
    (package / "utils").mkdir(parents=True)
    (package / "utils" / "__init__.py").touch()
    assert "utils is not in the list of packages" in violations(package)[0]


def test_every_package_has_a_docstring():
    for folder in (path for path in PACKAGE.iterdir() if any(path.glob("*.py"))):
        assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text())), folder


def test_only_bindings_include_python():
    for file in (ROOT / "core").rglob("*.[ch]pp"):
        includes_python = (
            re.search(
                r'#include\s+(<(nanobind|Python\.h)|"(../common/)?bindings)', file.read_text()
            )
            is not None
        )
        assert includes_python == file.stem.startswith("bindings"), file
