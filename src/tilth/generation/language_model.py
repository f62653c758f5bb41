r"""A trained model with its tokenizer: `tilth.load`, then generate or score text.

The native core decodes on a CPU, without torch; torch decodes on other devices.

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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from tilth.config.model import END_TOKEN, ModelConfig
from tilth.config.threads import checked_threads
from tilth.files import FileError, StrPath
from tilth.generation import decoding
from tilth.generation.decoding import (
    GeneratedText,
    GenerationOptions,
    PastContext,
    ScoredToken,
    TextStream,
)
from tilth.generation.native_decoder import NativeDecoder, make_network
from tilth.generation.sources import open_source, read_model
from tilth.generation.trace import Trace, trace
from tilth.runs.run import Run
from tilth.schema import Range, check_choice, check_int
from tilth.tokenizer import Tokenizer

if TYPE_CHECKING:
    import numpy as np

    from tilth.model import TransformerLM

Quantize = Literal["bfloat16", "int8", "int4"]
CachePrecision = Literal["float32", "int8"]
Backend = Literal["native", "torch"]
BATCH_ROWS = 64
"""Texts that are generated at once: one reading of the weights serves 64 tokens."""

MAX_SAMPLES = 10**9

SCORED_ROWS = 16
"""Texts that are scored at once: short ones share a reading of the weights."""


class PromptError(ValueError):
    """A prompt that cannot be continued; the options are valid."""


@dataclass(frozen=True)
class LanguageModel:
    """A model with its tokenizer, on any backend; `tilth.load` makes one.

    Attributes:
        config: Shape of the model.
        tokenizer: Its tokenizer.
        decoder: Returns a decoder of a number of sequences; all decoders share the weights.
        end_token: The special token that ends a document; generation stops at it.
        has_batches: Whether a decoder takes several sequences at once.
        weights: Returns the weights in float32, for `trace`.

    """

    config: ModelConfig
    tokenizer: Tokenizer
    decoder: Callable[[int], decoding.Decoder] = field(repr=False)
    end_token: str = END_TOKEN
    has_batches: bool = False
    weights: Callable[[], Mapping[str, np.ndarray]] | None = field(default=None, repr=False)

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
        cache: CachePrecision = "float32",
        threads: int | None = None,
    ) -> Self:
        """Return a native model of weights, given by their names in a checkpoint."""
        check_choice("quantize", quantize, (None, *get_args(Quantize)))
        check_choice("cache", cache, get_args(CachePrecision))
        count = checked_threads(threads)
        network = make_network(config, weights, precision=quantize or "float32")
        make = partial(NativeDecoder, network, count, cache=cache)
        return cls(config, tokenizer, make, end_token, has_batches=True, weights=lambda: weights)

    @classmethod
    def from_model(
        cls,
        model: TransformerLM,
        tokenizer: Tokenizer,
        *,
        end_token: str = END_TOKEN,
        cached: bool = True,
    ) -> Self:
        """Return a model that decodes with torch, on its device.

        Use `cached=False` for a model in training: its forward pass is called for every token.
        """
        from tilth.generation import torch_decoder as torch  # noqa: PLC0415

        weights = partial(torch.numpy_weights, model)
        if not cached:
            make_one = lambda rows: torch.UncachedDecoder(model)  # noqa: E731
            return cls(model.config, tokenizer, make_one, end_token, weights=weights)
        torch.check_memory(model.config, rows=1)
        make = partial(torch.TorchDecoder, model)
        return cls(model.config, tokenizer, make, end_token, has_batches=True, weights=weights)

    @property
    def end_id(self) -> int | None:
        """The id of the end token; None if the tokenizer does not have it."""
        return self.tokenizer.special_tokens.get(self.end_token)

    @property
    def begin_ids(self) -> list[int]:
        """The ids before every prompt, such as `<|begin_of_text|>` of Llama 3; often none."""
        special_tokens = self.tokenizer.special_tokens
        return [special_tokens[token] for token in self.tokenizer.template.before]

    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        max_tokens: int = 256,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        seed: int = 0,
        sample_index: int = 0,
        stop: Sequence[str] = (),
        past_context: PastContext = "slide",
        allow_special: bool = False,
        alternatives: int | None = None,
        drafts: bool = False,
    ) -> TextStream:
        """Continue a prompt; return an iterator over the new text.

        The text ends at the end token, after `max_tokens`, or before a stop string; `stop_reason`
        of the result says which. Iterate over `.tokens` of the result for token ids with
        log-probabilities instead of text.

        A prompt is a text, or a list of token ids; an empty text begins a document. The options are
        the fields of `GenerationOptions` and `Sampling`, which describe them.

        Raises:
            PromptError: The prompt is longer than the context, or cannot be encoded.
            ValueError: An option is out of range.

        """
        options = {
            name: value for name, value in locals().items() if name not in ("self", "prompt")
        }
        sequence = self._continuation(prompt, GenerationOptions(**options))
        return TextStream(self.decoder(1), sequence, self.tokenizer)

    def generate_batch(
        self,
        prompts: Sequence[str | Sequence[int]],
        **options: Any,  # noqa: ANN401
    ) -> list[str]:
        """Continue every prompt; return the new texts.

        The options are those of `generate`, without `alternatives` and `sample_index`: prompt i has
        sample index i.
        Up to 64 texts are generated at once; the next prompt takes the place of a complete text.
        In the native decoder each text equals that of `generate`.
        """
        if isinstance(prompts, str):
            raise ValueError("generate_batch takes a list of prompts; for one, call generate.")
        if "alternatives" in options:
            raise ValueError(
                "generate_batch returns texts only; omit alternatives, or call generate_samples."
            )
        if "sample_index" in options:
            raise ValueError(
                "generate_batch gives prompt i the sample index i; omit sample_index, or call "
                "generate."
            )
        chosen = GenerationOptions(**options)
        # All before the first text, as a prompt may be too long.
        sequences = [
            self._continuation(prompt, replace(chosen, sample_index=index))
            for index, prompt in enumerate(prompts)
        ]
        return [found.text for found in self._generate_texts(sequences, len(sequences))]

    def generate_samples(
        self,
        prompts: Sequence[str | Sequence[int]],
        samples: int = 1,
        **options: Any,  # noqa: ANN401
    ) -> Iterator[GeneratedText]:
        """Continue every prompt `samples` times, in batches; yield the texts in order.

        Sample i of each prompt equals `generate(prompt, sample_index=i)`. The options are those of
        `generate`, without `sample_index`.
        """
        check_int("samples", samples, Range(at_least=1, at_most=MAX_SAMPLES))
        if "sample_index" in options:
            raise ValueError(
                "generate_samples gives sample i the index i; omit sample_index, or call generate."
            )
        chosen = GenerationOptions(**options)
        ids = [self.prompt_ids(each, allow_special=chosen.allow_special) for each in prompts]
        sequences = (
            self._continuation_of(each, replace(chosen, sample_index=index))
            for each in ids
            for index in range(samples)
        )
        return self._generate_texts(sequences, len(prompts) * samples)

    def _generate_texts(
        self, sequences: Iterable[decoding.Continuation], count: int
    ) -> Iterator[GeneratedText]:
        rows = min(max(1, count), BATCH_ROWS) if self.has_batches else 1
        return decoding.generate_texts(self.decoder(rows), sequences, self.tokenizer, rows)

    def score(
        self, text: str, *, alternatives: int = 0, allow_special: bool = False
    ) -> list[ScoredToken]:
        """Return the log-probability of each token of a text; their sum is that of the text.

        The first token is scored after the tokens that begin every prompt (`begin_ids`), or after
        the end token, as the beginning of a document; without either it is not scored. In a text
        longer than the context, each token is scored after at least half a context.

        Args:
            text: The text to score.
            alternatives: Number of likeliest tokens to return in each place.
            allow_special: Encode special tokens in the text as special tokens, not as text.

        """
        check_int("alternatives", alternatives, Range(at_least=0))
        if alternatives == 0:
            return self.score_batch([text], allow_special=allow_special)[0]
        ids, num_before = self._scored_ids(text, allow_special)
        lengths = self.config.context_length, self.tokenizer.vocab_size
        scored = decoding.score_ids(self.decoder(1), ids, *lengths, alternatives)
        return scored[max(0, num_before - 1) :]

    def score_batch(
        self, texts: Sequence[str], *, allow_special: bool = False
    ) -> list[list[ScoredToken]]:
        """Return the log-probability of each token of each text, as `score` does.

        Several texts are read at once. In the native decoder the numbers equal those of `score` of
        one text to the bit. Texts that begin alike are each read from the start, as every token is
        scored; `tilth evaluate` reads the common context of several continuations once.
        """
        if isinstance(texts, str):
            raise ValueError("score_batch takes a list of texts; for one, call score.")
        encoded = [self._scored_ids(text, allow_special) for text in texts]
        decoder, rows = self.decoder(1), min(len(texts), SCORED_ROWS)
        if rows > 1 and isinstance(decoder, decoding.ScoringDecoder):
            decoder = self.decoder(rows)
        lengths = self.config.context_length, self.tokenizer.vocab_size
        every = [ids for ids, _ in encoded]
        found = decoding.score_texts(decoder, every, *lengths, max(1, rows))
        pairs = zip(found, encoded, strict=True)
        return [scored[max(0, num_before - 1) :] for scored, (_, num_before) in pairs]

    def _scored_ids(self, text: str, allow_special: bool) -> tuple[list[int], int]:
        """Return the ids that `score` reads, and how many of them come before the text."""
        before = self.begin_ids or ([] if self.end_id is None else [self.end_id])
        return [*before, *self._encode(text, allow_special)], len(before)

    def trace(
        self, text: str, *, without: Sequence[str] = (), allow_special: bool = False
    ) -> Trace:
        """Compute a forward pass over a text in float32; return its intermediate values.

        The text follows the end token, as in `score`. `trace.Trace` describes the values.

        Args:
            text: The text, at most a context long.
            without: Parts to switch off: "layer.2", "layer.2.attention", "layer.2.feed_forward" or
                "layer.2.head.1", counted from 0.
            allow_special: Encode special tokens in the text as special tokens, not as text.

        """
        if self.weights is None:
            raise ValueError("this model was made without its weights; load it with tilth.load.")
        ids = self.prompt_ids(text, allow_special=allow_special)
        has_space = len(ids) < self.config.context_length
        if text and not self.begin_ids and self.end_id is not None and has_space:
            ids = [self.end_id, *ids]
        vocab_size = self.tokenizer.vocab_size
        return trace(self.config, self.weights(), ids, without, vocab_size=vocab_size)

    def prompt_ids(self, prompt: str | Sequence[int], *, allow_special: bool = False) -> list[int]:
        """Return the ids of a prompt; an empty text is the end token, which begins a document."""
        length = self.config.context_length
        if isinstance(prompt, str):
            try:
                ids = [*self.begin_ids, *self._encode(prompt, allow_special)]
            except ValueError as error:  # the tokenizer does not have every byte
                raise PromptError(str(error)) from error
        else:
            ids = self.checked_ids(prompt)
        if not ids and self.end_id is not None:
            ids = [self.end_id]
        if not ids:
            raise PromptError(
                f"the prompt is empty, and the tokenizer has no {self.end_token}; write a prompt."
            )
        if len(ids) > length:
            raise PromptError(
                f"the prompt has {len(ids)} tokens, and the context length is {length}; shorten it."
            )
        return ids

    def checked_ids(self, ids: Sequence[int]) -> list[int]:
        """Return ids; raise PromptError unless the model has all of them."""
        found = [operator.index(token_id) for token_id in ids]
        if bad := [i for i in found if not 0 <= i < self.config.vocab_size]:
            raise PromptError(
                f"the prompt has the id {bad[0]}; ids are below {self.config.vocab_size}."
            )
        return found

    def _encode(self, text: str, allow_special: bool) -> list[int]:
        tokenizer = self.tokenizer
        return tokenizer.encode(text) if allow_special else tokenizer.encode_ordinary(text)

    def _continuation(
        self, prompt: str | Sequence[int], options: GenerationOptions
    ) -> decoding.Continuation:
        ids = self.prompt_ids(prompt, allow_special=options.allow_special)
        return self._continuation_of(ids, options)

    def _continuation_of(
        self, ids: Sequence[int], options: GenerationOptions
    ) -> decoding.Continuation:
        context_length = self.config.context_length
        return decoding.Continuation(
            ids, options, context_length=context_length, end_id=self.end_id
        )


def load(
    path: StrPath | Run,
    *,
    step: int | None = None,
    device: str = "cpu",
    backend: Backend | None = None,
    quantize: Quantize | None = None,
    cache: CachePrecision = "float32",
    threads: int | None = None,
) -> LanguageModel:
    """Load a language model from a run directory, a checkpoint folder or a model folder.

    Args:
        path: A run, a run directory, a checkpoint folder within one, or a model folder that was
            exported, imported or downloaded from Hugging Face.
        step: The checkpoint of this step. Default: the best one.
        device: "cpu", or a torch device such as "cuda".
        backend: "native" (the CPU) or "torch". Default: native on a CPU, torch elsewhere.
        quantize: Precision of the matrices of the native backend: "bfloat16", "int8", or "int4"
            (feed-forwards; attention and output matrix int8). Default: float32.
        cache: Precision of keys and values of the native backend; "int8" takes about a
            quarter of the memory.
        threads: Threads of the native backend. Default: all cores.

    """
    if backend is None:
        backend = "native" if device == "cpu" else "torch"
    check_choice("backend", backend, get_args(Backend))
    check_choice("quantize", quantize, (None, *get_args(Quantize)))
    check_choice("cache", cache, get_args(CachePrecision))
    if backend == "native" and device != "cpu":
        raise ValueError(f"the native decoder runs on the cpu, not on {device}; use torch there.")
    checked_threads(threads)
    if backend == "torch":
        from tilth.model.device import check_device  # noqa: PLC0415

        if quantize is not None:
            raise ValueError(f"{quantize} weights are for the CPU; omit --quantize or --device.")
        if cache != "float32":
            raise ValueError(f"a cache in {cache} is for the CPU; omit --cache or --device.")
        check_device(device)
    source, step = (path, step) if isinstance(path, Run) else open_source(path, step)
    weights_path, files = read_model(source, step)
    try:
        if backend == "torch":
            from tilth.model.transformer import build_model  # noqa: PLC0415

            model = build_model(files.config, files.weights, device)
            make = partial(LanguageModel.from_model, model)
        else:
            make = partial(
                LanguageModel.from_weights,
                files.config,
                files.weights,
                quantize=quantize,
                cache=cache,
                threads=threads,
            )
        found = make(files.tokenizer, end_token=files.end_token)
        # Read again for each trace: the packed weights of the decoder are all that stays in memory.
        folder = weights_path.parent
        return replace(found, weights=lambda: read_model(*open_source(folder))[1].weights)
    except ValueError as error:
        problem = f"cannot be used ({error})"
        hint = "choose another checkpoint with --step" if isinstance(source, Run) else "restore it"
        raise FileError(weights_path, problem, hint) from error
