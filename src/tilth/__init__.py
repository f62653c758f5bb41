"""tilth grows a language model from plain text.

The way through the house, each room a package, each door a file:

    text -> corpus -> tokenizer -> data -> model -> training -> a run directory -> generation

>>> import tilth
>>> tokenizer = tilth.train_tokenizer(texts=["seed by seed"], vocab_size=260)
>>> tokenizer.decode(tokenizer.encode("a seed"))
'a seed'

Importing tilth is cheap: a name is loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilth.data import Batches, Data, get_batch, open_data, tokenize
    from tilth.tokenizer import Tokenizer, split, train_bpe, train_tokenizer

__all__ = [
    "Batches",
    "Data",
    "Tokenizer",
    "__version__",
    "get_batch",
    "open_data",
    "split",
    "tokenize",
    "train_bpe",
    "train_tokenizer",
]

__version__ = "0.1.0"

# Where each public name lives.
_HOME = {
    "Batches": "tilth.data",
    "Data": "tilth.data",
    "Tokenizer": "tilth.tokenizer",
    "get_batch": "tilth.data",
    "open_data": "tilth.data",
    "split": "tilth.tokenizer",
    "tokenize": "tilth.data",
    "train_bpe": "tilth.tokenizer",
    "train_tokenizer": "tilth.tokenizer",
}


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'tilth' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
