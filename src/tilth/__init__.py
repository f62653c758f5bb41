"""tilth grows a language model from plain text.

The way through the house, each room a package, each door a file:

    text -> corpus -> tokenizer -> data -> model -> training -> a run directory -> generation

>>> import tilth
>>> tilth.split("The first seed.")
['The', ' first', ' seed', '.']

Importing tilth is cheap: a name is loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilth.tokenizer import split

__all__ = ["__version__", "split"]

__version__ = "0.1.0"

# Where each public name lives.
_HOME = {
    "split": "tilth.tokenizer",
}


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'tilth' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
