"""An opened data folder is what was written, or it is refused by name."""

import shutil

import numpy as np
import pytest

from tilth.data import open_data, tokenize, verify_data
from tilth.data.token_files import array_header, fingerprint_of
from tilth.files import FileError
from tilth.tokenizer import train_tokenizer

END = "<|endoftext|>"


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(texts=["the cat the hat"], vocab_size=262, special_tokens=[END])


@pytest.fixture(scope="module")
def written(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    (folder / "text.txt").write_text(END.join(f"the cat {n}" for n in range(40)))
    tokenize(folder / "text.txt", tokenizer, folder / "data", valid=0.2)
    return folder / "data"


@pytest.fixture
def data_folder(written, tmp_path):
    return shutil.copytree(written, tmp_path / "data")


def test_numpy_alone_reads_it(written, tokenizer):
    data = open_data(written)
    for split in ("train", "valid"):
        ids = np.load(written / f"{split}.npy")
        assert np.array_equal(ids, getattr(data, split))
        starts = np.load(written / f"{split}_documents.npy")
        assert len(starts) == data.num_documents(split) + 1
        first = ids[starts[0] : starts[1]]
        assert tokenizer.decode(first).startswith("the cat ")
    assert isinstance(data.train, np.memmap)
    assert data.vocab_size == 262
    assert data.tokenizer() == tokenizer


@pytest.mark.parametrize("length", [0, 1, 9, 10, 65_536, 2**40, 2**63 - 1])
@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64"])
def test_the_header_has_one_length(dtype, length):
    assert len(array_header(dtype, length)) == 128


def test_every_truncation_is_refused_by_name(data_folder):
    for path in sorted(data_folder.iterdir()):
        whole = path.read_bytes()
        for size in {*range(min(len(whole), 300)), *range(0, len(whole), 97), len(whole) - 1}:
            path.write_bytes(whole[:size])
            with pytest.raises(FileError, match=path.name):
                open_data(data_folder)
        path.unlink()
        with pytest.raises(FileError, match=path.name):
            open_data(data_folder)
        path.write_bytes(whole)
    open_data(data_folder)


def test_more_bytes_are_refused_by_name(data_folder):
    for path in sorted(data_folder.iterdir()):
        whole = path.read_bytes()
        path.write_bytes(whole + b"\0")
        with pytest.raises(FileError, match=path.name):
            open_data(data_folder)
        path.write_bytes(whole)


def test_every_flipped_bit_is_found(data_folder):
    for path in sorted(data_folder.iterdir()):
        whole = path.read_bytes()
        for place in range(0, len(whole), max(1, len(whole) // 300)):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << place % 8
            path.write_bytes(damaged)
            assert_found(data_folder, path.name)
        path.write_bytes(whole)
    assert not any(finding.problem for finding in verify_data(data_folder))


def assert_found(folder, name):
    try:
        problems = [finding for finding in verify_data(folder) if finding.problem]
    except FileError as error:  # the manifest itself
        assert name in str(error)  # noqa: PT017
    else:
        assert [finding.file for finding in problems] == [name]
        assert problems[0].block == 1


def test_another_spelling_of_the_manifest_is_found(tokenizer, tmp_path):
    (tmp_path / "text.txt").write_text("the cat")
    tokenize(tmp_path / "text.txt", tokenizer, tmp_path / "data", valid=1e-5)
    manifest = tmp_path / "data" / "manifest.json"
    text = manifest.read_text()
    assert "1e-05" in text
    manifest.write_text(text.replace("1e-05", "1E-05"))
    with pytest.raises(FileError, match="manifest"):
        list(verify_data(tmp_path / "data"))


def test_each_block_is_named(data_folder, monkeypatch):
    """With checksums of 16 MiB a small folder has one block a file: verify one that has two."""
    import tilth.data.token_files as module
    import tilth.data.tokenizing
    import tilth.data.verifying

    for user in (module, tilth.data.tokenizing, tilth.data.verifying):
        monkeypatch.setattr(user, "BLOCK_BYTES", 256)
    text = data_folder.parent / "text.txt"
    text.write_text("the cat " * 500)
    out = data_folder.parent / "blocks"
    data = tokenize(text, open_data(data_folder).tokenizer(), out, valid=0)
    num_blocks = -(-(128 + 2 * len(data.train)) // 256)
    assert num_blocks > 4
    damaged = bytearray((out / "train.npy").read_bytes())
    damaged[256 * 2] ^= 1
    (out / "train.npy").write_bytes(damaged)
    problems = [finding for finding in verify_data(out) if finding.problem]
    assert [(f.file, f.block, f.num_blocks) for f in problems] == [("train.npy", 3, num_blocks)]


def test_an_id_outside_the_vocabulary_is_found(data_folder, monkeypatch):
    """By a manifest that vouches for it, as another program might write one."""
    from tilth.data import token_files, verifying

    monkeypatch.setattr(
        verifying,
        "load_checked_manifest",
        lambda folder: {**token_files.load_checked_manifest(folder), "vocab_size": 200},
    )
    monkeypatch.setattr(verifying, "_check_every_letter", lambda *_: None)
    problems = [str(finding) for finding in verify_data(data_folder) if finding.problem]
    assert any("train.npy, block 1 of 1: token id 261 is outside" in text for text in problems)


def test_a_foreign_tokenizer_is_refused(data_folder):
    other = train_tokenizer(texts=["other words"], vocab_size=262, special_tokens=[END])
    with pytest.raises(FileError, match="was made by another tokenizer"):
        open_data(data_folder).check_tokenizer(other)
    other.save(data_folder / "tokenizer.json", overwrite=True)
    with pytest.raises(FileError, match=r"tokenizer\.json"):
        open_data(data_folder).tokenizer()


def test_the_fingerprint_is_of_the_ids(written, tokenizer, tmp_path):
    data = open_data(written)
    (tmp_path / "other name.txt").write_text(END.join(f"the cat {n}" for n in range(40)))
    again = tokenize(tmp_path / "other name.txt", tokenizer, tmp_path / "again", valid=0.2)
    other = tokenize(tmp_path / "other name.txt", tokenizer, tmp_path / "other", valid=0.3)
    assert data.fingerprint == again.fingerprint == fingerprint_of(data.manifest)
    assert data.fingerprint != other.fingerprint


def test_what_is_no_data_folder(tmp_path):
    with pytest.raises(FileError, match="is no data folder"):
        open_data(tmp_path / "missing")
    with pytest.raises(FileError, match=r"has no manifest\.json"):
        open_data(tmp_path)
