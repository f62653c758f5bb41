"""The text of a data folder, and the same text by a tokenizer of another size."""

import json
import os
from itertools import pairwise
from pathlib import Path

import pytest
import tokenizers

from tilth.data import open_data, tokenize
from tilth.data.verifying import verify_data
from tilth.files import FileError
from tilth.lab import texts
from tilth.lab.texts import documents_of, retokenize
from tilth.tokenizer import Tokenizer, reference, train_tokenizer

END = "<|endoftext|>"
TRAIN = [f"Story {n}: the cat and the hat, " + "naïve 🌱.\n" * (n % 5) for n in range(60)]
TRAIN += [f"It says {END} itself.", " blanks around \n", "日本語", "\u2028\x1f"]
VALID = ["the cat sat", f"\nthe hat {END} sat 🌱🌱"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    for name, documents in (("train", TRAIN), ("valid", VALID)):
        lines = (json.dumps({"text": document}) for document in documents)
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    tokenizer = train_tokenizer(texts=TRAIN, vocab_size=280, special_tokens=["<|pad|>", END])
    valid = folder / "valid.jsonl"
    return tokenize(folder / "train.jsonl", tokenizer, folder / "data", valid_corpus=valid)


def names_in(folder):
    return {path.name for path in folder.iterdir()}


def test_documents(data):
    assert list(documents_of(data, "train")) == TRAIN
    assert list(documents_of(data, "valid")) == VALID


def test_the_first_bytes_of_the_documents(data):
    """At any limit they are a prefix, shorter than the limit by less than a character."""
    whole = "".join(VALID)
    for limit in range(len(whole.encode()) + 3):
        found = list(documents_of(data, "valid", limit))
        assert all(found)
        assert found[:-1] == VALID[: max(0, len(found) - 1)]
        assert "".join(found).encode() == whole.encode()[:limit].decode(errors="ignore").encode()


def test_a_long_document_is_not_decoded_whole(data, monkeypatch):
    decoded = []

    def decode(self, ids):
        decoded.append(len(ids))
        return self._encoder.decode_bytes(ids)

    monkeypatch.setattr(Tokenizer, "decode_bytes", decode)
    assert list(documents_of(data, "train", 3)) == ["Sto"]
    assert decoded == [3]


@pytest.mark.parametrize("name", ["train.npy", "train_documents.npy"])
def test_a_file_that_becomes_shorter(tmp_path, name):
    """Else reading its memory map ends the process with SIGBUS."""
    (tmp_path / "a.txt").write_text(END.join(f"Story {n}." for n in range(texts.STARTS + 5000)))
    tokenizer = train_tokenizer(texts=["Story 1."], vocab_size=257, special_tokens=[END])
    cut = tokenize(tmp_path / "a.txt", tokenizer, tmp_path / "data", valid=0)
    documents = documents_of(cut, "train")
    assert next(documents) == "Story 0."
    os.truncate(tmp_path / "data" / name, 4096)
    with pytest.raises((OSError, FileError), match=r"now it has 4096|has 4,096 bytes instead of"):
        list(documents)


def test_retokenized(data, tmp_path):
    """The same documents, the merges of the specification, the ids of Hugging Face."""
    folder = tmp_path / "some" / "where"
    again = retokenize(data, folder, 300)
    assert list(documents_of(again, "train")) == TRAIN
    assert list(documents_of(again, "valid")) == VALID
    expected_vocab, expected_merges = reference.train(TRAIN, 300, [END])
    assert again.tokenizer().merges == tuple(expected_merges)
    assert again.tokenizer().vocab == expected_vocab
    other = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    for split, documents in (("train", TRAIN), ("valid", VALID)):
        ids = getattr(again, split).tolist()
        starts = again.documents(split).tolist()
        assert again.text_bytes(split) == sum(len(text.encode()) for text in documents)
        for text, (start, end) in zip(documents, pairwise(starts), strict=True):
            if END not in text:  # which it would take for the special token
                assert ids[start:end] == [*other.encode(text).ids, again.end_token_id]
    assert not any(finding.problem for finding in verify_data(folder))
    assert {name for name in names_in(folder) if name.startswith(".")} == set()


def test_the_pattern_stays(tmp_path):
    text = "12345 12345"  # of which gpt2 makes longer pieces
    (tmp_path / "a.txt").write_text(text)
    tokenizer = train_tokenizer(None, 257, [END], texts=["a"], pattern="cl100k")
    small = tokenize(tmp_path / "a.txt", tokenizer, tmp_path / "data", valid=0)
    again = retokenize(small, tmp_path / "again", 260)
    expected = reference.train([text], 260, [END], pattern="cl100k")[1]
    assert again.tokenizer().pattern == "cl100k"
    assert again.tokenizer().merges == tuple(expected)
    assert len(again.valid) == 0


def test_retokenized_twice_is_the_same(data, tmp_path):
    one, other = (retokenize(data, tmp_path / name, 290) for name in "ab")
    assert one.fingerprint == other.fingerprint
    assert one.tokenizer_fingerprint != retokenize(data, tmp_path / "c", 291).tokenizer_fingerprint


def test_the_limit_holds_for_training_too(data, tmp_path):
    again = retokenize(data, tmp_path / "a", 290, max_bytes=20)
    kept = list(documents_of(data, "train", 20))
    assert list(documents_of(again, "train")) == kept
    assert again.tokenizer().merges == tuple(reference.train(kept, 290, [END])[1])
    assert again.text_bytes("train") == 20


def test_a_finished_folder_is_opened(data, tmp_path, monkeypatch):
    first = retokenize(data, tmp_path / "a", 270)
    monkeypatch.setattr(texts, "train_tokenizer", None)
    again = retokenize(data, tmp_path / "a", 270)
    assert again.fingerprint == first.fingerprint
    for vocab_size, max_bytes in ((271, texts.MOST_BYTES), (270, 100)):
        with pytest.raises(FileExistsError, match="another vocabulary size; name another folder"):
            retokenize(data, tmp_path / "a", vocab_size, max_bytes)
    with pytest.raises(FileExistsError, match="other text"):
        retokenize(first, tmp_path / "a", 270)
    assert open_data(tmp_path / "a").fingerprint == first.fingerprint
    (tmp_path / "a" / "train.npy").write_bytes(b"")
    with pytest.raises(FileError, match=r"train\.npy has 0 bytes"):
        retokenize(data, tmp_path / "a", 270)


def test_existing_folders(data, tmp_path):
    with pytest.raises(FileExistsError, match="holds other files"):
        retokenize(data, data.folder, 270)
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="is a file"):
        retokenize(data, tmp_path / "file", 270)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "train.npy").write_text("mine")
    with pytest.raises(FileExistsError, match="holds other files"):
        retokenize(data, tmp_path / "mine", 270)
    assert (tmp_path / "mine" / "train.npy").read_text() == "mine"
    (tmp_path / "empty").mkdir()
    assert retokenize(data, tmp_path / "empty", 270).vocab_size == 270


def test_a_link_in_place_of_the_settings_is_not_followed(data, tmp_path):
    (tmp_path / "mine.json").write_text("mine")
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / texts.MADE_FROM).symlink_to(tmp_path / "mine.json")
    with pytest.raises(FileError, match=r"made_from\.json is a symbolic link"):
        retokenize(data, tmp_path / "again", 280)
    assert (tmp_path / "mine.json").read_text() == "mine"


@pytest.mark.parametrize("is_link", [True, False])
def test_foreign_files_in_place_of_the_temporary_texts_stay(data, tmp_path, is_link):
    mine = tmp_path / "mine" if is_link else tmp_path / "a" / ".texts"
    mine.mkdir(parents=True)
    (mine / "train.jsonl").write_text("mine")
    (mine / "letter.txt").write_text("mine")
    if is_link:
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / ".texts").symlink_to(mine)
    with pytest.raises(FileExistsError, match="is a link or holds other files; move it away"):
        retokenize(data, tmp_path / "a", 270)
    assert {path.name: path.read_text() for path in mine.iterdir()} == {
        **{"train.jsonl": "mine", "letter.txt": "mine"}
    }


def test_an_invalid_size_writes_nothing(data, tmp_path):
    with pytest.raises(ValueError, match="cannot hold the 256 bytes"):
        retokenize(data, tmp_path / "a", 200)
    assert names_in(tmp_path) == set()


def test_killed_at_any_moment(data, tmp_path):
    """Killed before any rename, the next call succeeds, also with another size."""
    expected = {size: retokenize(data, tmp_path / f"{size}", size) for size in (270, 275)}
    folder = tmp_path / "killed"
    survived, renames = False, 0
    while not survived:
        renames += 1
        survived = retokenize_in_child(data, folder, 270, renames)
        assert survived == (folder / "manifest.json").exists()
        size = 270 if survived or renames % 2 else 275
        assert retokenize(data, folder, size).fingerprint == expected[size].fingerprint
        assert names_in(folder) == names_in(expected[size].folder)
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
    assert renames > 5


def retokenize_in_child(data, folder, vocab_size, most_renames):
    """Return whether it ended before that many renames."""
    child = os.fork()
    if child == 0:
        rename, done = Path.rename, [0]

        def count(path, target):
            done[0] += 1
            if done[0] == most_renames:
                os._exit(1)
            return rename(path, target)

        Path.rename = count
        try:
            retokenize(data, folder, vocab_size)
            os._exit(0)
        finally:
            os._exit(2)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) in {0, 1}
    return os.waitstatus_to_exitcode(status) == 0
