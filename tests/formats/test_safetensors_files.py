"""Safetensors files: torch and the safetensors package are the references; headers are hostile."""

import json
import random
import struct
import subprocess
import sys

import numpy as np
import pytest
import safetensors.torch
import torch

from tests.formats.models import config_of, model_of
from tilth.config import ModelConfig
from tilth.files import FileError
from tilth.formats.huggingface import open_model_folder, write_folder
from tilth.formats.llama2c import write_quantized
from tilth.formats.safetensors_files import (
    load_weights,
    merged_headers,
    read_header,
    rounded,
    write_weights,
)

# Rounding at ties, the largest numbers, subnormals, both zeros.
SPECIAL = np.array(
    [0x3F808000, 0x3F818000, 0x3F808001, 0x7F7FFFFF, 0x00000001, 0x80000000, 0], "<u4"
)


def numbers(seed, count=20_000):
    bits = np.random.default_rng(seed).integers(0, 2**32, count, dtype=np.uint32)
    return np.concatenate([SPECIAL, bits]).view("<f4")


def test_bfloat16_rounds_as_torch_does():
    array = numbers(0)
    array = array[~np.isnan(array)]
    expected = torch.from_numpy(array).to(torch.bfloat16).view(torch.uint16).numpy()
    np.testing.assert_array_equal(rounded("w", array, "bfloat16"), expected)
    nan = np.array([0x7F800001, 0xFFFFFFFF], "<u4").view("<f4")
    bits = rounded("w", nan, "bfloat16").astype("<u4") << 16
    assert np.isnan(bits.view("<f4")).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_written_files_open_in_torch(dtype, tmp_path):
    array = np.random.default_rng(1).standard_normal((7, 5)).astype(np.float32)
    path = tmp_path / "w.safetensors"
    with path.open("wb") as file:
        write_weights(file, {"a": array, "b": array[0]}, dtype)
    found = safetensors.torch.load_file(path)
    expected = torch.from_numpy(array).to(getattr(torch, dtype))
    assert torch.equal(found["a"], expected)
    assert torch.equal(found["b"], expected[0])
    own = load_weights(path)
    np.testing.assert_array_equal(own["a"], expected.float().numpy())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_files_of_torch_are_read(dtype, tmp_path):
    tensors = {name: torch.randn(3, 4).to(dtype) for name in "ab"}
    safetensors.torch.save_file(tensors, tmp_path / "w.safetensors")
    for name, array in load_weights(tmp_path / "w.safetensors").items():
        np.testing.assert_array_equal(array, tensors[name].float().numpy())
        assert array.dtype == np.float32


def crafted(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(shape=(2,), start=0, end=8, dtype="F32"):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}


CRAFTED = {
    "empty": b"",
    "short": b"\x01",
    "huge header": crafted({}, length=2**63),
    "large header": crafted(b"{" + b" " * (1 << 20) + b"}"),
    "header beyond the file": crafted({}, length=100),
    "not JSON": crafted(b"{nope"),
    "not an object": crafted(b"[]"),
    "nested": crafted(b"[" * 100_000),
    "not UTF-8": crafted(b"\xff\xfe"),
    "repeated name": crafted(b'{"a": 1, "a": 2}'),
    "negative shape": crafted({"a": entry((-2,))}, bytes(8)),
    "negative offset": crafted({"a": entry(start=-8, end=0)}, bytes(8)),
    "huge shape": crafted({"a": entry((2**62, 2**62))}, bytes(8)),
    "overflowing shape": crafted({"a": entry((2**32, 2**32))}, bytes(8)),
    "boolean shape": crafted({"a": entry((True,), end=4)}, bytes(4)),
    "many dimensions": crafted({"a": entry((1,) * 99, end=4)}, bytes(4)),
    "overlap": crafted({"a": entry(), "b": entry(start=4, end=12)}, bytes(12)),
    "same place": crafted({"a": entry(), "b": entry()}, bytes(8)),
    "gap": crafted({"a": entry(), "b": entry(start=16, end=24)}, bytes(24)),
    "truncated": crafted({"a": entry()}, bytes(7)),
    "rest": crafted({"a": entry()}, bytes(9)),
    "integers": crafted({"a": entry(dtype="I32")}, bytes(8)),
    "unknown type": crafted({"a": entry(dtype="X" * 9999)}, bytes(8)),
    "no offsets": crafted({"a": {"dtype": "F32", "shape": [2]}}, bytes(8)),
    "entry is a list": crafted({"a": [1, 2]}, bytes(8)),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_crafted_files_give_one_sentence(name, tmp_path):
    path = tmp_path / "w.safetensors"
    path.write_bytes(CRAFTED[name])
    with pytest.raises(FileError) as caught:
        read_header(path)
    sentence = str(caught.value)
    assert str(path) in sentence
    assert "\n" not in sentence
    assert len(sentence) < 500


def test_name_in_two_shards_is_refused(tmp_path):
    paths = [tmp_path / "one.safetensors", tmp_path / "two.safetensors"]
    for path in paths:
        path.write_bytes(crafted({"a": entry()}, bytes(8)))
    with pytest.raises(FileError, match=r"has 'a', which .*one.safetensors has too"):
        merged_headers(paths)


PROGRAM = """
import sys
from pathlib import Path
import numpy
from tilth.formats import huggingface, llama2c
def peak():
    # Of this program alone: ru_maxrss begins at the peak of the process that started it.
    line = next(each for each in open("/proc/self/status") if each.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
before = peak()
path = Path(sys.argv[1])
if path.is_dir():
    weights = huggingface.open_model_folder(path).weights()
else:
    weights = llama2c.read_model(path)
print(peak() - before)
"""


def memory_of(path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) > path_bytes(path)  # at least the weights
    return int(done.stdout)


def path_bytes(path):
    return (path / "model.safetensors" if path.is_dir() else path).stat().st_size


def test_memory_is_at_most_four_times_the_file(tmp_path):
    """bfloat16 takes the most: the result alone is twice the file."""
    shape = {"context_length": 64, "d_model": 512, "num_layers": 2, "num_heads": 8}
    model = model_of(ModelConfig(20_000, **shape, tie_embeddings=True))
    write_folder(tmp_path, model, dtype="bfloat16")
    size_bytes = (tmp_path / "model.safetensors").stat().st_size
    assert size_bytes > 20e6
    assert memory_of(tmp_path) < 4 * size_bytes


@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json"])
def test_large_settings_are_refused(name, tmp_path):
    """Lists within lists take 20 times the memory of their text."""
    write_folder(tmp_path, model_of(config_of("untied")))
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / name).write_bytes(b'{"a": [' + b"[]," * (5 << 20) + b"[]]}")
    with pytest.raises(FileError, match="more than the limit of 4,194,304"):
        open_model_folder(tmp_path).files()


def test_memory_of_int8_files(tmp_path):
    """The float32 weights are 3.8 times the file: no copy of them is in memory."""
    shape = {"context_length": 64, "d_model": 512, "num_layers": 1, "num_heads": 8}
    model = model_of(ModelConfig(60_000, **shape, tie_embeddings=True))
    with (tmp_path / "m.bin").open("wb") as file:
        write_quantized(file, model)
    size_bytes = (tmp_path / "m.bin").stat().st_size
    assert size_bytes > 16e6
    assert memory_of(tmp_path / "m.bin") < 4 * size_bytes


def test_mutated_folders_give_one_sentence(tmp_path):
    """Flipped, removed and repeated bytes, and hostile values: a model or a FileError."""
    write_folder(tmp_path, model_of(config_of("qwen3")))
    names = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
    originals = {name: (tmp_path / name).read_bytes() for name in names}
    chance = random.Random(0)
    refused = []
    for _ in range(200):
        name = chance.choice(names[:3] if chance.random() < 0.9 else names)
        (tmp_path / name).write_bytes(mutated(chance, originals[name]))
        try:
            open_model_folder(tmp_path).files()
        except FileError as error:
            refused.append(str(error))
        finally:
            (tmp_path / name).write_bytes(originals[name])
    assert len(refused) > 100
    assert not [sentence for sentence in refused if "\n" in sentence]


def mutated(chance, data):
    place = chance.randrange(min(len(data), 2000))  # the beginning has the structure
    kind = chance.randrange(5)
    if kind == 0:
        return data[:place] + bytes([chance.randrange(256)]) + data[place + 1 :]
    if kind == 1:
        return data[:place] + data[place + chance.randrange(1, 9) :]
    if kind == 2:
        return data[: chance.randrange(len(data))]
    if kind == 3:
        number = chance.choice([b"-1", b"0", b"1e400", b"99999999999999999999", b"null", b'"x"'])
        return data[:place] + number + data[place:]
    return data[:place] + data[place : place + 40] + data[place:]
