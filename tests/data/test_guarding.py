"""A truncated file of a memory map is an error, not a SIGBUS."""

import numpy as np
import pytest

from tilth.data.guarding import GuardedTokens


def test_a_truncated_file(tmp_path):
    np.save(tmp_path / "ids.npy", np.arange(100_000, dtype=np.uint16))
    tokens = GuardedTokens(np.load(tmp_path / "ids.npy", mmap_mode="r")[10:])
    assert len(tokens) == 99_990
    part = tokens[5:8]
    assert part.tolist() == [15, 16, 17]
    with (tmp_path / "ids.npy").open("r+b") as file:
        file.truncate(100)
    with pytest.raises(OSError, match="had 200128 bytes, and now it has 100; restore it"):
        tokens[90_000:90_010]
    assert part.tolist() == [15, 16, 17]  # a copy


def test_the_file_of_a_view_is_checked(tmp_path):
    np.save(tmp_path / "tokens.npy", np.arange(100))
    tokens = np.load(tmp_path / "tokens.npy", mmap_mode="r")
    views = [tokens, tokens[5:], np.asarray(tokens)[::2], tokens.reshape(10, 10)[3]]
    guarded = [GuardedTokens(view) for view in views]
    for each in guarded:
        each.check()
    with (tmp_path / "tokens.npy").open("r+b") as file:
        file.truncate(927)
    for each in guarded:
        with pytest.raises(OSError, match="had 928 bytes"):
            each.check()
    GuardedTokens(np.arange(5)[1:]).check()


def test_a_map_with_an_offset(tmp_path):
    (tmp_path / "ids.bin").write_bytes(bytes(300_000))
    tokens = np.memmap(tmp_path / "ids.bin", np.uint16, "r", offset=200_000, shape=(1000,))
    guarded = GuardedTokens(tokens)
    with (tmp_path / "ids.bin").open("r+b") as file:
        file.truncate(250_000)
        guarded.check()  # every byte of the map is still there
        file.truncate(100_000)
    with pytest.raises(OSError, match="now it has 100000"):
        guarded[:10]
