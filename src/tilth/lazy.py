"""Lazy imports: each public name of a package is imported when it is first used.

The imports in a package's `__init__.pyi` list its public names; editors and type checkers read the
same file. `import tilth` takes under 30 ms, and a config does not import torch.

>>> import tilth.model
>>> "TransformerLM" in dir(tilth.model)
True
"""

import sys
from collections.abc import Callable
from importlib import import_module


def lazy_names(
    package: str, init_file: str
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package, read from its stub file."""
    homes = {}
    # Parsed by hand: importing ast and pathlib takes longer than the rest of `import tilth`.
    with open(init_file + "i", encoding="utf-8") as stub:  # noqa: PTH123
        for line in stub:
            if line.startswith("from "):
                _, module, _, name, _, again = line.split()  # from module import name as name
                assert name == again, line
                homes[name] = module

    def get(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            if homes[name] == package:  # `from tilth import recipes`: a module of the package
                return import_module(f"{package}.{name}")
            return getattr(import_module(homes[name]), name)
        except ModuleNotFoundError as error:
            from tilth.errors import missing_extra  # noqa: PLC0415, needed only on failure

            if sentence := missing_extra(error):
                raise ModuleNotFoundError(
                    f"{package}.{name}: {sentence}", name=error.name
                ) from None
            raise

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return get, list_names, sorted(homes)
