"""A data folder opens as it was written, or the error names the wrong file."""

import hashlib
import json
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest

from tilth.data import open_data, tokenize, verify_data, verifying
from tilth.data.token_files import ArrayLayout
from tilth.files import FileError, checksum_of
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
    assert len(ArrayLayout(dtype, length).header()) == 128


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


def test_another_spelling_of_the_manifest_opens_but_is_found(tokenizer, tmp_path):
    (tmp_path / "text.txt").write_text("the cat")
    data = tokenize(tmp_path / "text.txt", tokenizer, tmp_path / "data", valid=1e-5)
    manifest = tmp_path / "data" / "manifest.json"
    text = manifest.read_text()
    assert "1e-05" in text
    sorted_and_short = json.dumps(json.loads(text), sort_keys=True)
    for other in (text.replace("1e-05", "1E-05"), sorted_and_short, text + "\n"):
        manifest.write_text(other)
        assert open_data(data.folder).fingerprint == data.fingerprint
        with pytest.raises(FileError, match="manifest"):
            list(verify_data(tmp_path / "data"))


def test_a_failing_disk_is_found_in_words(data_folder):
    """/proc/self/mem is a regular file whose first page cannot be read."""
    (data_folder / "train.npy").unlink()
    (data_folder / "train.npy").symlink_to("/proc/self/mem")
    problems = [finding.problem for finding in verify_data(data_folder) if finding.problem]
    assert problems[1] == "cannot be read (Input/output error)"


def test_each_block_is_named(data_folder, monkeypatch):
    """Blocks of 16 MiB give one block a file: verify with blocks of 256 bytes."""
    import tilth.data.token_files as module
    import tilth.data.tokenizing
    import tilth.data.verifying

    tokenizer = open_data(data_folder).tokenizer()
    for user in (module, tilth.data.tokenizing, tilth.data.verifying):
        monkeypatch.setattr(user, "BLOCK_BYTES", 256)
    text = data_folder.parent / "text.txt"
    text.write_text("the cat " * 500)
    out = data_folder.parent / "blocks"
    data = tokenize(text, tokenizer, out, valid=0)
    num_blocks = -(-(128 + 2 * len(data.train)) // 256)
    assert num_blocks > 4
    damaged = bytearray((out / "train.npy").read_bytes())
    damaged[256 * 2] ^= 1
    (out / "train.npy").write_bytes(damaged)
    problems = [finding for finding in verify_data(out) if finding.problem]
    assert [(f.file, f.block, f.num_blocks) for f in problems] == [("train.npy", 3, num_blocks)]


def test_an_id_outside_the_vocabulary_is_found(data_folder, monkeypatch):
    """With a consistent manifest, as another program might write it."""
    from tilth.data import token_files, verifying

    monkeypatch.setattr(
        verifying,
        "load_data_manifest",
        lambda folder, *, exact: replace(
            token_files.load_data_manifest(folder, exact=exact), vocab_size=200, end_token_id=0
        ),
    )
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
    assert data.fingerprint == again.fingerprint
    assert data.fingerprint != other.fingerprint


def test_a_folder_without_a_manifest(tmp_path):
    for folder in (tmp_path / "missing", tmp_path):
        with pytest.raises(FileError, match=r"is not a data folder \(it has no manifest\.json\)"):
            open_data(folder)


# --- untrusted manifests --------------------------------------------------------------------------


def write_manifest(folder, change):
    """Change the manifest, and update its checksum."""
    path = folder / "manifest.json"
    content = json.loads(path.read_text())
    del content["checksum"]
    content = change(content) or content
    if isinstance(content, dict):
        own = {key: content[key] for key in content if key not in ("format", "version")}
        content["checksum"] = checksum_of(own)
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False))


def setting(*keys, to):
    def change(content):
        for key in keys[:-1]:
            content = content[key]
        content[keys[-1]] = to

    change.__name__ = f"{'.'.join(map(str, keys))} = {to!r:.40}"
    return change


def without(*keys):
    def change(content):
        for key in keys[:-1]:
            content = content[key]
        del content[keys[-1]]

    change.__name__ = f"without {'.'.join(keys)}"
    return change


def renamed_file(content):
    content["files"]["../../thesis.txt"] = content["files"].pop("train.npy")


ODD_VALUES = [None, True, -1, 2**70, 10**400, 1.5, "x", [], {}, [[]], {"train": []}]
HOSTILE = [
    *(
        setting(key, to=value)
        for key in ("dtype", "vocab_size", "end_token_id", "tokenizer_fingerprint", "splits")
        for value in ODD_VALUES
    ),
    *(setting("files", to=value) for value in ODD_VALUES),
    *(setting("sources", to=value) for value in [None, 7, "x", {}, [7], [{}], [[]]]),
    *(setting("files", "train.npy", to=value) for value in ODD_VALUES),
    *(setting("files", "train.npy", "sha256", to=value) for value in ODD_VALUES),
    *(setting("files", "train.npy", "size_bytes", to=value) for value in ODD_VALUES),
    *(setting("splits", "train", to=value) for value in ODD_VALUES),
    *(setting("splits", "train", "tokens", to=value) for value in ODD_VALUES),
    *(setting("splits", "train", "documents", to=value) for value in [*ODD_VALUES, 0, 10**9]),
    setting("end_token", to=[]),
    setting("end_token", to="</s>"),
    setting("valid_share", to="much"),
    setting("vocab_size", to=2**24 + 1),
    setting("vocab_size", to=70_000),
    setting("vocab_size", to=300),
    setting("end_token_id", to=262),
    setting("end_token_id", to=261),
    setting("dtype", to="object"),
    setting("dtype", to="uint32"),
    setting("files", "extra.npy", to={"size_bytes": 0, "sha256": []}),
    *(without(key) for key in ("dtype", "vocab_size", "end_token_id", "splits", "files")),
    *(without("files", name) for name in ("train.npy", "tokenizer.json")),
    without("splits", "valid"),
    without("splits", "valid", "tokens"),
    renamed_file,
    lambda _content: ["token files"],
    lambda _content: 7,
]


@pytest.mark.parametrize("change", HOSTILE, ids=lambda change: change.__name__)
def test_hostile_manifests_are_refused_in_a_sentence(data_folder, change):
    write_manifest(data_folder, change)
    with pytest.raises(FileError, match=r"manifest\.json"):
        open_data(data_folder).tokenizer()
    try:
        problems = [finding.problem for finding in verify_data(data_folder) if finding.problem]
    except FileError as error:
        problems = [str(error)]
    assert problems
    assert "\n" not in "".join(problems)


def test_a_manifest_without_an_end_token_has_the_default(data_folder):
    write_manifest(data_folder, without("end_token"))
    assert open_data(data_folder).end_token == END
    assert not any(finding.problem for finding in verify_data(data_folder))


@pytest.mark.parametrize("name", ["manifest.json", "train.npy", "tokenizer.json"])
def test_pipes_are_refused(data_folder, name):
    (data_folder / name).unlink()
    os.mkfifo(data_folder / name)
    with pytest.raises(FileError, match=name):
        open_data(data_folder)
    try:
        assert any(finding.problem for finding in verify_data(data_folder))
    except FileError as error:
        assert name in str(error)  # noqa: PT017


def test_a_file_that_is_replaced_after_its_check_is_not_opened(data_folder, monkeypatch):
    """The array that was checked is read, and no pipe is waited for."""
    from tilth.data import token_files

    expected = np.load(data_folder / "train.npy")
    layout = token_files.ArrayLayout.header

    def replace_file(self):
        header = layout(self)
        (data_folder / "train.npy").unlink(missing_ok=True)
        os.mkfifo(data_folder / "train.npy")
        return header

    data = open_data(data_folder)
    manifest = data.manifest
    monkeypatch.setattr(token_files.ArrayLayout, "header", replace_file)
    array = token_files._open_array(data_folder, "train.npy", manifest)
    assert np.array_equal(array, expected)


def test_documents_that_end_after_the_ids_are_found(data_folder, monkeypatch):
    """In each part they increase, and the last ends with the ids."""
    from tilth.data import verifying

    monkeypatch.setattr(verifying, "DOCUMENTS_AT_ONCE", 2)
    path = data_folder / "train_documents.npy"
    starts = np.load(path)
    starts[2:4] = [2**63, 2**64 - 1]
    whole = path.read_bytes()[:128]
    path.write_bytes(whole + starts.tobytes())
    write_manifest(
        data_folder,
        setting("files", path.name, "sha256", to=[hashlib.sha256(path.read_bytes()).hexdigest()]),
    )
    problems = [finding.problem for finding in verify_data(data_folder) if finding.problem]
    assert problems == ["a document ends after the ids"]


def test_a_file_truncated_during_verification_is_an_error(data_folder, monkeypatch):
    def open_and_cut(folder):
        data = open_data(folder)
        os.truncate(folder / "train.npy", 130)
        return data

    monkeypatch.setattr(verifying, "open_data", open_and_cut)
    findings = list(verify_data(data_folder))
    assert any(
        "had" in finding.problem and "now it has 130" in finding.problem for finding in findings
    )
