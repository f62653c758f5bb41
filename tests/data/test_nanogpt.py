"""nanoGPT's .bin files: the bytes that nanoGPT writes, and no id that overflows."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilth.data.nanogpt import BLOCK_TOKENS, load_bin, save_bin
from tilth.files import FileError


@settings(max_examples=40)
@given(
    ids=st.lists(st.integers(0, 65535), min_size=1, max_size=50),
    dtype=st.sampled_from(["u2", "i4", "u4", "i8", "u8", ">u2", ">i8", None]),
)
def test_written_bytes_are_ids_of_two_bytes(tmp_path_factory, ids, dtype):
    path = tmp_path_factory.mktemp("nanogpt") / "train.bin"
    save_bin(ids if dtype is None else np.array(ids, dtype), path)
    assert path.read_bytes() == b"".join(id_.to_bytes(2, "little") for id_ in ids)
    assert load_bin(path).tolist() == ids


def test_what_nanogpt_writes_is_read(tmp_path):
    written = np.memmap(tmp_path / "val.bin", dtype=np.uint16, mode="w+", shape=(1000,))
    written[:] = np.arange(1000) * 65
    written.flush()
    tokens = load_bin(tmp_path / "val.bin")
    assert isinstance(tokens, np.memmap)
    assert tokens.dtype == np.uint16
    assert not tokens.flags.writeable
    assert np.array_equal(tokens, np.arange(1000) * 65)


def test_other_widths_are_read(tmp_path):
    ids = np.array([0, 1, 2**32 - 1], "<u4")
    (tmp_path / "train.bin").write_bytes(ids.tobytes())
    assert load_bin(tmp_path / "train.bin", np.uint32).tolist() == ids.tolist()
    assert load_bin(tmp_path / "train.bin", ">u4").tolist() == ids.tolist()  # never the machine's


def test_many_blocks_of_any_array(tmp_path):
    ids = (np.arange(5 * BLOCK_TOKENS, dtype=np.uint32) % 65536)[::-2]
    save_bin(ids, tmp_path / "train.bin")
    assert np.array_equal(load_bin(tmp_path / "train.bin"), ids)


@pytest.mark.parametrize("place", [0, 1, BLOCK_TOKENS - 1, BLOCK_TOKENS, BLOCK_TOKENS + 4])
@pytest.mark.parametrize("bad", [65536, 2**32, -1])
def test_an_id_that_does_not_fit_is_refused(tmp_path, place, bad):
    ids = np.zeros(BLOCK_TOKENS + 5, np.int64)
    ids[place] = bad
    with pytest.raises(ValueError, match=f"The id {bad} does not fit in the 16 bits"):
        save_bin(ids, tmp_path / "train.bin")
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_replaced_only_with_overwrite(tmp_path):
    path = tmp_path / "train.bin"
    save_bin([1, 2], path)
    with pytest.raises(FileExistsError, match="overwrite"):
        save_bin([3], path)
    with pytest.raises(ValueError, match="does not fit"):
        save_bin([65536], path, overwrite=True)
    assert load_bin(path).tolist() == [1, 2]
    save_bin([3], path, overwrite=True)
    assert load_bin(path).tolist() == [3]


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([], "There are no tokens"),
        ([[1, 2]], r"shape \(1, 2\); give a flat array"),
        ([1.5], "float64, not integers"),
        ([True], "bool, not integers"),
    ],
)
def test_invalid_arrays_are_refused(tmp_path, tokens, message):
    with pytest.raises(ValueError, match=message):
        save_bin(tokens, tmp_path / "train.bin")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "dtype", "message"),
    [
        (b"abc", np.uint16, "has 3 bytes, not a whole number of uint16 ids; restore a copy"),
        (b"abcdef", np.uint32, "has 6 bytes, not a whole number of uint32 ids"),
        (b"", np.uint16, "holds no tokens; "),
    ],
)
def test_a_truncated_file_is_refused_by_name(tmp_path, content, dtype, message):
    path = tmp_path / "train.bin"
    path.write_bytes(content)
    with pytest.raises(FileError, match=f"{path} {message}"):
        load_bin(path, dtype)


def test_a_file_that_cannot_be_opened_is_named(tmp_path):
    with pytest.raises(FileError, match=r"absent.bin does not exist; check the path"):
        load_bin(tmp_path / "absent.bin")
    with pytest.raises(FileError, match="is a folder"):
        load_bin(tmp_path)


def test_a_dtype_that_is_not_an_integer_is_refused(tmp_path):
    save_bin([1, 2], tmp_path / "train.bin")
    with pytest.raises(
        ValueError, match="float32 is not an integer dtype; give the dtype of the ids"
    ):
        load_bin(tmp_path / "train.bin", np.float32)


def test_torch_is_not_needed():
    program = "import sys, tilth.data.nanogpt; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.bin")
    with pytest.raises(FileError, match="is a pipe or a device"):
        load_bin(tmp_path / "pipe.bin")
