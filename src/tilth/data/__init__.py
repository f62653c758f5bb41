"""Corpus and tokenizer to token files, and token files to batches.

What enters: text and a tokenizer. What leaves: a data folder, and from it the tensors that a
training step reads. Only `batches` needs torch, so names are loaded when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilth.data.batches import Batches, get_batch
    from tilth.data.nanogpt import load_bin, save_bin
    from tilth.data.token_files import Data, open_data
    from tilth.data.tokenizing import tokenize
    from tilth.data.verifying import verify_data

__all__ = [
    "Batches",
    "Data",
    "get_batch",
    "load_bin",
    "open_data",
    "save_bin",
    "tokenize",
    "verify_data",
]

_HOME = {
    "Batches": "tilth.data.batches",
    "Data": "tilth.data.token_files",
    "get_batch": "tilth.data.batches",
    "load_bin": "tilth.data.nanogpt",
    "open_data": "tilth.data.token_files",
    "save_bin": "tilth.data.nanogpt",
    "tokenize": "tilth.data.tokenizing",
    "verify_data": "tilth.data.verifying",
}


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'tilth.data' has no attribute {name!r}")
