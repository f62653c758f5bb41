"""From a run on disk to logits, and what is said of a run that is damaged."""

import doctest
import shutil
import subprocess
import sys

import numpy as np
import pytest
import safetensors.torch
import torch

from tilth.files import FileError
from tilth.generation import generate, load_decoder, score
from tilth.generation import loading as module
from tilth.generation.loading import LoadedModel, load_weights
from tilth.runs.run import open_run
from tilth.tokenizer import Tokenizer


def test_docstring():
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("backend", ["native", "torch"])
def test_the_best_checkpoint_or_the_one_that_is_asked_for(run, make_model, backend):
    ids = [1, 2, 3]
    for step, seed in ((None, 5), (5, 5), (10, 10)):
        with torch.no_grad():
            expected = make_model(seed=seed)(torch.tensor([ids]))[0, -1:].numpy()
        for source in (run, run.folder, str(run.folder)):
            loaded = load_decoder(source, step=step, backend=backend)
            found = loaded.decoder().extend(ids)
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


def test_a_run_generates_and_scores(run):
    text = "".join(generate(run, "Once", max_tokens=10, seed=1))
    assert text == "".join(generate(run.folder, "Once", max_tokens=10, seed=1))
    assert len(score(run.folder, "Once")) == 4
    quantized = load_decoder(run, quantize="int8")
    assert "".join(generate(quantized, "Once", max_tokens=10, seed=1))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"step": 7}, "has no checkpoint of step 7; there are 5, 10"),
        ({"quantize": "int3"}, "there is no quantization 'int3'; choose int8, or none."),
        ({"quantize": "int8", "device": "cuda"}, "int8 weights are for the CPU; leave --quantize"),
        ({"backend": "gpu"}, "there is no backend 'gpu'; choose native or torch."),
        ({"backend": "native", "device": "cuda"}, "runs on the cpu, not on cuda; take torch"),
        ({"threads": 0}, "threads is 0; give 1 or more."),
        ({"device": "quantum"}, "torch cannot use the device 'quantum' .*; try cpu."),
    ],
)
def test_bad_values_are_one_sentence(run, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        load_decoder(run, **options)


def test_folders_that_are_no_run_are_one_sentence(run, tmp_path):
    with pytest.raises(FileError, match=r"is no run \(it has no config.toml\)"):
        load_decoder(tmp_path)
    bare = tmp_path / "bare"
    shutil.copytree(run.folder, bare)
    shutil.rmtree(bare / "checkpoints")
    with pytest.raises(FileError, match="bare has no checkpoint yet; train it first"):
        load_decoder(bare)


def test_damage_is_named(run, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run.folder, copy)
    weights = copy / "checkpoints" / "step-000005" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    with pytest.raises(FileError, match=r"step-000005/model.safetensors is damaged; take another"):
        load_decoder(copy)
    load_decoder(copy, step=10)
    other = Tokenizer({i: bytes([255 - i]) for i in range(256)}, [], ["<|endoftext|>"])
    other.save(copy / "tokenizer.json", overwrite=True)
    with pytest.raises(FileError, match="is not the tokenizer that the run began with"):
        load_decoder(open_run(copy), step=10)


def test_a_tokenizer_that_is_too_large_is_refused(make_model):
    model = make_model(vocab_size=256)
    weights = {name: weight.numpy() for name, weight in model.state_dict().items()}
    tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<|endoftext|>"])
    with pytest.raises(ValueError, match="has ids up to 256, and the vocabulary of the model ends"):
        LoadedModel.from_weights(model.config, weights, tokenizer)


def test_weights_of_every_float_are_read(tmp_path):
    exact = torch.tensor([[1.5, -2.25], [0.0, 1024.0]])  # the same in each of them
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        safetensors.torch.save_file({"w": exact.to(dtype)}, tmp_path / "w.safetensors")
        found = load_weights(tmp_path / "w.safetensors")["w"]
        assert found.dtype == np.float32
        assert np.array_equal(found, exact.numpy())
    safetensors.torch.save_file({"w": exact.long()}, tmp_path / "w.safetensors")
    with pytest.raises(FileError, match="holds w as I64; save it as float32"):
        load_weights(tmp_path / "w.safetensors")
    (tmp_path / "w.safetensors").write_bytes(b"nothing of the kind")
    with pytest.raises(FileError, match="is torn or is no safetensors file"):
        load_weights(tmp_path / "w.safetensors")


def test_a_cpu_needs_no_torch(run):
    code = f"""
import sys
from tilth.generation import generate, score
run = {str(run.folder)!r}
assert list(generate(run, "Once", max_tokens=5)) and score(run, "a")
sys.exit("torch" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
