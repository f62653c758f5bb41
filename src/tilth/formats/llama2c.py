r"""Model files of llama2.c: `model.bin` for `run.c` (version 0) and `runq.c` (version 2). No torch.

Version 0 has a header of seven int32 (the vocabulary size is negative if the output matrix is not
the embedding), then float32 numbers: embedding, attention norms, q, k, v and o of all layers,
feed-forward norms, w1, w2, w3, the final norm, two tables of RoPE that `run.c` skips, the output
matrix. Version 2 has a magic number, a header of 256 bytes, the norms in float32, and each matrix
as int8 with one float32 scale for each group.

Both programs rotate interleaved pairs, as tilth does, with theta 10,000, and use an epsilon of
1e-5; their files store neither. Token 1 begins and ends a text in `run.c`, whatever the vocabulary.

`tokenizer.bin` has the text and a score of each token. tilth decodes with it; it holds a
SentencePiece vocabulary, which tilth cannot encode with.
"""

import os
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal

import numpy as np

from tilth.config.model import ModelConfig
from tilth.config.parameters import EMBEDDING, HEAD, parameter_shapes
from tilth.files import FileError, StrPath, atomic_write, open_regular, read_bytes
from tilth.formats.model_files import ModelFiles, refuse_first, refuse_variants
from tilth.formats.safetensors_files import HINT
from tilth.tokenizer import Tokenizer
from tilth.tokenizer.tokenizer import IncrementalDecoder
from tilth.tokenizer.vocabulary import Vocabulary

if TYPE_CHECKING:
    from tilth.tokenizer.tokenizer import Text

TOKENIZER_BIN = "tokenizer.bin"
THETA, EPSILON = 10_000.0, 1e-5  # in run.c and runq.c
HEADER = struct.Struct("<7i")
MAGIC, HEADER_BYTES = 0x616B3432, 256  # "ak42"
GROUP_SIZE = 64
BEGIN_ID = 1
MAX_TOKENIZER_BYTES = 1 << 28
PART_BYTES = 1 << 20  # of int8 weights that are read at once

_BYTE = re.compile(rb"<0x([0-9A-Fa-f]{2})>")
_MATRICES = ("attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.output_proj")
_FEED_FORWARD = ("ffn.w1", "ffn.w2", "ffn.w3")


# --- layout ---------------------------------------------------------------------------------------


def _order(config: ModelConfig, version: Literal[0, 2]) -> Iterator[str | None]:
    """Yield the parameters in the order of a file; None is a skipped table of RoPE."""

    def of_layers(part: str) -> Iterator[str]:
        return (f"layers.{layer}.{part}.weight" for layer in range(config.num_layers))

    if version == 2:
        for part in ("ln1", "ln2"):
            yield from of_layers(part)
        yield from ("ln_final.weight", EMBEDDING)
        for part in (*_MATRICES, *_FEED_FORWARD):
            yield from of_layers(part)
    else:
        yield EMBEDDING
        yield from of_layers("ln1")
        for part in _MATRICES:
            yield from of_layers(part)
        yield from of_layers("ln2")
        for part in _FEED_FORWARD:
            yield from of_layers(part)
        yield from ("ln_final.weight", None, None)
    if not config.tie_embeddings:
        yield HEAD


def check_config(config: ModelConfig) -> None:
    """Raise ValueError for a model that the programs of llama2.c would compute differently."""
    refuse_variants(config, "llama2.c")
    problems = {
        "qk_norm": config.qk_norm,
        "biases": config.qkv_bias,
        "RoPE scaling": config.rope_scaling is not None,
        f"rope_theta {config.rope_theta:g} instead of {THETA:g}": config.rope_theta != THETA,
        f"norm_eps {config.norm_eps:g} instead of {EPSILON:g}": config.norm_eps != EPSILON,
        "its own head width": config.d_query != config.d_model,
    }
    refuse_first("llama2.c cannot express {}; export to hf or gguf instead.", problems)


# --- writing --------------------------------------------------------------------------------------


def _header(config: ModelConfig, vocab_size: int) -> bytes:
    return HEADER.pack(
        *(config.d_model, config.d_ff, config.num_layers, config.num_heads, config.num_kv_heads),
        *(vocab_size, config.context_length),
    )


def write_model(file: BinaryIO, model: ModelFiles) -> None:
    """Write version 0: float32, for `run.c`."""
    config = model.config
    check_config(config)
    sign = 1 if config.tie_embeddings else -1
    file.write(_header(config, sign * config.vocab_size))
    positions = np.arange(config.context_length, dtype=np.float64)
    angles = np.outer(positions, config.rope_frequencies)
    tables = iter((np.cos(angles), np.sin(angles)))
    for name in _order(config, 0):
        array = next(tables) if name is None else model.weights[name]
        file.write(np.ascontiguousarray(array, "<f4").tobytes())


def write_quantized(file: BinaryIO, model: ModelFiles) -> None:
    """Write version 2: int8 in groups, for `runq.c`."""
    config = model.config
    check_config(config)
    group_size = quantized_group_size(config)
    header = struct.pack("<Ii", MAGIC, 2) + _header(config, config.vocab_size)
    header += struct.pack("<Bi", config.tie_embeddings, group_size)
    file.write(header.ljust(HEADER_BYTES, b"\0"))
    for name in _order(config, 2):
        assert name is not None
        array = np.ascontiguousarray(model.weights[name], "<f4")
        if array.ndim == 1:
            file.write(array.tobytes())
            continue
        groups = array.reshape(-1, group_size)
        scales = np.abs(groups).max(axis=1, keepdims=True) / np.float32(127)
        # A group of zeros has the scale 0: its quotient is 0 too.
        quotients = np.divide(groups, scales, out=np.zeros_like(groups), where=scales > 0)
        file.write(np.rint(quotients).astype(np.int8).tobytes())
        file.write(scales.astype("<f4").tobytes())


def quantized_group_size(config: ModelConfig) -> int:
    """Return the largest group of at most 64 weights that divides every row."""
    size = GROUP_SIZE
    while config.d_model % size or config.d_ff % size:
        size //= 2
    if size < 2:
        raise ValueError(
            f"the width {config.d_model} or {config.d_ff} is odd, so its weights have no groups "
            "for int8; export them without --quantize."
        )
    return size


def write_tokenizer(file: BinaryIO, tokenizer: Tokenizer, vocab_size: int) -> None:
    """Write `tokenizer.bin`: the bytes of each id, with the rank of its merge as the score.

    `run.c` decodes with it. It encodes characters and not bytes, so its encoding may differ.
    """
    scores = {left + right: -rank for rank, (left, right) in enumerate(tokenizer.merges)}
    tokens = [_c_text(tokenizer.vocab.get(i, b"")) for i in range(vocab_size)]
    found = (scores.get(tokenizer.vocab.get(i, b""), -1e10) for i in range(vocab_size))
    _write_tokens(file, tokens, found)


def _write_tokens(file: BinaryIO, tokens: Sequence[bytes], scores: Iterable[float]) -> None:
    file.write(struct.pack("<i", max(map(len, tokens))))
    for text, score in zip(tokens, scores, strict=False):
        file.write(struct.pack("<fi", score, len(text)) + text)


def _c_text(token: bytes) -> bytes:
    """Return a token as `run.c` reads it: a lone byte that is not text is written as <0x0A>."""
    is_plain = len(token) != 1 or 0x20 <= token[0] < 0x7F
    return token if is_plain else b"<0x%02X>" % token[0]


# --- reading --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Header:
    version: Literal[0, 2]
    config: ModelConfig
    group_size: int
    bytes: int


def _read_header(path: StrPath, file: BinaryIO) -> _Header:
    data = file.read(HEADER_BYTES)
    version: Literal[0, 2] = 0
    start, group_size = 0, 1
    if data[:4] == MAGIC.to_bytes(4, "little"):
        (found,) = struct.unpack_from("<i", data.ljust(8, b"\0"), 4)
        if found != 2:
            problem = f"has version {found} of llama2.c"
            raise FileError(path, problem, "tilth reads versions 0 and 2")
        version, start = 2, 8
    if len(data) < (HEADER_BYTES if version else HEADER.size):
        raise FileError(path, "is too short for a model of llama2.c", HINT)
    width, d_ff, layers, heads, kv_heads, vocab_size, context = HEADER.unpack_from(data, start)
    is_tied = vocab_size > 0
    if version:
        flag, group_size = struct.unpack_from("<Bi", data, start + HEADER.size)
        is_tied = flag != 0
    try:
        config = ModelConfig(
            abs(vocab_size),
            context_length=context,
            d_model=width,
            num_layers=layers,
            num_heads=heads,
            num_kv_heads=kv_heads,
            d_ff=d_ff,
            rope_theta=THETA,
            norm_eps=EPSILON,
            tie_embeddings=is_tied,
        )
        if not 1 <= group_size <= width or width % group_size or d_ff % group_size:
            raise ValueError(f"its groups have {group_size} weights")
    except ValueError as error:
        problem = f"is not a model of llama2.c ({str(error).rstrip('.')})"
        raise FileError(path, problem, "check the path") from None
    return _Header(version, config, group_size, HEADER_BYTES if version else HEADER.size)


def _size_bytes(header: _Header) -> int:
    """Return the size of a file, from its header; an iterator, as the header is untrusted."""
    config = header.config
    total = header.bytes
    for _, shape in parameter_shapes(config):
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        if header.version == 2 and len(shape) > 1:
            total += count + 4 * (count // header.group_size)
        else:
            total += 4 * count
    if header.version == 0:  # two tables of RoPE
        total += 4 * config.context_length * config.d_head
    return total


def read_model(path: StrPath) -> tuple[ModelConfig, dict[str, np.ndarray]]:
    """Read a model file, once its size agrees with its header; int8 weights become float32."""
    with open_regular(path) as file:
        header = _read_header(path, file)
        file_bytes, expected = os.fstat(file.fileno()).st_size, _size_bytes(header)
        if file_bytes != expected:
            problem = f"has {file_bytes:,} bytes, and its header says {expected:,}"
            raise FileError(path, f"is not a whole model of llama2.c: it {problem}", HINT)
        file.seek(header.bytes)
        shapes = dict(parameter_shapes(header.config))
        table_bytes = 2 * header.config.context_length * header.config.d_head
        weights = {}
        for name in _order(header.config, header.version):
            if name is None:
                file.seek(table_bytes, os.SEEK_CUR)
            else:
                weights[name] = _read_array(file, path, shapes[name], header)
        return header.config, {name: weights[name] for name in shapes}


def _read_array(
    file: BinaryIO, path: StrPath, shape: tuple[int, ...], header: _Header
) -> np.ndarray:
    def numbers(kind: str, count: int) -> np.ndarray:
        found = np.frombuffer(file.read(count * np.dtype(kind).itemsize), kind)
        if len(found) != count:
            raise FileError(path, "was truncated while it was read", HINT)
        return found

    count = int(np.prod(shape))
    if header.version == 0 or len(shape) == 1:
        return numbers("<f4", count).reshape(shape)
    # In parts: the result is four times the int8 numbers, so memory holds only some of these.
    place, size = file.tell(), header.group_size
    file.seek(place + count)
    scales = numbers("<f4", count // size)
    end = file.tell()
    file.seek(place)
    array = np.empty((count // size, size), np.float32)
    step = max(1, PART_BYTES // size)
    for first in range(0, len(array), step):
        part = array[first : first + step]
        values = numbers("i1", part.size).reshape(part.shape)
        np.multiply(values, scales[first : first + step, None], out=part)
    file.seek(end)
    return array.reshape(shape)


# --- tokenizer.bin --------------------------------------------------------------------------------


class DecodingTokenizer(Tokenizer):
    """Decodes the ids of a `tokenizer.bin`; encoding text is a ValueError.

    Its one special token is that of id 1, which begins and ends a text.
    """

    def __init__(self, texts: Sequence[bytes]) -> None:
        begin = _name(texts, BEGIN_ID)
        # No merges and one token: the bytes of other ids may repeat, which a vocabulary forbids.
        self._set(Vocabulary({BEGIN_ID: begin.encode()}, (), {begin: BEGIN_ID}))
        self._texts = list(texts)

    def decode_bytes(self, ids: Sequence[int] | np.ndarray) -> bytes:
        """Return the bytes of ids, as `run.c` prints them."""
        parts = []
        for token_id in ids:
            if not 0 <= token_id < len(self._texts):
                raise ValueError(
                    f"{token_id} is not an id of the vocabulary; ids are below {len(self._texts)}."
                )
            text = self._texts[token_id]
            match = _BYTE.fullmatch(text)
            special = token_id in (BEGIN_ID, BEGIN_ID + 1)
            parts.append(b"" if special else bytes([int(match[1], 16)]) if match else text)
        return b"".join(parts)

    def decode(self, ids: Sequence[int] | np.ndarray, errors: str = "replace") -> str:
        """Return the text of ids; the blank after the token that begins a text is dropped."""
        text = self.decode_bytes(ids).decode("utf-8", errors)
        is_begun = len(ids) > 0 and int(ids[0]) == BEGIN_ID
        return text.removeprefix(" ") if is_begun else text

    def decoder(self, errors: str = "replace", *, after: int | None = None) -> IncrementalDecoder:
        """Return an incremental decoder; `after` is the id before the first."""
        decoder = IncrementalDecoder(self, errors)
        return _BeginningDecoder(decoder) if after == BEGIN_ID else decoder

    def _encode(self, text: "Text", allow_special: bool) -> list[int]:
        if not text:
            return []
        raise ValueError(
            "tokenizer.bin holds no merges, so text cannot be encoded; give the token ids "
            "(--prompt-ids), or leave the prompt out."
        )

    @property
    def vocab(self) -> Mapping[int, bytes]:
        """The bytes of each id."""
        return {i: self.decode_bytes([i]) for i in range(len(self._texts))}

    @property
    def vocab_size(self) -> int:
        """The number of ids."""
        return len(self._texts)

    def save(self, path: StrPath, *, overwrite: bool = False) -> None:
        """Save `tokenizer.bin` into a folder."""
        with atomic_write(Path(path) / TOKENIZER_BIN, overwrite=overwrite) as file:
            _write_tokens(file, self._texts, repeat(0.0))

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self._texts,))


class _BeginningDecoder(IncrementalDecoder):
    """Drops the blank of the first token, as `run.c` does after the token that begins a text."""

    def __init__(self, decoder: IncrementalDecoder) -> None:
        self._decoder_of_rest, self._is_first = decoder, True

    def decode(self, ids: Sequence[int]) -> str:
        text = self._decoder_of_rest.decode(ids)
        if self._is_first and ids:
            text, self._is_first = text.removeprefix(" "), False
        return text

    def finish(self) -> str:
        return self._decoder_of_rest.finish()


def _name(texts: Sequence[bytes], token_id: int) -> str:
    """Return the name of a control token; the files of llama2.c have line ends around it."""
    text = texts[token_id].strip().decode("utf-8", "replace") if token_id < len(texts) else ""
    return text or f"<{token_id}>"


def load_tokenizer(path: StrPath, vocab_size: int) -> DecodingTokenizer:
    """Read a `tokenizer.bin` of a vocabulary; the file does not say how many tokens it has."""
    data = read_bytes(path, MAX_TOKENIZER_BYTES)
    texts: list[bytes] = []
    place = 4
    while place < len(data) and len(texts) < vocab_size:
        if place + 8 > len(data):
            break
        length = int.from_bytes(data[place + 4 : place + 8], "little", signed=True)
        if not 0 <= length <= len(data) - place - 8:
            problem = f"is not a tokenizer.bin: token {len(texts)} has {length} bytes"
            raise FileError(path, problem, "check the path")
        texts.append(data[place + 8 : place + 8 + length])
        place += 8 + length
    if len(texts) != vocab_size or place != len(data) or vocab_size <= BEGIN_ID:
        problem = f"does not have the {vocab_size:,} tokens of the model"
        raise FileError(path, problem, "name the tokenizer.bin that the model was trained with")
    return DecodingTokenizer(texts)
