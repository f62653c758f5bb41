"""Out-of-memory errors and missing extras, recognised without importing other libraries.

>>> is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: 12 GB"))
True
>>> missing_extra(ModuleNotFoundError("No module named 'torch'", name="torch"))
"this needs torch, which is not installed; pip install 'tilth[train]'."
"""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

EXTRAS = {"torch": "train", "regex": "patterns", "pyarrow": "parquet", "zstandard": "zstd"}
EXTRAS |= dict.fromkeys(("plotly", "matplotlib", "jinja2"), "report")
EXTRAS |= {"huggingface_hub": "fetch", "optuna": "search", "submitit": "cluster", "ray": "ray"}
EXTRAS |= dict.fromkeys(("starlette", "uvicorn"), "studio")
EXTRAS |= {"gguf": "export", "lm_eval": "evaluate"}
"""The extra of tilth that installs each package."""

_OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "bad_alloc")
_UNMAPPED = ("failed to map segment", "cannot allocate memory")  # of a shared library


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out.

    That is a MemoryError (NumPy's included), torch's RuntimeError, or the ImportError of a library
    that does not fit in memory, also as the cause of another error.
    """
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, ImportError):
        cause = error.__cause__ or error.__context__
        is_unmapped = any(words in str(error).lower() for words in _UNMAPPED)
        return is_unmapped or (cause is not None and is_out_of_memory(cause))
    return isinstance(error, RuntimeError) and any(
        words in str(error).lower() for words in _OUT_OF_MEMORY
    )


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the name of its class."""
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__


def missing_extra(error: BaseException) -> str | None:
    """Return the error message for an extra that is missing or broken, or None."""
    package = (getattr(error, "name", None) or "").partition(".")[0]
    if isinstance(error, ModuleNotFoundError) and package in EXTRAS:
        extra = EXTRAS[package]
        return f"this needs {package}, which is not installed; pip install 'tilth[{extra}]'."
    if isinstance(error, ImportError) and package in EXTRAS:
        return f"{package} cannot be imported ({error}); install it again, or free some memory."
    return None


def has_extra(extra: str) -> bool:
    """Return whether all packages of an extra are installed."""
    return all(find_spec(package) for package, own in EXTRAS.items() if own == extra)


def import_extra(module: str, what: str) -> Any:  # noqa: ANN401, a module
    """Import a module of an extra; if it is missing, raise a ValueError that names the extra."""
    try:
        return import_module(module)
    except ModuleNotFoundError:
        extra = EXTRAS[module.partition(".")[0]]
        raise ValueError(f'{what} needs an extra: pip install "tilth[{extra}]".') from None
