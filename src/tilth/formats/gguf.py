"""GGUF files for llama.cpp and Ollama, with the vocabulary; written with the `gguf` package.

llama.cpp rotates interleaved pairs for the architecture `llama`, as tilth does, and two halves for
`qwen2` and `qwen3`, whose query and key rows are permuted as for `transformers`.

llama.cpp knows pre-tokenizers by name. A vocabulary is refused unless one of `PRE_TOKENIZERS`
splits every text alike.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, BinaryIO, Literal, get_args

import numpy as np

from tilth.config.model import ModelConfig
from tilth.config.parameters import EMBEDDING, HEAD
from tilth.errors import import_extra
from tilth.formats.huggingface import model_type_of, rotated_heads, to_halves
from tilth.formats.model_files import ModelFiles, renamed
from tilth.formats.safetensors_files import Dtype, rounded
from tilth.schema import short_repr
from tilth.tokenizer import Tokenizer
from tilth.tokenizer.formats.gpt2 import spell
from tilth.tokenizer.patterns import describe
from tilth.tokenizer.vocabulary import Vocabulary

Quantization = Literal["q8_0", "q4_0", "q4_1", "q5_0", "q5_1"]
QUANTIZATIONS = get_args(Quantization)
BLOCK = 32  # weights of a row that share a scale

# For each pattern, the pre-tokenizer of llama.cpp that splits alike, and whether it takes a piece
# that is a token whole, before any merge. Compared by ids, with a vocabulary whose tokens cross the
# ends of pieces: o200k (gpt-4o) and tekken differ next to combining marks, so they are missing.
PRE_TOKENIZERS: dict[str, tuple[str, bool]] = {
    "gpt2": ("gpt-2", False),
    "cl100k": ("dbrx", False),  # alike but for white space at the end: see `_crosses_line_end`
    "llama3": ("llama-bpe", True),
    "qwen2": ("qwen2", False),
    "deepseek-v3": ("deepseek-v3", False),
    "starcoder": ("starcoder", False),
}

_CONTRACTION = re.compile(rb"(?:.*'\xc5|\xc5)?\xbf", re.DOTALL)  # 'ſ, or its last bytes
_LETTER = re.compile(rb"[A-Za-z\xc2-\xff]")  # the first byte of one, or of a mark or a symbol

NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5  # types of tokens

_NAMES = {
    "ln1": "attn_norm",
    "attn.q_proj": "attn_q",
    "attn.k_proj": "attn_k",
    "attn.v_proj": "attn_v",
    "attn.output_proj": "attn_output",
    "attn.q_norm": "attn_q_norm",
    "attn.k_norm": "attn_k_norm",
    "ln2": "ffn_norm",
    "ffn.w1": "ffn_gate",
    "ffn.w2": "ffn_down",
    "ffn.w3": "ffn_up",
}
_OUTER_NAMES = {
    EMBEDDING: "token_embd.weight",
    "ln_final.weight": "output_norm.weight",
    HEAD: "output.weight",
}


def their_name(name: str) -> str:
    """Return the name of a parameter in llama.cpp."""
    return renamed(name, _OUTER_NAMES, "blk", _NAMES)


def check_model(
    config: ModelConfig, tokenizer: Tokenizer, quantize: Quantization | None = None
) -> str:
    """Raise ValueError for what llama.cpp cannot express; return the name of the pre-tokenizer."""
    model_type_of(config, "llama.cpp")
    widths = {config.d_model, config.d_query, config.d_ff}
    if quantize and any(width % BLOCK for width in widths):
        raise ValueError(
            f"{quantize} needs rows of a multiple of {BLOCK} weights, and the widths are "
            f"{', '.join(map(str, sorted(widths)))}; export without --quantize."
        )
    spelled_tokens(tokenizer.vocabulary, config.vocab_size)
    return pre_tokenizer_of(tokenizer.vocabulary)


def pre_tokenizer_of(vocabulary: Vocabulary) -> str:
    """Return the pre-tokenizer of llama.cpp that gives the same ids; raise ValueError if none."""
    pattern = vocabulary.pattern
    if not isinstance(pattern, str) or pattern not in PRE_TOKENIZERS:
        names = ", ".join(PRE_TOKENIZERS)
        raise ValueError(
            f"llama.cpp has no pre-tokenizer for the pattern {short_repr(describe(pattern))}; "
            f"there are those of {names}."
        )
    if vocabulary.normalizers or vocabulary.add_prefix_space:
        what = vocabulary.normalizers[0] if vocabulary.normalizers else "add_prefix_space"
        raise ValueError(
            f"the tokenizer has {what}, which llama.cpp does not apply, so ids would differ; "
            "export to hf instead."
        )
    name, is_whole_first = PRE_TOKENIZERS[pattern]
    if pattern in ("cl100k", "llama3", "qwen2") and (token := _crosses_long_s(vocabulary)):
        raise ValueError(
            f"llama.cpp does not split after the contraction 'ſ (long s), and the token "
            f"{short_repr(token)} crosses its end, so ids would differ; export to hf instead."
        )
    if pattern == "cl100k" and (crossing := _crosses_line_end(vocabulary)) is not None:
        raise ValueError(
            f"llama.cpp splits white space at the end of a text after its last line end, and the "
            f"token {short_repr(crossing)} crosses it, so ids would differ; export to hf instead."
        )
    if (
        is_whole_first != vocabulary.whole_piece_first
        and (token := _unlike_token(vocabulary)) is not None
    ):
        raise ValueError(
            f"merges do not make the token {short_repr(token)} of its own text, so llama.cpp "
            "would give other ids; export to hf instead."
        )
    return name


def _crosses_long_s(vocabulary: Vocabulary) -> bytes | None:
    """Return a token that crosses the end of the contraction 'ſ before a letter, or None.

    The patterns ignore the case of 's, and the long s (U+017F) is a lower case of S. llama.cpp
    compares with ASCII letters: it makes one piece of 'ſa. Without such a token the ids are equal.
    """
    for _, token in _ordinary(vocabulary):
        if b"\xbf" in token and any(
            _CONTRACTION.fullmatch(token[:end]) and _LETTER.match(token, end)
            for end in range(1, len(token))
        ):
            return token
    return None


def _crosses_line_end(vocabulary: Vocabulary) -> bytes | None:
    """Return a token with bytes after its last line end, or None.

    At the end of a text, cl100k makes one piece of a line end and the blanks after it, dbrx makes
    two. Without such a token no merge crosses the line end, and the ids are equal.
    """
    for _, token in _ordinary(vocabulary):
        if token[-1:] not in (b"\n", b"\r") and (b"\n" in token or b"\r" in token):
            return token
    return None


def _unlike_token(vocabulary: Vocabulary) -> bytes | None:
    """Return a token that merges do not make of its own text, or None.

    Without one, a piece that is a token has the same ids whether it is looked up or merged.
    """
    one_piece = replace(vocabulary, pattern=r"[\s\S]+", whole_piece_first=False)
    merging = Tokenizer.from_vocabulary(one_piece)
    tokens = {}
    for token_id, token in _ordinary(vocabulary):
        with suppress(UnicodeDecodeError):  # a piece is whole characters
            tokens[token_id] = token.decode("utf-8")
    rows = merging.encode_batch(list(tokens.values()), allow_special=False)
    for (token_id, text), ids in zip(tokens.items(), rows, strict=True):
        if ids != [token_id]:
            return text.encode()
    return None


def _ordinary(vocabulary: Vocabulary) -> list[tuple[int, bytes]]:
    special = {*vocabulary.special_tokens.values()}
    return [each for each in vocabulary.tokens.items() if each[0] not in special]


def write_gguf(
    file: BinaryIO,
    model: ModelFiles,
    *,
    name: str,
    dtype: Dtype = "float32",
    quantize: Quantization | None = None,
) -> None:
    """Write a model to an open file.

    With `quantize` the matrices are quantized; norms and biases stay float32.
    """
    gguf = import_extra("gguf", "writing GGUF")
    config, end_id = model.config, model.end_id
    pre_tokenizer = check_model(config, model.tokenizer, quantize)
    architecture = model_type_of(config)
    kind = quantize.upper() if quantize else _TYPES[dtype]
    # The writer opens a path, and this file has no name yet.
    writer = gguf.GGUFWriter(None, architecture)
    writer.fout, writer.state = [file], gguf.gguf_writer.WriterState.EMPTY
    prefix = "ALL" if kind == "F32" else "MOSTLY"
    writer.add_name(name)
    writer.add_file_type(gguf.LlamaFileType[f"{prefix}_{kind}"])
    writer.add_context_length(config.context_length)
    writer.add_embedding_length(config.d_model)
    writer.add_block_count(config.num_layers)
    writer.add_feed_forward_length(config.d_ff)
    writer.add_head_count(config.num_heads)
    writer.add_head_count_kv(config.num_kv_heads)
    writer.add_key_length(config.d_head)
    writer.add_value_length(config.d_head)
    writer.add_layer_norm_rms_eps(config.norm_eps)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_rope_dimension_count(config.d_head)
    writer.add_vocab_size(config.vocab_size)
    _add_vocabulary(writer, model, pre_tokenizer, end_id)
    quantization = gguf.GGMLQuantizationType[kind]
    single = gguf.GGMLQuantizationType.F32
    writer.state = gguf.gguf_writer.WriterState.NO_FILE  # the state in which tensors are added
    for tensor_name, array in _tensors(model):
        chosen = quantization if array.ndim > 1 else single
        if array.ndim > 1 and kind == "F16":
            data = rounded(tensor_name, array, "float16")
        else:
            data = gguf.quants.quantize(np.ascontiguousarray(array), chosen)
        writer.add_tensor(tensor_name, data, raw_dtype=chosen)
    writer.state = gguf.gguf_writer.WriterState.EMPTY
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    file.flush()


_TYPES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}


def _tensors(model: ModelFiles) -> Iterator[tuple[str, np.ndarray]]:
    config = model.config
    rotates_halves = model_type_of(config) != "llama"
    for name, array in model.weights.items():
        heads = rotated_heads(config, name) if rotates_halves else None
        yield their_name(name), array if heads is None else to_halves(array, heads)
    if config.rope_scaling is not None:  # llama.cpp divides the frequency of each pair by these
        plain = replace(config, rope_scaling=None).rope_frequencies
        factors = np.array(plain) / np.array(config.rope_frequencies)
        yield "rope_freqs.weight", factors.astype(np.float32)


def spelled_tokens(vocabulary: Vocabulary, vocab_size: int) -> tuple[list[str], list[int]]:
    """Return the tokens in the byte alphabet of GPT-2, and their types.

    Rows of the embedding without a token are padded. Raise ValueError for two equal spellings.
    """
    special = {token_id: token for token, token_id in vocabulary.special_tokens.items()}
    tokens, types, used = [], [], set()
    for token_id in range(vocab_size):
        content = vocabulary.tokens.get(token_id)
        if token_id in special:
            text = special[token_id]
            options = vocabulary.token_options.get(text)
            kind = CONTROL if options is None or options.special else USER_DEFINED
        elif content is None:
            text, kind = f"[PAD{token_id}]", UNUSED
        else:
            text, kind = spell(content), NORMAL
        if text in used:  # llama.cpp aborts
            raise ValueError(
                f"two tokens are written {short_repr(text)} in GGUF; export to hf instead."
            )
        used.add(text)
        tokens.append(text)
        types.append(kind)
    return tokens, types


def _add_vocabulary(writer: Any, model: ModelFiles, pre_tokenizer: str, end_id: int) -> None:  # noqa: ANN401
    """Add the tokens, their types, and the merges by rank."""
    vocabulary = model.tokenizer.vocabulary
    tokens, types = spelled_tokens(vocabulary, model.config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre_tokenizer)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([f"{spell(a)} {spell(b)}" for a, b in vocabulary.merges])
    before = model.tokenizer.template.before
    begin_id = vocabulary.special_tokens[before[0]] if before else end_id
    writer.add_bos_token_id(begin_id)
    writer.add_eos_token_id(end_id)
    writer.add_pad_token_id(end_id)
    writer.add_add_bos_token(bool(before))
    writer.add_add_eos_token(False)
    if model.tokenizer.chat_template is not None:
        writer.add_chat_template(model.tokenizer.chat_template)


def modelfile(file_name: str, *, temperature: float, top_p: float, end_token: str) -> str:
    """Return a `Modelfile` for `ollama create`; the prompt is continued as it is.

    Values have no escapes, only quotes: `"` for a line, three for any text.
    """
    if "\n" in file_name or "\r" in file_name:
        raise ValueError(f"a Modelfile cannot name {short_repr(file_name)}; omit the line end.")
    if '"""' in end_token:
        raise ValueError(
            f"a Modelfile cannot quote the end token {short_repr(end_token)}; export to hf instead."
        )
    quotes = '"' if end_token.isprintable() and '"' not in end_token else '"""'
    return (
        f"FROM ./{file_name}\n"
        'TEMPLATE """{{ .Prompt }}"""\n'
        f"PARAMETER temperature {temperature:g}\n"
        f"PARAMETER top_p {top_p:g}\n"
        f"PARAMETER stop {quotes}{end_token}{quotes}\n"
    )
