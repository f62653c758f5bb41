"""Errors of other libraries."""

import sys
import tomllib
from pathlib import Path

import pytest
import torch

from tilth.errors import EXTRAS, first_line, import_extra, is_out_of_memory, missing_extra


def test_out_of_memory_is_recognised_from_any_library():
    with pytest.raises(RuntimeError) as allocator:
        torch.empty(1 << 55)
    for error in (allocator.value, MemoryError(), torch.OutOfMemoryError("CUDA out of memory.")):
        assert is_out_of_memory(error)
    library = ImportError("libtorch_cpu.so: failed to map segment from shared object")
    wrapped = ImportError("Cannot import module")
    wrapped.__cause__ = library
    assert is_out_of_memory(library)
    assert is_out_of_memory(wrapped)
    assert not is_out_of_memory(ImportError("undefined symbol: PyObject_Call"))
    assert not is_out_of_memory(RuntimeError("shapes do not fit"))
    assert not is_out_of_memory(ValueError("out of memory"))


def test_an_error_without_a_message_has_its_name():
    assert first_line(RuntimeError("\n no compiler \nand so on")) == "no compiler "
    assert [first_line(error) for error in (OSError(), KeyError())] == ["OSError", "KeyError"]


def test_only_packages_of_extras_have_a_message():
    error = ModuleNotFoundError("No module named 'torch.nn'", name="torch.nn")
    assert missing_extra(error) == (
        "this needs torch, which is not installed; pip install 'tilth[train]'."
    )
    assert missing_extra(ModuleNotFoundError("No module named 'absent'", name="absent")) is None
    assert missing_extra(ImportError("torch")) is None


def test_every_package_of_an_extra_is_in_that_extra():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    for package, extra in EXTRAS.items():
        requirements = project["optional-dependencies"][extra]
        assert any(requirement.startswith(package) for requirement in requirements)


def test_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ValueError, match=r'^A file needs an extra: pip install "tilth\[parquet\]"'):
        import_extra("pyarrow", "A file")
    assert import_extra("tomllib", "A file") is tomllib
