"""Hugging Face folders: transformers is the reference, in both directions."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers

from tests.formats.models import (
    END,
    REFUSED,
    SCALING,
    SHAPE,
    VARIANTS,
    config_of,
    model_of,
    tokenizer_of,
)
from tilth.config import ModelConfig
from tilth.files import FileError
from tilth.formats.huggingface import (
    config_json,
    open_model_folder,
    read_config,
    verify_model_folder,
    write_folder,
    write_manifest,
)
from tilth.formats.safetensors_files import read_header
from tilth.generation import LanguageModel

PROMPT = [256, *b"Once upon a time"]


def logits_of(model, ids):
    """The logits of the native decoder after each id."""
    decoder = LanguageModel.from_weights(model.config, model.weights, model.tokenizer).decoder(1)
    return decoder.extend([ids], every=True)[0]


@pytest.fixture(params=VARIANTS)
def exported(request, tmp_path):
    model = model_of(config_of(request.param))
    write_folder(tmp_path, model)
    return tmp_path, model


def test_transformers_gives_our_logits_and_greedy_tokens(exported):
    folder, model = exported
    theirs, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True
    )
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    rng = np.random.default_rng(1)
    ids = rng.integers(0, 300, 320).tolist()
    with torch.no_grad():
        expected = theirs(torch.tensor([ids])).logits[0].numpy()
    np.testing.assert_allclose(logits_of(model, ids), expected, atol=1e-4, rtol=0)
    greedy = theirs.generate(
        torch.tensor([PROMPT]),
        attention_mask=torch.ones(1, len(PROMPT)),
        max_new_tokens=256,
        eos_token_id=10**6,  # never
        do_sample=False,
        temperature=None,
        top_p=None,
    )[0, len(PROMPT) :].tolist()
    own = LanguageModel.from_weights(model.config, model.weights, model.tokenizer, end_token="none")
    stream = own.generate(PROMPT, temperature=0.0, max_tokens=256)
    list(stream)
    assert stream.token_ids == greedy


def test_transformers_loads_tokenizer_and_defaults(exported):
    folder, model = exported
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    for text in ("Once upon a time, there", "naïve 12345 'LL  \n x", f"a{END}b"):
        assert theirs.encode(text) == model.tokenizer.encode(text)
    assert (theirs.eos_token, theirs.model_max_length) == (END, SHAPE["context_length"])
    defaults = transformers.GenerationConfig.from_pretrained(folder)
    assert (defaults.eos_token_id, defaults.pad_token_id, defaults.do_sample) == (256, 256, True)


def test_every_field_that_transformers_reads_is_written(exported):
    folder, model = exported
    values = json.loads((folder / "config.json").read_text())
    theirs = transformers.AutoConfig.from_pretrained(folder)
    ignored = {"transformers_version", "_name_or_path", "initializer_range"}
    library = {*transformers.PretrainedConfig().to_dict()}
    for name in {*theirs.to_dict()} - ignored - library:
        assert name in values, name
    assert theirs.rms_norm_eps == model.config.norm_eps
    assert theirs.head_dim == model.config.d_head
    assert theirs.architectures == values["architectures"]


def test_round_trip_keeps_the_bits(exported):
    folder, model = exported
    found = open_model_folder(folder)
    assert found.config == model.config
    again = found.files()
    assert again.end_token == END
    assert again.tokenizer == model.tokenizer
    assert again.weights.keys() == model.weights.keys()
    for name, weight in model.weights.items():
        assert again.weights[name].tobytes() == weight.tobytes(), name


@pytest.mark.parametrize("name", REFUSED)
def test_variants_without_a_name_in_transformers_are_refused(name):
    with pytest.raises(ValueError, match=name):
        config_json(ModelConfig(**{**SHAPE, **REFUSED[name]}), end_id=0)


def test_biases_with_qk_norm_are_refused():
    with pytest.raises(ValueError, match="both qk_norm and biases"):
        config_json(ModelConfig(**SHAPE, qk_norm=True, qkv_bias=True), end_id=0)


def make_theirs(kind, **changes):
    common = {
        "vocab_size": 300,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "bos_token_id": 256,
        "eos_token_id": 256,
        "pad_token_id": None,
    }
    config, model = {
        "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
        "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
        "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
    }[kind]
    torch.manual_seed(0)
    made = model(config(**{**common, **changes}))
    with torch.no_grad():
        for name, weight in made.named_parameters():  # gains of 1 and biases of 0 would hide errors
            if "norm" in name or name.endswith("bias"):
                weight.add_(0.3 * torch.randn_like(weight))
    return made


ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
THEIRS = {
    "llama3": ("llama", {"rope_parameters": ROPE, "rms_norm_eps": 1e-5}),
    "llama-tied": ("llama", {"tie_word_embeddings": True}),
    "qwen2": ("qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("qwen3", {"head_dim": 24}),
    "qwen3-default-width": ("qwen3", {}),
}


@pytest.mark.parametrize("name", THEIRS)
@pytest.mark.parametrize("is_sharded", [False, True], ids=["one file", "shards"])
def test_models_of_transformers_give_their_logits(name, is_sharded, tmp_path):
    kind, changes = THEIRS[name]
    theirs = make_theirs(kind, **changes)
    theirs.save_pretrained(tmp_path, max_shard_size="60KB" if is_sharded else "1GB")
    assert (tmp_path / "model.safetensors.index.json").exists() == is_sharded
    tokenizer_of().save(tmp_path)
    found = open_model_folder(tmp_path).files()
    assert found.end_token == END
    ids = np.random.default_rng(2).integers(0, 300, 256).tolist()
    with torch.no_grad():
        expected = theirs(torch.tensor([ids])).logits[0].numpy()
    np.testing.assert_allclose(logits_of(found, ids), expected, atol=1e-4, rtol=0)


def test_config_of_older_transformers(tmp_path):
    values = config_json(replace(config_of("llama3")), end_id=0)
    del values["rope_parameters"]
    assert read_config(values).rope_scaling == SCALING
    assert read_config(values).rope_theta == 5e5


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"model_type": "gpt_neox"}, "model_type is 'gpt_neox'; tilth imports llama"),
        ({"model_type": None}, "model_type is None"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ({"attention_bias": True}, "biases in all projections"),
        ({"mlp_bias": True}, "biases in its feed-forward"),
        ({"use_sliding_window": True}, "sliding windows"),
        ({"layer_types": ["sliding_attention"]}, "sliding windows"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1.0}}, "RoPE scaling is 'yarn'"),
        ({"rope_parameters": {"rope_type": "llama3"}}, "factor"),
        ({"rope_parameters": {"rope_theta": "many"}}, "rope_theta"),
        ({"quantization_config": {}}, "quantized weights"),
        ({"hidden_size": -4}, "d_model must be at least 1"),
        ({"hidden_size": 10**30}, "d_model must be at most"),
        ({"num_hidden_layers": 10**9}, "num_layers must be at most"),
        ({"num_attention_heads": 0}, "num_heads must be at least 1"),
        ({"vocab_size": True}, "vocab_size must be a whole number"),
        ({"rms_norm_eps": 0}, "rms_norm_eps is 0; it must be above 0"),
    ],
)
def test_configs_that_are_refused(changes, complaint, tmp_path):
    write_folder(tmp_path, model_of(config_of("untied")))
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(FileError, match=complaint) as caught:
        open_model_folder(tmp_path)
    assert str(path) in str(caught.value)


def test_shapes_that_differ_from_the_config_are_refused(tmp_path):
    write_folder(tmp_path, model_of(config_of("untied")))
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"intermediate_size": 99}))
    with pytest.raises(FileError, match=r"does not fit config\.json"):
        open_model_folder(tmp_path).weights()


def test_index_cannot_leave_the_folder(tmp_path):
    write_folder(tmp_path, model_of(config_of("untied")))
    (tmp_path / "model.safetensors").rename(tmp_path.parent / "outside.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    for name in ("../outside.safetensors", "/etc/passwd", "..", "", "a\nb"):
        index.write_text(json.dumps({"weight_map": {"lm_head.weight": name}}))
        with pytest.raises(FileError, match=r"weight_map\.lm_head\.weight"):
            open_model_folder(tmp_path).weights()
    index.write_text(json.dumps({"weight_map": {"a": "missing.safetensors"}}))
    with pytest.raises(FileError, match=r"missing\.safetensors is missing"):
        open_model_folder(tmp_path).weights()


@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "model.safetensors.index.json", "tokenizer.json"]
)
def test_pipes_and_broken_links_are_refused(name, tmp_path):
    """A reader of a pipe would wait forever."""
    write_folder(tmp_path, model_of(config_of("untied")))
    if "index" in name:
        (tmp_path / "model.safetensors").unlink()
    for make in (os.mkfifo, lambda path: path.symlink_to(path), lambda path: path.mkdir()):
        (tmp_path / name).unlink(missing_ok=True)
        make(tmp_path / name)
        with pytest.raises(ValueError, match=str(tmp_path)) as caught:
            open_model_folder(tmp_path).files()
        assert "\n" not in str(caught.value)


def test_links_of_a_cache_are_followed(tmp_path):
    """The cache of the hub has a folder of links to files elsewhere."""
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshot").mkdir()
    model = model_of(config_of("untied"))
    write_folder(tmp_path / "blobs", model)
    for path in (tmp_path / "blobs").iterdir():
        (tmp_path / "snapshot" / path.name).symlink_to(path)
    assert open_model_folder(tmp_path / "snapshot").files().config == model.config


def test_pickle_is_never_opened(tmp_path):
    write_folder(tmp_path, model_of(config_of("untied")))
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(FileError, match="a pickle file, which can run code"):
        open_model_folder(tmp_path).weights()


def test_tied_folder_with_another_head_is_refused(tmp_path):
    model = model_of(config_of("untied"))
    write_folder(tmp_path, model)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tie_word_embeddings": True}))
    with pytest.raises(FileError, match="differs from its tied embedding"):
        open_model_folder(tmp_path).weights()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision(dtype, tmp_path):
    model = model_of(config_of("tied-grouped"))
    write_folder(tmp_path, model, dtype=dtype)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype="auto")
    assert theirs.dtype == getattr(torch, dtype)
    for name, weight in open_model_folder(tmp_path).weights().items():
        expected = torch.tensor(model.weights[name]).to(theirs.dtype).float().numpy()
        assert weight.tobytes() == expected.tobytes(), name


def test_tied_models_have_no_head_in_the_file(tmp_path):
    write_folder(tmp_path, model_of(config_of("tied-grouped")))
    assert "lm_head.weight" not in read_header(tmp_path / "model.safetensors")


def test_manifest_finds_changes(tmp_path):
    write_folder(tmp_path, model_of(config_of("untied")))
    write_manifest(tmp_path, {"source": "test"})
    assert set(dict(verify_model_folder(tmp_path)).values()) == {None}
    path = tmp_path / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    (tmp_path / "tokenizer_config.json").unlink()
    problems = {name: text for name, text in verify_model_folder(tmp_path) if text}
    assert problems.keys() == {"model.safetensors", "tokenizer_config.json"}
    manifest = tmp_path / "manifest.json"
    content = json.loads(manifest.read_text())
    content["files"][0]["name"] = "../secret"
    manifest.write_text(json.dumps(content))
    with pytest.raises(FileError, match="name of a file"):
        list(verify_model_folder(tmp_path))
