"""Resuming tokenizing: only files of tokenizing are replaced, only a valid journal is used."""

import json
import os
import shutil

import pytest

from tilth.data import partial, tokenize
from tilth.files import FileError, checksum_of
from tilth.tokenizer import train_tokenizer

END = "<|endoftext|>"
STORIES = [f"Story {n}: the cat and the hat." for n in range(60)]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(texts=STORIES, vocab_size=270, special_tokens=[END])


@pytest.fixture
def corpus(tmp_path):
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text(END.join(STORIES[number::3]))
    return [tmp_path / f"{number}.txt" for number in range(3)]


class Interrupt(Exception):
    pass


@pytest.fixture
def interrupted(tokenizer, corpus, tmp_path):
    """A folder whose tokenizing was interrupted after the second of three files."""

    def interrupt(_phase, done, total):
        if done > total // 2:
            raise Interrupt

    with pytest.raises(Interrupt):
        tokenize(corpus, tokenizer, tmp_path / "data", valid=0.2, threads=1, progress=interrupt)
    return tmp_path / "data"


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_link_in_place_of_the_partial_folder(tokenizer, corpus, tmp_path):
    """The target of the link stays unchanged, with any file names."""
    precious = tmp_path / "precious"
    precious.mkdir()
    names = ("thesis.txt", "train.npy", "journal.json", "lock", "manifest.json")
    for name in names:
        (precious / name).write_text("precious")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / ".partial").symlink_to(precious)
    with pytest.raises(FileError, match=r"\.partial is a link to another folder"):
        tokenize(corpus, tokenizer, tmp_path / "data")
    assert contents(precious) == dict.fromkeys(names, b"precious")


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["thesis.txt"], "was not made by tilth"),
        (["train.npy"], "was not made by tilth"),
        (["lock", "thesis.txt"], "holds 'thesis.txt', which tilth did not write"),
        (["lock", ".thesis.txt.0123456789abcdef.partial"], "did not write"),
    ],
)
def test_a_partial_folder_with_files_of_the_user(tokenizer, corpus, tmp_path, names, said):
    own = tmp_path / "data" / ".partial"
    own.mkdir(parents=True)
    for name in names:
        (own / name).write_text("precious")
    with pytest.raises(FileError, match=said):
        tokenize(corpus, tokenizer, tmp_path / "data")
    assert contents(own) == dict.fromkeys(names, b"precious")


def test_a_broken_link_in_place_of_the_folder(tokenizer, corpus, tmp_path):
    (tmp_path / "data").symlink_to("absent")
    with pytest.raises(FileError, match="data is a broken link; remove it"):
        tokenize(corpus, tokenizer, tmp_path / "data")
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize("name", ["lock", "train.npy", "journal.json", "tokenizer.json"])
def test_links_in_the_partial_folder_are_not_followed(tokenizer, corpus, tmp_path, name):
    (tmp_path / "thesis.txt").write_text("precious")
    own = tmp_path / "data" / ".partial"
    own.mkdir(parents=True)
    (own / "lock").touch()
    (own / name).unlink(missing_ok=True)
    (own / name).symlink_to(tmp_path / "thesis.txt")
    with pytest.raises(FileError, match=f"holds '{name}'"):
        tokenize(corpus, tokenizer, tmp_path / "data")
    assert (tmp_path / "thesis.txt").read_text() == "precious"


def test_a_pipe_in_place_of_the_lock_is_refused(tokenizer, corpus, tmp_path):
    (tmp_path / "data" / ".partial").mkdir(parents=True)
    os.mkfifo(tmp_path / "data" / ".partial" / "lock")
    with pytest.raises(FileError, match="holds 'lock'"):
        tokenize(corpus, tokenizer, tmp_path / "data")


def test_only_known_names_are_published(tokenizer, corpus, tmp_path, interrupted):
    """A manifest in the partial folder does not decide which files are moved."""
    (tmp_path / "thesis.txt").write_text("precious")
    (interrupted / ".partial" / "manifest.json").write_text(
        json.dumps({"format": "token files", "version": 1, "files": {"../../thesis.txt": {}}})
    )
    tokenize(corpus, tokenizer, interrupted, valid=0.2)
    assert (tmp_path / "thesis.txt").read_text() == "precious"


def test_leftovers_of_killed_writers_are_removed(tokenizer, corpus, interrupted):
    (interrupted / ".partial" / ".journal.json.0123456789abcdef.partial").touch()
    tokenize(corpus, tokenizer, interrupted, valid=0.2)
    assert not (interrupted / ".partial").exists()


def changed_journal(folder, change, *, with_checksum):
    path = folder / ".partial" / "journal.json"
    journal = json.loads(path.read_text())
    change(journal)
    if with_checksum:
        journal.pop("checksum", None)
        content = {key: journal[key] for key in journal if key not in ("format", "version")}
        journal["checksum"] = checksum_of(content)
    path.write_text(json.dumps(journal, indent=2))


def test_interrupted_work_resumes(tokenizer, corpus, interrupted, caplog):
    tokenize(corpus, tokenizer, interrupted, valid=0.2)
    assert caplog.text == ""


def skip_documents(journal):
    journal["state"]["position"] = [2, 100]


def remove_checksum(journal):
    del journal["checksum"]  # as the first edition wrote it


@pytest.mark.parametrize("change", [skip_documents, remove_checksum])
def test_a_journal_without_its_checksum_is_discarded(
    tokenizer, corpus, tmp_path, interrupted, caplog, change
):
    changed_journal(interrupted, change, with_checksum=False)
    tokenize(corpus, tokenizer, interrupted, valid=0.2)
    assert "discarded because its journal is damaged or has no checksum" in caplog.text
    tokenize(corpus, tokenizer, tmp_path / "whole", valid=0.2)
    assert contents(interrupted) == contents(tmp_path / "whole")


STATES = {
    "part": [-1, 1, 2**70, "0", None, True, 0.0],
    "position": [[], [0], [0, 0, 0], [9, 0], [-1, 0], [0, "0"], {}, None, 7],
    "read_bytes": [-1, 10**9, "1", None, 2**70],
    "skipped": [1, -1, None],
    "splits": [{}, [], None, {"train": {}}, {"train": {"documents": 1}, "valid": {}, "test": {}}],
    "sources": [[], [[0, 0]], [[0, 0]] * 3, [[0]] * 3, [["", 0]] * 3, None, [None] * 3, [0] * 3],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in STATES.items() for value in values]
)
def test_a_journal_that_contradicts_the_work_is_discarded(
    tokenizer, corpus, tmp_path, interrupted, caplog, name, value
):
    """Also with a correct checksum."""
    changed_journal(
        interrupted, lambda journal: journal["state"].update({name: value}), with_checksum=True
    )
    tokenize(corpus, tokenizer, interrupted, valid=0.2)
    assert "is discarded because its" in caplog.text
    assert "checksum" not in caplog.text
    tokenize(corpus, tokenizer, tmp_path / "whole", valid=0.2)
    assert contents(interrupted) == contents(tmp_path / "whole")


@pytest.mark.parametrize("job", [[], None, 7, "x", {}])
def test_a_journal_with_an_invalid_job_is_discarded(tokenizer, corpus, interrupted, caplog, job):
    changed_journal(interrupted, lambda journal: journal.update(job=job), with_checksum=True)
    tokenize(corpus, tokenizer, interrupted, valid=0.2)
    assert "is discarded because" in caplog.text


def test_arrays_that_end_elsewhere_are_discarded(tokenizer, corpus, tmp_path, interrupted, caplog):
    array = interrupted / ".partial" / "train_documents.npy"
    array.write_bytes(array.read_bytes()[:-8] + bytes(8))
    tokenize(corpus, tokenizer, interrupted, valid=0.2)
    assert "its documents end elsewhere than its journal says" in caplog.text
    tokenize(corpus, tokenizer, tmp_path / "whole", valid=0.2)
    assert contents(interrupted) == contents(tmp_path / "whole")


def test_known_names():
    assert all(partial.KNOWN_NAME.fullmatch(name) for name in (*partial.FILES, "lock"))
    assert not partial.KNOWN_NAME.fullmatch("train.npy.bak")


def test_a_removed_partial_folder_is_an_error(tmp_path):
    def remove_inside():
        with partial.partial_folder(tmp_path / "data") as folder:
            shutil.rmtree(folder)

    with pytest.raises(FileNotFoundError):
        remove_inside()
