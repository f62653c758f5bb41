"""Names of a package come from one list, are imported on first use, and no module hides them."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import tilth
from tilth.lazy import lazy_names

ROOT = Path(tilth.__file__).parent
STUBS = {
    ".".join(["tilth", *stub.parent.relative_to(ROOT).parts]): stub
    for stub in sorted(ROOT.rglob("__init__.pyi"))
    if "lazy_names" in stub.with_suffix(".py").read_text()
}


def imports_of(stub):
    """Return (module, name, alias) of each import of a stub, parsed by Python."""
    return [
        (node.module, alias.name, alias.asname)
        for node in ast.parse(stub.read_text()).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]


def test_the_packages():
    assert {"tilth", "tilth.data", "tilth.model", "tilth.optim", "tilth.runs"} <= set(STUBS)


@pytest.mark.parametrize("name", STUBS)
def test_every_name_of_the_stub_is_that_of_its_module(name):
    package, stub = import_module(name), STUBS[name]
    found = imports_of(stub)
    assert package.__all__ == sorted(each for _, each, _ in found)
    assert len(package.__all__) == len(set(package.__all__))
    for module, own, again in found:
        assert own == again, "without `as`, a type checker takes it for private"
        home = import_module(f"tilth.{own}") if module == "tilth" else import_module(module)
        assert getattr(package, own) is (home if module == "tilth" else getattr(home, own))
        assert own in dir(package)
        # An imported module would hide a lazy name.
        is_module = (stub.parent / f"{own}.py").exists() or (stub.parent / own).is_dir()
        assert is_module == (module == "tilth" == name)


@pytest.mark.parametrize("name", STUBS)
def test_unknown_name(name):
    with pytest.raises(AttributeError, match=f"^module '{name}' has no attribute 'Trainsformer'$"):
        _ = import_module(name).Trainsformer


def test_names_defined_in_the_package_are_listed():
    assert {"__version__", "__doc__", "recipes", "train"} <= set(dir(tilth))
    assert dir(tilth) == sorted(set(dir(tilth)))


def test_modules_are_imported_on_first_use():
    program = (
        "import sys, tilth\n"
        "assert not [name for name in sys.modules if name.startswith(('tilth.r', 'tilth.c'))]\n"
        "assert tilth.recipes.small.recipe.lr > 0\n"
        "assert 'tilth.config' in sys.modules and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_star_import():
    names = {}
    exec("from tilth import *", names)
    assert set(tilth.__all__) <= names.keys()


def test_stub_with_other_imports_is_refused(tmp_path):
    init = str(tmp_path / "__init__.py")
    (tmp_path / "__init__.pyi").write_text("from json import loads as parse\n")
    with pytest.raises(AssertionError, match="loads as parse"):
        lazy_names("package", init)
    (tmp_path / "__init__.pyi").write_text("from json import (\n    loads,\n)\n")
    with pytest.raises(ValueError, match="unpack"):
        lazy_names("package", init)


def test_missing_module_is_named(tmp_path):
    (tmp_path / "__init__.pyi").write_text(
        "import os\n\nfrom no_such_module import name as name\nfrom json import loads as loads\n"
    )
    get, _, names = lazy_names("package", str(tmp_path / "__init__.py"))
    assert names == ["loads", "name"]
    assert get("loads")("[1]") == [1]
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        get("name")
