r"""A trained model with its tokenizer: `tilth.load`, then generate or score text.

The native core decodes on a CPU, torch elsewhere; a CPU needs no torch.

>>> from tilth.config import ModelConfig
>>> from tilth.model import TransformerLM
>>> config = ModelConfig(257, context_length=16, d_model=32, num_layers=2, num_heads=4)
>>> weights = {name: 0 * w.numpy() for name, w in TransformerLM(config).state_dict().items()}
>>> tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<|endoftext|>"])
>>> model = LanguageModel.from_weights(config, weights, tokenizer)
>>> stream = model.generate("hi", max_tokens=3, temperature=0.0)  # of equals, the smallest id
>>> list(stream), stream.stop_reason
(['\x00', '\x00', '\x00'], 'limit')
>>> [(token.id, round(token.log_probability, 3)) for token in model.score("hi")]  # log(1 / 257)
[(104, -5.549), (105, -5.549)]
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from tilth.config.model import END_TOKEN, ModelConfig
from tilth.config.threads import checked_threads
from tilth.files import FileError, StrPath
from tilth.generation.decoding import (
    Continuation,
    Decoder,
    ScoredToken,
    TextBuilder,
    TextStream,
    decode,
    score_ids,
)
from tilth.generation.native_decoder import NativeDecoder, make_network
from tilth.generation.sampling import Sampling
from tilth.runs.checkpoints import CHECKPOINTS, MODEL, STATE, Checkpoint
from tilth.runs.run import MANIFEST, Run, open_run
from tilth.runs.tensors import check_model_file, load_weights
from tilth.tokenizer import Tokenizer

if TYPE_CHECKING:
    import numpy as np

    from tilth.model import TransformerLM

Quantize = Literal["int8"]
Backend = Literal["native", "torch"]
PastContext = Literal["slide", "stop"]


class PromptError(ValueError):
    """A prompt that cannot be continued; another one may."""


@dataclass(frozen=True)
class LanguageModel:
    """A model and its tokenizer, whatever it decodes with; made by `tilth.load`."""

    config: ModelConfig
    tokenizer: Tokenizer
    decoder: Callable[[int], Decoder] = field(repr=False)
    """Makes a decoder of so many sequences; any number of decoders share the weights."""
    end_token: str = END_TOKEN
    """The special token that ends a document; generation stops at it."""
    has_batches: bool = False
    """Whether a decoder takes several sequences at once."""

    def __post_init__(self) -> None:
        if self.tokenizer.vocab_size > self.config.vocab_size:
            raise ValueError(
                f"the tokenizer has ids up to {self.tokenizer.vocab_size - 1}, and the vocabulary "
                f"of the model ends at {self.config.vocab_size - 1}"
            )

    @classmethod
    def from_weights(
        cls,
        config: ModelConfig,
        weights: Mapping[str, np.ndarray],
        tokenizer: Tokenizer,
        *,
        end_token: str = END_TOKEN,
        quantize: Quantize | None = None,
        threads: int | None = None,
    ) -> Self:
        """A native model of weights under the names of a checkpoint."""
        _check_quantize(quantize)
        count = checked_threads(threads)
        network = make_network(config, weights, is_int8=quantize == "int8")
        return cls(config, tokenizer, lambda rows: NativeDecoder(network, count), end_token)

    @classmethod
    def from_model(
        cls,
        model: TransformerLM,
        tokenizer: Tokenizer,
        *,
        end_token: str = END_TOKEN,
        cached: bool = True,
    ) -> Self:
        """A model in torch, on its own device; uncached for a model in training."""
        from tilth.generation.torch_decoder import TorchDecoder, UncachedDecoder  # noqa: PLC0415

        if cached:
            make = partial(TorchDecoder, model)
            return cls(model.config, tokenizer, make, end_token, has_batches=True)
        return cls(model.config, tokenizer, lambda rows: UncachedDecoder(model), end_token)

    @property
    def end_id(self) -> int | None:
        """The id of the end token; None if the tokenizer does not have it."""
        return self.tokenizer.special_tokens.get(self.end_token)

    def generate(
        self,
        prompt: str,
        *,
        max_tokens: int = 256,
        stop: Sequence[str] = (),
        sample_index: int = 0,
        past_context: PastContext = "slide",
        allow_special: bool = False,
        alternatives: int | None = None,
        **sampling: Any,  # noqa: ANN401, the fields of Sampling
    ) -> TextStream:
        """Continue a prompt; iterate over the result for its text, without the prompt.

        `sampling` are the fields of `Sampling`: temperature, top_k, top_p, min_p,
        repetition_penalty, seed. Equal seeds and sample indices give equal text.

        The text ends at the end token, after `max_tokens`, before a string of `stop`, or, with
        `past_context="stop"`, where the context is full; then `stop_reason` says why. With "slide",
        a full context forgets its older half. Special tokens in the prompt are text unless allowed.

        Iterate over `.tokens` of the result for token ids with log-probabilities. With a number of
        `alternatives` (0 or more), these scores are kept in `.scored_tokens` beside the text.
        """
        _check_alternatives(alternatives or 0)
        _check_stop(stop)
        sequence = self._continuation(
            prompt, Sampling(**sampling), max_tokens, sample_index, past_context, allow_special
        )
        return TextStream(self.decoder(1), sequence, self.tokenizer, stop, alternatives)

    def generate_batch(
        self,
        prompts: Sequence[str],
        *,
        max_tokens: int = 256,
        stop: Sequence[str] = (),
        past_context: PastContext = "slide",
        allow_special: bool = False,
        **sampling: Any,  # noqa: ANN401, the fields of Sampling
    ) -> list[str]:
        """Continue every prompt, with the options of `generate`; prompt i is sample index i.

        In torch all prompts are read at once. The native decoder reads one after the other.
        """
        if isinstance(prompts, str):
            raise ValueError("generate_batch takes a list of prompts; for one, call generate.")
        _check_stop(stop)
        chosen = Sampling(**sampling)
        sequences = [
            self._continuation(prompt, chosen, max_tokens, index, past_context, allow_special)
            for index, prompt in enumerate(prompts)
        ]
        texts: list[str] = []
        rows = max(1, len(prompts)) if self.has_batches else 1
        for first in range(0, len(prompts), rows):
            batch = sequences[first : first + rows]
            builders = [TextBuilder(self.tokenizer, stop) for _ in batch]
            parts: list[list[str]] = [[] for _ in batch]
            for row, token_id, _ in decode(self.decoder(rows), batch, self.tokenizer.vocab_size):
                parts[row].append(builders[row].add(token_id))
                if builders[row].is_stopped:
                    batch[row].stop("stop string")
            for each, builder in zip(parts, builders, strict=True):
                texts.append("".join(each) + builder.finish())
        return texts

    def score(
        self, text: str, *, alternatives: int = 0, allow_special: bool = False
    ) -> list[ScoredToken]:
        """The log-probability of each token of a text; their sum is that of the text.

        The text begins a document: its first token is scored after the end token (where a tokenizer
        has none, the first token is not scored). In a text longer than the context, each token sees
        at least half a context before it. Special tokens in the text are text, unless allowed.
        """
        _check_alternatives(alternatives)
        ids = self._encode(text, allow_special)
        return score_ids(
            self.decoder(1),
            ids if self.end_id is None else [self.end_id, *ids],
            context_length=self.config.context_length,
            vocab_size=self.tokenizer.vocab_size,
            num_alternatives=alternatives,
        )

    def _encode(self, text: str, allow_special: bool) -> list[int]:
        tokenizer = self.tokenizer
        return tokenizer.encode(text) if allow_special else tokenizer.encode_ordinary(text)

    def _continuation(
        self,
        prompt: str,
        sampling: Sampling,
        max_tokens: int,
        sample_index: int,
        past_context: PastContext,
        allow_special: bool,
    ) -> Continuation:
        if operator.index(max_tokens) < 1:
            raise ValueError(f"max_tokens is {max_tokens}; write 1 token or more.")
        if not 0 <= operator.index(sample_index) < 2**64:
            raise ValueError(f"sample_index is {sample_index}; give 0 or more.")
        if past_context not in get_args(PastContext):
            raise ValueError(f"past_context is {past_context!r}; choose slide or stop.")
        return Continuation(
            self.prompt_ids(prompt, allow_special=allow_special),
            sampling,
            context_length=self.config.context_length,
            max_tokens=max_tokens,
            end_id=self.end_id,
            sample_index=sample_index,
            slides=past_context == "slide",
        )

    def prompt_ids(self, prompt: str, *, allow_special: bool = False) -> list[int]:
        """The ids of a prompt; an empty one is the end token, after which a document begins."""
        length = self.config.context_length
        try:
            ids = self._encode(prompt, allow_special)
        except ValueError as error:  # a tokenizer that does not have every byte
            raise PromptError(str(error)) from error
        if not ids and self.end_id is not None:
            ids = [self.end_id]
        if not ids:
            raise PromptError(
                f"the prompt is empty, and the tokenizer has no {self.end_token}; give a word."
            )
        if len(ids) > length:
            raise PromptError(
                f"the prompt has {len(ids)} tokens, and the context length is {length}; shorten it."
            )
        return ids


def load(
    path: StrPath | Run,
    *,
    step: int | None = None,
    device: str = "cpu",
    backend: Backend | None = None,
    quantize: Quantize | None = None,
    threads: int | None = None,
) -> LanguageModel:
    """Load the best checkpoint of a run, or the one after `step`, or a checkpoint folder.

    The CPU decodes natively, in float32 or int8, on `threads` threads (default: all cores); any
    other device through torch, which uses its own threads.
    """
    if backend is None:
        backend = "native" if device == "cpu" else "torch"
    if backend not in get_args(Backend):
        raise ValueError(f"there is no backend {backend!r}; choose native or torch.")
    if backend == "native" and device != "cpu":
        raise ValueError(f"the native decoder runs on the cpu, not on {device}; take torch there.")
    _check_quantize(quantize)
    checked_threads(threads)
    if backend == "torch":
        from tilth.generation.torch_decoder import torch_model  # noqa: PLC0415
        from tilth.model.device import check_device  # noqa: PLC0415

        if quantize is not None:
            raise ValueError(
                f"{quantize} weights are for the CPU; leave --quantize or --device out."
            )
        check_device(device)
    run, step = (path, step) if isinstance(path, Run) else _opened(Path(path), step)
    tokenizer, config = run.tokenizer(), run.config.model
    if run.end_token not in (END_TOKEN, *tokenizer.special_tokens):
        problem = f"names the end token {run.end_token[:40]!r}, which its tokenizer does not have"
        raise FileError(run.folder / MANIFEST, problem, "restore a copy")
    file, weights = run.read_checkpoint(partial(_read_weights, config), step)
    try:
        if backend == "native":
            return LanguageModel.from_weights(
                config,
                weights,
                tokenizer,
                end_token=run.end_token,
                quantize=quantize,
                threads=threads,
            )
        model = torch_model(config, weights, device)
        return LanguageModel.from_model(model, tokenizer, end_token=run.end_token)
    except ValueError as error:
        problem = f"cannot be used ({error})"
        raise FileError(file, problem, "take another checkpoint with --step") from error


def _opened(path: Path, step: int | None) -> tuple[Run, int | None]:
    """The run of a path, and the step of a checkpoint folder."""
    if not (path / STATE).is_file():
        return open_run(path), step
    folder = path.resolve()
    if folder.parent.name != CHECKPOINTS:
        hint = "a checkpoint has no tokenizer: name it within its run"
        raise FileError(path, "is a checkpoint outside of a run directory", hint)
    run = open_run(folder.parent.parent)
    found = next((each for each in run.checkpoints() if each.name == folder.name), None)
    if found is None or step not in (None, found.step):
        raise FileError(path, f"is not the checkpoint of step {step}", "name the run directory")
    return run, found.step


def _read_weights(
    config: ModelConfig, checkpoint: Checkpoint
) -> tuple[Path, dict[str, np.ndarray]]:
    path = checkpoint.folder / MODEL
    check_model_file(path, config)
    return path, load_weights(path, checkpoint.read(MODEL, checkpoint.state()))


def _check_quantize(quantize: Quantize | None) -> None:
    if quantize not in (None, *get_args(Quantize)):
        raise ValueError(f"there is no quantization {quantize!r}; choose int8, or none.")


def _check_alternatives(alternatives: int) -> None:
    if operator.index(alternatives) < 0:
        raise ValueError(f"alternatives is {alternatives}; give 0 or more.")


def _check_stop(stop: Sequence[str]) -> None:
    if isinstance(stop, str) or not all(stop):
        raise ValueError(f"stop is {stop!r}; give a list of texts that are not empty.")
