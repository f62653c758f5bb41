r"""Hugging Face model folders: `config.json`, safetensors and tokenizer files. No torch.

Llama, Qwen2 (biases of q, k and v) and Qwen3 (RMSNorm of queries and keys) are read and written.
`transformers` rotates the two halves of a head, tilth its interleaved pairs (2k, 2k + 1), so the
rows of the query and key matrices, their biases and their gains are permuted: `to_halves`,
`to_pairs`.

>>> config = ModelConfig(100, context_length=16, d_model=32, num_layers=2, num_heads=4)
>>> values = config_json(config, end_id=0)
>>> values["architectures"], values["rms_norm_eps"], values["head_dim"]
(['LlamaForCausalLM'], 1e-05, 8)
>>> read_config(values) == config
True
>>> rows = np.arange(8)
>>> to_halves(rows, 1).tolist(), to_pairs(to_halves(rows, 1), 1).tolist()
([0, 2, 4, 6, 1, 3, 5, 7], [0, 1, 2, 3, 4, 5, 6, 7])
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from tilth.config.model import END_TOKEN, ModelConfig, RopeScaling
from tilth.config.parameters import (
    EMBEDDING,
    HEAD,
    check_parameters,
    drop_tied_head,
    parameter_shapes,
)
from tilth.files import (
    FileError,
    StrPath,
    atomic_write,
    checked,
    checksum,
    load_manifest,
    open_regular,
    read_bytes,
    save_manifest,
    write_text_atomically,
)
from tilth.formats.llama2c import TOKENIZER_BIN, load_tokenizer
from tilth.formats.model_files import ModelFiles, refuse_first, refuse_variants, renamed
from tilth.formats.safetensors_files import HINT, Dtype, merged_headers, write_weights
from tilth.schema import POSITIVE, FileName, Length, Sha256, read, short_repr
from tilth.tokenizer import Tokenizer
from tilth.tokenizer.formats.reading import parse_json

CONFIG, GENERATION = "config.json", "generation_config.json"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
MANIFEST, KIND, VERSION = "manifest.json", "model", 1

MAX_SETTINGS_BYTES = 4 << 20
"""Limit of `config.json` and its like: parsed JSON takes up to 20 times the memory of its text."""

ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}

_LAYER_NAMES = {
    "ln1": "input_layernorm",
    "attn.q_proj": "self_attn.q_proj",
    "attn.k_proj": "self_attn.k_proj",
    "attn.v_proj": "self_attn.v_proj",
    "attn.output_proj": "self_attn.o_proj",
    "attn.q_norm": "self_attn.q_norm",
    "attn.k_norm": "self_attn.k_norm",
    "ln2": "post_attention_layernorm",
    "ffn.w1": "mlp.gate_proj",
    "ffn.w2": "mlp.down_proj",
    "ffn.w3": "mlp.up_proj",
}
_OWN_NAMES = {theirs: own for own, theirs in _LAYER_NAMES.items()}
_OUTER_NAMES = {
    EMBEDDING: "model.embed_tokens.weight",
    "ln_final.weight": "model.norm.weight",
    HEAD: "lm_head.weight",
}
_OWN_OUTER_NAMES = {theirs: own for own, theirs in _OUTER_NAMES.items()}
_LAYER = re.compile(r"(?:model\.)?layers\.([0-9]{1,5})\.(.+)\.(weight|bias)")
_BUFFER = re.compile(r"model\.layers\.[0-9]+\.self_attn\.rotary_emb\.inv_freq")  # in old files


# --- names and layouts ----------------------------------------------------------------------------


def to_halves(array: np.ndarray, heads: int) -> np.ndarray:
    """Permute the rows of each head from interleaved pairs to two halves."""
    return array.reshape(heads, -1, 2, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)


def to_pairs(array: np.ndarray, heads: int) -> np.ndarray:
    """Permute the rows of each head from two halves to interleaved pairs."""
    return array.reshape(heads, 2, -1, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)


def rotated_heads(config: ModelConfig, name: str) -> int | None:
    """Return the number of heads of a parameter that RoPE rotates; None for other parameters."""
    part = name.rpartition(".")[0].rpartition(".")[2]
    heads = {"q_proj": config.num_heads, "k_proj": config.num_kv_heads, "q_norm": 1, "k_norm": 1}
    return heads.get(part)


def their_name(name: str) -> str:
    """Return the name of a parameter in `transformers`."""
    return renamed(name, _OUTER_NAMES, "model.layers", _LAYER_NAMES)


def own_name(name: str) -> str | None:
    """Return the name of a parameter in tilth; None if tilth does not have it."""
    if name in _OWN_OUTER_NAMES:
        return _OWN_OUTER_NAMES[name]
    match = _LAYER.fullmatch(name)
    if match is None or match[2] not in _OWN_NAMES:
        return None
    return f"layers.{int(match[1])}.{_OWN_NAMES[match[2]]}.{match[3]}"


# --- config.json ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Settings:
    """The fields of a `config.json` that change the result; missing ones take these defaults."""

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    max_position_embeddings: int
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    rms_norm_eps: Annotated[float, POSITIVE] = 1e-6
    rope_theta: Annotated[float, POSITIVE] | None = None
    rope_parameters: dict[str, Any] | None = None
    rope_scaling: dict[str, Any] | None = None  # before transformers 5
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    hidden_act: str = "silu"
    use_sliding_window: bool = False
    layer_types: list[str] | None = None
    partial_rotary_factor: float = 1.0
    eos_token_id: int | list[int] | None = None


@dataclass(frozen=True)
class _Index:
    """The content of `model.safetensors.index.json`."""

    weight_map: Annotated[dict[str, FileName], Length(at_least=1)]


@dataclass(frozen=True)
class _Llama3Rope:
    """The rope parameters of Llama 3."""

    factor: float
    original_max_position_embeddings: int
    low_freq_factor: float
    high_freq_factor: float


def model_type_of(
    config: ModelConfig, tool: str = "transformers"
) -> Literal["llama", "qwen2", "qwen3"]:
    """Return the model type of a config; raise ValueError if no type has all its parts.

    llama.cpp has the same types.
    """
    refuse_variants(config, tool)
    if config.qk_norm and config.qkv_bias:
        raise ValueError(
            f"{tool} has no model with both qk_norm and biases of q, k and v; export a model "
            "with one of them."
        )
    return "qwen3" if config.qk_norm else "qwen2" if config.qkv_bias else "llama"


def config_json(
    config: ModelConfig, *, end_id: int, begin_id: int | None = None, dtype: Dtype = "float32"
) -> dict[str, Any]:
    """Return the content of `config.json`, with every field that changes the result."""
    model_type = model_type_of(config)
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": config.rope_theta}
    if scaling := config.rope_scaling:
        rope |= {
            "rope_type": "llama3",
            "factor": scaling.factor,
            "low_freq_factor": scaling.low_freq_factor,
            "high_freq_factor": scaling.high_freq_factor,
            "original_max_position_embeddings": scaling.original_context_length,
        }
    values: dict[str, Any] = {
        "architectures": [ARCHITECTURES[model_type]],
        "model_type": model_type,
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "intermediate_size": config.d_ff,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.d_head,  # Qwen3 defaults to 128
        "hidden_act": "silu",
        "max_position_embeddings": config.context_length,
        "initializer_range": 0.02,
        "rms_norm_eps": config.norm_eps,  # the default is 1e-6
        "use_cache": True,
        "tie_word_embeddings": config.tie_embeddings,
        "rope_theta": config.rope_theta,
        "rope_parameters": rope,
        "attention_dropout": 0.0,
        "bos_token_id": end_id if begin_id is None else begin_id,  # Llama defaults to 1 and 2
        "eos_token_id": end_id,
        "pad_token_id": end_id,
        "dtype": dtype,
        "torch_dtype": dtype,  # transformers 4
    }
    if scaling:
        values["rope_scaling"] = {key: rope[key] for key in rope if key != "rope_theta"}
    if model_type == "llama":
        return values | {"attention_bias": False, "mlp_bias": False, "pretraining_tp": 1}
    values |= {"use_sliding_window": False, "sliding_window": None}
    values |= {"max_window_layers": config.num_layers}
    values |= {"layer_types": ["full_attention"] * config.num_layers}
    return values | ({"attention_bias": False} if model_type == "qwen3" else {})


def read_config(values: Mapping[str, Any]) -> ModelConfig:
    """Return the config of a `config.json`; a ValueError names what tilth cannot reproduce."""
    kind = values.get("model_type")
    if not isinstance(kind, str) or kind not in ARCHITECTURES:
        names = ", ".join(ARCHITECTURES)
        raise ValueError(f"its model_type is {short_repr(kind)}; tilth imports {names}")
    found = read(_Settings, values, "config.json", extra="ignore")
    problems = {
        f"hidden_act {short_repr(found.hidden_act)}": found.hidden_act not in ("silu", "swish"),
        "biases in its feed-forward": found.mlp_bias,
        "biases in all projections of its attention": found.attention_bias,
        "sliding windows": found.use_sliding_window
        or {*(found.layer_types or ["full_attention"])} != {"full_attention"},
        "a partial rotary factor": found.partial_rotary_factor != 1,
        "quantized weights": values.get("quantization_config") is not None,
    }
    refuse_first("it has {}, which tilth does not have; choose another model", problems)
    defaults = {"llama": None, "qwen2": None, "qwen3": 128}
    head_dim = found.head_dim or defaults[kind]
    width = found.num_attention_heads * (head_dim or 0)
    theta, scaling = _rope(found)
    return ModelConfig(
        found.vocab_size,
        context_length=found.max_position_embeddings,
        d_model=found.hidden_size,
        num_layers=found.num_hidden_layers,
        num_heads=found.num_attention_heads,
        num_kv_heads=found.num_key_value_heads
        or (found.num_attention_heads if kind == "llama" else 32),
        d_ff=found.intermediate_size,
        head_dim=None if width == found.hidden_size else head_dim,
        rope_theta=theta,
        rope_scaling=scaling,
        norm_eps=found.rms_norm_eps,
        tie_embeddings=found.tie_word_embeddings,
        qk_norm=kind == "qwen3",
        qkv_bias=kind == "qwen2",
    )


def _rope(found: _Settings) -> tuple[Any, RopeScaling | None]:
    """Return theta and the scaling of the rope parameters, of transformers 5 or before."""
    rope = {**(found.rope_scaling or {}), **(found.rope_parameters or {})}
    theta = rope.get("rope_theta", found.rope_theta)
    theta = 10_000.0 if theta is None else theta  # ModelConfig checks it
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return theta, None
    if kind != "llama3":
        raise ValueError(
            f"its RoPE scaling is {short_repr(kind)}, which tilth does not have; there is llama3"
        )
    scaling = read(_Llama3Rope, rope, "rope_parameters", extra="ignore")
    return theta, RopeScaling(
        factor=scaling.factor,
        original_context_length=scaling.original_max_position_embeddings,
        low_freq_factor=scaling.low_freq_factor,
        high_freq_factor=scaling.high_freq_factor,
    )


# --- reading --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModelFolder:
    """An open model folder: exported, imported or downloaded."""

    folder: Path
    config: ModelConfig
    settings: Mapping[str, Any] = field(repr=False)
    """The content of `config.json`."""

    def tokenizer(self) -> Tokenizer:
        """Load the tokenizer of the folder."""
        if (self.folder / TOKENIZER_BIN).is_file() and not (self.folder / TOKENIZER).is_file():
            return load_tokenizer(self.folder / TOKENIZER_BIN, self.config.vocab_size)
        return Tokenizer.load(self.folder)

    def end_token_of(self, tokenizer: Tokenizer) -> str:
        """Return the special token that ends a text, by `config.json` or the tokenizer's config."""
        names = {token_id: token for token, token_id in tokenizer.special_tokens.items()}
        found = self.settings.get("eos_token_id")
        for token_id in found if isinstance(found, list) else [found]:
            if type(token_id) is int and token_id in names:
                return names[token_id]
        path = self.folder / TOKENIZER_CONFIG
        token: object = read_json(path).get("eos_token") if path.is_file() else None
        if isinstance(token, dict):
            token = token.get("content")
        return token if isinstance(token, str) and token in names.values() else END_TOKEN

    def weight_files(self) -> list[Path]:
        """Return the safetensors files; raise FileError for a missing shard or a path outside."""
        if (self.folder / WEIGHTS).is_file():
            return [self.folder / WEIGHTS]
        index = self.folder / INDEX
        if not index.is_file():
            problem = f"has no {WEIGHTS}"
            if any(self.folder.glob("pytorch_model*.bin")):
                problem += " but a pickle file, which can run code"
            raise FileError(self.folder, problem, "download the safetensors files of the model")
        names = sorted(set(checked(_Index, read_json(index), index).weight_map.values()))
        for name in names:
            if not (self.folder / name).is_file():
                raise FileError(self.folder / name, f"is missing, but {INDEX} names it", HINT)
        return [self.folder / name for name in names]

    def weights(self) -> dict[str, np.ndarray]:
        """Read the weights as float32, under their names in a checkpoint of tilth.

        Names and shapes are compared with the config before a tensor is read.
        """
        files = self.weight_files()
        entries = {}
        for name, entry in merged_headers(files).items():
            own = own_name(name)
            if own is not None:
                entries[own] = entry
            elif not _BUFFER.fullmatch(name):
                problem = f"has {short_repr(name)}, which {self.settings['model_type']} has not"
                raise FileError(entry.path, problem, "choose another model")
        try:
            check_parameters(self.config, {name: entry.shape for name, entry in entries.items()})
        except ValueError as error:
            problem = f"does not fit {CONFIG} ({error})"
            raise FileError(files[0], problem, HINT) from None
        weights = {}
        for path in files:
            with open_regular(path) as file:
                for name, entry in entries.items():
                    if entry.path is path:
                        array = entry.read(file)
                        heads = rotated_heads(self.config, name)
                        weights[name] = array if heads is None else to_pairs(array, heads)
        if self.config.tie_embeddings:
            drop_tied_head(weights)
            if HEAD in weights:
                problem = "has an output matrix that differs from its tied embedding"
                raise FileError(files[0], problem, "set tie_word_embeddings to false")
        return weights

    def files(self) -> ModelFiles:
        """Read everything."""
        tokenizer = self.tokenizer()
        return ModelFiles(self.config, self.weights(), tokenizer, self.end_token_of(tokenizer))


def is_model_folder(path: StrPath) -> bool:
    """Return whether a path is a folder with a `config.json`."""
    return (Path(path) / CONFIG).is_file()


def open_model_folder(path: StrPath) -> ModelFolder:
    """Open a model folder; raise FileError unless tilth can reproduce its config."""
    folder = Path(path)
    values = read_json(folder / CONFIG)
    try:
        return ModelFolder(folder, read_config(values), values)
    except ValueError as error:
        problem, _, hint = str(error).rstrip(".").partition("; ")
        raise FileError(
            folder / CONFIG, f"cannot be used because {problem}", hint or HINT
        ) from None


def read_json(path: StrPath) -> dict[str, Any]:
    """Read a JSON object of at most 4 MB."""
    return parse_json(path, read_bytes(path, MAX_SETTINGS_BYTES))


# --- writing --------------------------------------------------------------------------------------


def write_folder(
    folder: Path,
    model: ModelFiles,
    *,
    dtype: Dtype = "float32",
    sampling: Mapping[str, float] | None = None,
) -> None:
    """Write a model folder into an empty folder, without its manifest.

    `sampling` are the generation defaults: temperature and top_p.
    """
    config, end_id = model.config, model.end_id
    tokenizer = model.tokenizer
    before = tokenizer.template.before
    begin_token = before[0] if before else model.end_token
    begin_id = tokenizer.special_tokens[begin_token]
    values = config_json(config, end_id=end_id, begin_id=begin_id, dtype=dtype)
    generation = {
        "bos_token_id": begin_id,
        "eos_token_id": end_id,
        "pad_token_id": end_id,
        "do_sample": True,
        **(sampling or {"temperature": 1.0, "top_p": 1.0}),
        "max_length": config.context_length,
    }
    tokenizer_config = {
        # Without it, a Qwen3 folder loads as Qwen2Tokenizer, which gives other ids.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": begin_token,
        "eos_token": model.end_token,
        "pad_token": model.end_token,
        "model_max_length": config.context_length,
        "clean_up_tokenization_spaces": False,
    }
    tokenizer.save(folder)
    contents = {CONFIG: values, GENERATION: generation, TOKENIZER_CONFIG: tokenizer_config}
    for name, content in contents.items():
        write_text_atomically(folder / name, json.dumps(content, indent=2, ensure_ascii=False))
    with atomic_write(folder / WEIGHTS) as file:
        write_weights(file, dict(_their_weights(model)), dtype)


def _their_weights(model: ModelFiles) -> Iterator[tuple[str, np.ndarray]]:
    for name, _ in parameter_shapes(model.config):
        array = model.weights[name]
        heads = rotated_heads(model.config, name)
        yield their_name(name), array if heads is None else to_halves(array, heads)


# --- the manifest ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class FileRecord:
    """A file of a model folder and its SHA-256."""

    name: FileName
    sha256: Sha256


@dataclass(frozen=True)
class ModelManifest:
    """The content of the `manifest.json` of an exported or imported folder."""

    files: list[FileRecord]
    source: str = ""  # what it was made from
    created: str = ""  # time in UTC
    versions: dict[str, str] = field(default_factory=dict)


def write_manifest(folder: Path, content: Mapping[str, Any]) -> None:
    """Write `manifest.json` with the checksum of every other file in the folder."""
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    records = [{"name": name, "sha256": checksum(folder / name)} for name in names]
    values = {**content, "files": records}
    save_manifest(folder / MANIFEST, values, kind=KIND, version=VERSION)


def verify_model_folder(path: StrPath) -> Iterator[tuple[str, str | None]]:
    """Compare every file with the manifest; yield each file and its problem, or None."""
    folder = Path(path)
    content = load_manifest(folder / MANIFEST, kind=KIND, version=VERSION)
    manifest = checked(ModelManifest, content, folder / MANIFEST)
    for record in manifest.files:
        path, problem = folder / record.name, None
        try:
            if checksum(path) != record.sha256:
                problem = f"{path} was changed; restore a copy"
        except (ValueError, OSError) as error:
            problem = str(error)
        yield record.name, problem
    try:
        open_model_folder(folder)
    except ValueError as error:
        yield CONFIG, str(error)
