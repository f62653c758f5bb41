"""Reading weights, and comparing a file with its config."""

import os
from dataclasses import replace

import numpy as np
import pytest
import safetensors.torch
import torch

from tests.model.test_transformer import CONFIG
from tilth.config.limits import MAX_LAYERS, MAX_WIDTH
from tilth.files import FileError
from tilth.model import TransformerLM
from tilth.runs.tensors import TensorInfo, check_weights, load_weights, tensor_infos


def test_every_float_type_is_read(tmp_path):
    exact = torch.tensor([[1.5, -2.25], [0.0, 1024.0]])  # the same in each of them
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        safetensors.torch.save_file({"w": exact.to(dtype)}, tmp_path / "w.safetensors")
        found = load_weights(tmp_path / "w.safetensors")["w"]
        assert found.dtype == np.float32
        assert np.array_equal(found, exact.numpy())
        assert tensor_infos(tmp_path / "w.safetensors")["w"].shape == (2, 2)
    safetensors.torch.save_file({"w": exact.long()}, tmp_path / "w.safetensors")
    with pytest.raises(FileError, match="has 'w' as I64; save it as float32"):
        load_weights(tmp_path / "w.safetensors")
    assert tensor_infos(tmp_path / "w.safetensors") == {"w": TensorInfo("I64", (2, 2))}
    (tmp_path / "w.safetensors").write_bytes(b"nothing of the kind")
    for read in (load_weights, tensor_infos):
        with pytest.raises(FileError, match="is truncated or is not a safetensors file"):
            read(tmp_path / "w.safetensors")


def test_pipe_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "w.safetensors")
    for name, problem in (("w.safetensors", "a pipe"), ("none", "not exist"), ("", "a folder")):
        with pytest.raises(FileError, match=problem):
            tensor_infos(tmp_path / name)


def test_file_is_compared_with_its_config(tmp_path):
    path = tmp_path / "model.safetensors"
    safetensors.torch.save_file(TransformerLM(CONFIG).state_dict(), path)
    check_weights(path, CONFIG, tensor_infos(path))
    for changes, sentence in (
        ({"num_layers": MAX_LAYERS}, r"only the model has layers\.3\.ln1\.weight"),
        (
            {"d_model": MAX_WIDTH},
            r"token_embeddings\.weight has shape \(97, 32\), and in the model",
        ),
        ({"num_layers": 2}, r"only the checkpoint has layers\.2\.attn\.k_proj\.weight"),
    ):
        match = rf"does not fit the config of the run \({sentence}.*\); choose another checkpoint"
        with pytest.raises(FileError, match=match):
            check_weights(path, replace(CONFIG, **changes), tensor_infos(path))
