"""A run to something that decodes: native on a CPU, torch elsewhere.

What enters: a run directory, or weights in memory. What leaves: a `LoadedModel`, whose decoders
turn token ids into logits. Without torch, unless the model goes to another device than the CPU.

>>> from tilth.model import ModelConfig, TransformerLM
>>> config = ModelConfig(257, context_length=16, d_model=32, num_layers=2, num_heads=4)
>>> weights = {name: weight.numpy() for name, weight in TransformerLM(config).state_dict().items()}
>>> tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<|endoftext|>"])
>>> decoder = LoadedModel.from_weights(config, weights, tokenizer).decoder()
>>> decoder.extend([5, 17, 99]).shape, decoder.length
((1, 257), 3)
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, Self, get_args

import numpy as np
import safetensors

from tilth.files import FileError, StrPath, checksum, read_bytes
from tilth.generation import _core
from tilth.model.config import ModelConfig
from tilth.runs.checkpoint_folders import MODEL, Checkpoint
from tilth.runs.run import Run, open_run
from tilth.tokenizer import Tokenizer

if TYPE_CHECKING:
    from pathlib import Path

    from jaxtyping import Float32

Quantize = Literal["int8"]
Backend = Literal["native", "torch"]
FLOATS = ("F64", "F32", "F16")  # as safetensors calls them


class Decoder(Protocol):
    """Reads token ids, remembers them, and scores what may follow."""

    @property
    def length(self) -> int:
        """How many ids it has read."""

    def extend(
        self, ids: Sequence[int], every: bool = False
    ) -> Float32[np.ndarray, "ids vocab_size"]:
        """Read ids; return the logits behind the last, or behind every one."""

    def truncate(self, length: int) -> None:
        """Forget all ids but the first `length`."""


@dataclass(frozen=True)
class LoadedModel:
    """A model and its tokenizer, ready to decode; any number of decoders share its weights."""

    config: ModelConfig
    tokenizer: Tokenizer
    decoder: Callable[[], Decoder] = field(repr=False)
    """Makes a decoder that has read nothing; each is used by one thread at a time."""

    @classmethod
    def from_weights(
        cls,
        config: ModelConfig,
        weights: Mapping[str, np.ndarray],
        tokenizer: Tokenizer,
        *,
        quantize: Quantize | None = None,
        threads: int | None = None,
    ) -> Self:
        """Lay weights out for the native decoder, under the names of a checkpoint."""
        _check_options(quantize, threads)
        _check_tokenizer(config, tokenizer)
        arrays: dict[str, object] = {
            name: np.ascontiguousarray(weight, np.float32) for name, weight in weights.items()
        }
        if config.tie_embeddings and "lm_head.weight" in weights:
            # Others write a tied matrix under both of its names; one of them is enough.
            embeddings = weights.get("token_embeddings.weight", np.array([]))
            if np.array_equal(weights["lm_head.weight"], embeddings):
                del arrays["lm_head.weight"]
        network = make_network(config, arrays, is_int8=quantize == "int8")
        count = threads or usable_cores()
        return cls(config, tokenizer, lambda: _core.Decoder(network, count))


def make_network(
    config: ModelConfig, arrays: dict[str, object], *, is_int8: bool = False
) -> _core.Network:
    """Lay out float32 weights of this shape, under the names of a checkpoint."""
    for name, weight in arrays.items():
        if not np.isfinite(weight).all():  # type: ignore[call-overload]
            raise ValueError(f"not every number of {name} is finite")
    return _core.Network(
        arrays,
        vocab_size=config.vocab_size,
        context_length=config.context_length,
        d_model=config.d_model,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        d_ff=config.d_ff,
        rope_theta=config.rope_theta,
        norm=config.norm,
        has_rope=config.position == "rope",
        is_gated=config.ffn == "swiglu",
        is_tied=config.tie_embeddings,
        has_qk_norm=config.qk_norm,
        is_int8=is_int8,
    )


def load_decoder(
    run: StrPath | Run,
    *,
    step: int | None = None,
    device: str = "cpu",
    quantize: Quantize | None = None,
    threads: int | None = None,
    backend: Backend | None = None,
) -> LoadedModel:
    """Load the best checkpoint of a run, or that after `step`.

    The CPU decodes natively, in float32 or int8, on `threads` threads (default: all cores); any
    other device through torch, whose own threads it uses.
    """
    _check_options(quantize, threads)
    if backend is None:
        backend = "native" if device == "cpu" else "torch"
    if backend not in get_args(Backend):
        raise ValueError(f"there is no backend {backend!r}; choose native or torch.")
    if backend == "native" and device != "cpu":
        raise ValueError(f"the native decoder runs on the cpu, not on {device}; take torch there.")
    if backend == "torch" and quantize is not None:
        raise ValueError(f"{quantize} weights are for the CPU; leave --quantize or --device out.")
    if backend == "torch":
        from tilth.generation.cache import (  # noqa: PLC0415, torch takes 2 s
            TorchDecoder,
            check_device,
            torch_model,
        )

        check_device(device)
    run = run if isinstance(run, Run) else open_run(run)
    tokenizer = run.tokenizer()
    path, weights = run.read_checkpoint(_read_weights, step)
    try:
        if backend == "native":
            return LoadedModel.from_weights(
                run.config.model, weights, tokenizer, quantize=quantize, threads=threads
            )
        model = torch_model(run.config.model, weights, device)
        return LoadedModel(model.config, tokenizer, lambda: TorchDecoder(model))
    except ValueError as error:
        problem = f"cannot be used ({error})"
        raise FileError(path, problem, "take another checkpoint with --step") from error


def _read_weights(checkpoint: Checkpoint) -> tuple[Path, dict[str, Float32[np.ndarray, "*shape"]]]:
    path = checkpoint.folder / MODEL
    if checksum(path) != checkpoint.state()["checksums"].get(MODEL):
        raise FileError(path, "is damaged", "take another checkpoint with --step")
    return path, load_weights(path)


def load_weights(path: StrPath) -> dict[str, Float32[np.ndarray, "*shape"]]:
    """Read a safetensors file, any floating-point numbers in it as float32."""
    weights = {}
    try:
        with safetensors.safe_open(path, "numpy") as file:
            for name in file.keys():  # noqa: SIM118, it is no dict
                dtype = file.get_slice(name).get_dtype()
                if dtype == "BF16":  # which NumPy has no name for
                    return _load_bfloat16(path)
                if dtype not in FLOATS:
                    raise FileError(path, f"holds {name} as {dtype}", "save it as float32")
                weights[name] = file.get_tensor(name).astype(np.float32, copy=False)
    except safetensors.SafetensorError as error:
        problem = f"is torn or is no safetensors file ({error})"
        raise FileError(path, problem, "take another checkpoint with --step") from error
    return weights


def _load_bfloat16(path: StrPath) -> dict[str, Float32[np.ndarray, "*shape"]]:
    weights = {}
    for name, tensor in safetensors.deserialize(read_bytes(path)):  # type: ignore[no-untyped-call]
        if tensor["dtype"] != "BF16":
            problem = f"holds {name} as {tensor['dtype']} beside others as BF16"
            raise FileError(path, problem, "save all as one of them")
        upper_halves = np.frombuffer(tensor["data"], np.uint16).astype(np.uint32) << 16
        weights[name] = upper_halves.view(np.float32).reshape(tensor["shape"])
    return weights


def usable_cores() -> int:
    """The cores that this process may run on: a container often has fewer than the machine."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _check_options(quantize: Quantize | None, threads: int | None) -> None:
    if quantize not in (None, "int8"):
        raise ValueError(f"there is no quantization {quantize!r}; choose int8, or none.")
    if threads is not None and operator.index(threads) < 1:
        raise ValueError(f"threads is {threads}; give 1 or more.")


def _check_tokenizer(config: ModelConfig, tokenizer: Tokenizer) -> None:
    if tokenizer.vocab_size > config.vocab_size:
        raise ValueError(
            f"the tokenizer has ids up to {tokenizer.vocab_size - 1}, and the vocabulary of the "
            f"model ends at {config.vocab_size - 1}"
        )
