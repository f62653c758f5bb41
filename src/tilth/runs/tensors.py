"""The tensors of a checkpoint, checked against a config before they are read. No torch."""

from collections.abc import Mapping

import safetensors

from tilth.config.model import ModelConfig
from tilth.config.parameters import check_parameters
from tilth.files import FileError, StrPath
from tilth.formats.safetensors_files import TensorInfo, load_weights, read_header

__all__ = ["INVALID", "TensorInfo", "check_weights", "load_weights", "tensor_infos"]

INVALID = (
    *(ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError),
    safetensors.SafetensorError,
)
"""Errors of reading a damaged or untrusted state."""


def tensor_infos(path: StrPath) -> dict[str, TensorInfo]:
    """Return type and shape of each tensor of a safetensors file, from its header alone."""
    return read_header(path, any_type=True)


def check_weights(path: StrPath, config: ModelConfig, infos: Mapping[str, TensorInfo]) -> None:
    """Raise FileError unless the tensors of `path` are the parameters of `config`.

    Call it before a model is built: an untrusted config may demand any amount of memory.
    """
    try:
        check_parameters(config, {name: info.shape for name, info in infos.items()})
    except ValueError as error:
        hint = "choose another checkpoint with --step"
        raise FileError(path, f"does not fit the config of the run ({error})", hint) from error
