"""Data folders of several shards: the ids, batches and losses of one file."""

import errno
import hashlib
import os
import shutil
import tracemalloc
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilth
from tests.data.test_token_files import setting, without, write_manifest
from tests.data.test_tokenizing import killed_at, set_block_bytes, small_blocks
from tilth.config.training import MachineConfig, TrainingConfig, WatchConfig
from tilth.data import open_data, tasks, token_files, tokenize, verify_data
from tilth.data.batches import Batches, get_batch
from tilth.data.guarding import OPEN_SHARDS, ShardedTokens
from tilth.data.partial import PartialArrays
from tilth.data.token_files import BLOCK_BYTES, Counts, array_layouts, load_data_manifest
from tilth.executors import Executor
from tilth.files import FileError
from tilth.schema import plain
from tilth.tokenizer import train_tokenizer

__all__ = ["small_blocks"]

END = "<|endoftext|>"
STORIES = [f"Story {n}: " + "the cat and the hat. " * (n % 5 + 1) for n in range(300)]
SIZES = (1_000, 997, 4_000, 10**9)


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(texts=STORIES, vocab_size=290, special_tokens=[END])


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "stories.txt"
    path.write_text(END.join(STORIES))
    return path


@pytest.fixture(scope="module")
def joined(corpus, tokenizer, tmp_path_factory):
    return tokenize(corpus, tokenizer, tmp_path_factory.mktemp("joined") / "data", valid=0.2)


@pytest.fixture(scope="module")
def written(corpus, tokenizer, tmp_path_factory):
    """The same data in shards of each size."""
    folder = tmp_path_factory.mktemp("shards")
    return {
        size: tokenize(corpus, tokenizer, folder / str(size), valid=0.2, shard_tokens=size)
        for size in SIZES
    }


@pytest.fixture
def data_folder(written, tmp_path):
    return shutil.copytree(written[1_000].folder, tmp_path / "data")


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("size", SIZES)
def test_the_shards_are_the_ids_in_pieces(written, joined, size):
    data = written[size]
    for split in ("train", "valid"):
        shards = [np.load(path) for path in sorted(data.folder.glob(f"{split}-*.npy"))]
        whole = np.load(joined.folder / f"{split}.npy")
        assert [len(shard) for shard in shards[:-1]] == [size] * (len(shards) - 1)
        assert 0 < len(shards[-1]) <= size
        assert np.array_equal(np.concatenate(shards), whole)
        assert getattr(data, split).tolist() == whole.tolist()
        assert np.array_equal(data.documents(split), joined.documents(split))
    assert not (data.folder / "train.npy").exists()
    assert not any(finding.problem for finding in verify_data(data.folder))
    assert len(joined.train) > 5_000, "several shards"


@pytest.mark.parametrize("order", ["random", "epoch"])
@pytest.mark.parametrize("size", SIZES)
def test_batches_are_those_of_one_file(written, joined, size, order):
    """With windows that cross shards, also more than one of them."""
    for context in (7, 128, 1_999):
        options = {"batch_size": 5, "context_length": context, "seed": 3, "order": order}
        ours, theirs = Batches(written[size].train, **options), Batches(joined.train, **options)
        assert ours.num_windows == theirs.num_windows
        assert ours.num_tokens == theirs.num_tokens
        for number in (0, 1, 17):
            for x, y in zip(ours[number], theirs[number], strict=True):
                assert x.dtype == y.dtype
                assert x.equal(y)


def test_get_batch_is_that_of_one_file(written, joined):
    import torch

    pairs = []
    for data in (written[997], joined):
        torch.manual_seed(1)
        pairs.append(get_batch(data.train, 8, 300))
    assert all(map(torch.equal, *pairs))


LENGTH = 23
SLICES = st.slices(LENGTH)


@given(st.integers(1, 30), SLICES | st.integers(-LENGTH, LENGTH - 1))
def test_reading_is_that_of_an_array(size, part):
    whole = np.arange(LENGTH, dtype=np.uint16)
    shards = np.split(whole, range(size, LENGTH, size))
    tokens = ShardedTokens(shards.__getitem__, size, LENGTH, whole.dtype)
    assert np.array_equal(tokens[part], whole[part])
    index = np.array([[0, 22, -1], [7, 7, -23]])
    assert np.array_equal(tokens[index], whole[index])
    assert np.asarray(tokens, np.int64).tolist() == whole.tolist()
    assert [*tokens] == [*whole]
    for wrong in (LENGTH, -LENGTH - 1):
        with pytest.raises(IndexError):
            tokens[wrong]
    with pytest.raises(TypeError):
        tokens[whole > 3]


def test_an_id_outside_the_vocabulary_is_refused(written):
    with pytest.raises(ValueError, match="is outside the vocabulary of 20"):
        Batches(written[997].train, 4, 16, seed=0, vocab_size=20)[0]


def test_training_is_that_of_one_file(written, joined, tmp_path):
    losses = {}
    for name, data in (("joined", joined), ("shards", written[1_000])):
        config = TrainingConfig(
            str(data.folder),
            tilth.ModelConfig(data.vocab_size, 32, d_model=16, num_layers=1, num_heads=2, d_ff=32),
            steps=3,
            batch_size=4,
            machine=MachineConfig("cpu", "float32", compile=False, threads=1),
            watch=WatchConfig(evaluate_every=1, sample_every=0),
        )
        records = list(tilth.train(config, tmp_path / name))
        losses[name] = [(record.loss, record.evaluation) for record in records]
    # The times differ, the losses do not.
    plain_losses = [
        [(loss, found and replace(found).loss) for loss, found in each] for each in losses.values()
    ]
    assert plain_losses[0] == plain_losses[1]


# --- writing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 3, 9])
def test_tasks_write_the_bytes_of_one_process(
    corpus, tokenizer, written, tmp_path, monkeypatch, number
):
    def run(function, arguments, _executor, _folder):
        for index in reversed(range(len(arguments))):
            function(arguments[index])
            yield index

    monkeypatch.setattr(tasks, "run_tasks", run)
    options = {"valid": 0.2, "shard_tokens": 997, "executor": Executor(), "tasks": number}
    data = tokenize(corpus, tokenizer, tmp_path / "data", **options)
    assert contents(data.folder) == contents(written[997].folder)


def test_killed_anywhere_it_resumes_to_the_same_bytes(
    corpus, tokenizer, written, tmp_path, small_blocks
):
    def work():
        tokenize(corpus, tokenizer, out, valid=0.2, shard_tokens=997)

    for event_number in range(1, 10_000, 13):
        out = tmp_path / f"killed{event_number}"
        if not killed_at(event_number, work):
            break
        if not (out / "manifest.json").exists():
            work()
        assert contents(out) == contents(written[997].folder)
    assert event_number > 100  # else the hook counted nothing


class Interrupt(Exception):
    pass


def test_interrupted_anywhere_it_resumes_to_the_same_bytes(
    corpus, tokenizer, written, tmp_path, small_blocks
):
    """An interrupted call saves its state, which may be before shards that it has begun."""
    attempts = calls = 0

    def interrupt(*_counts):
        nonlocal calls
        calls += 1
        if calls > attempts:
            raise Interrupt

    while not (tmp_path / "manifest.json").exists():
        assert attempts < 1_000
        attempts, calls = attempts + 1, 0
        with suppress(Interrupt):
            options = {"valid": 0.2, "threads": 1, "shard_tokens": 997}
            tokenize(corpus, tokenizer, tmp_path, **options, progress=interrupt)
    assert attempts > 8
    assert contents(tmp_path) == contents(written[997].folder)


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_failed_write_leaves_no_later_shard(
    corpus, tokenizer, written, tmp_path, monkeypatch, is_killed
):
    """The disk is full in the fourth shard, in the middle of a block."""
    write = PartialArrays._write

    def full(arrays, name, array):
        if name == "train-00003.npy":
            write(arrays, name, array[: len(array) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(arrays, name, array)

    with monkeypatch.context() as patch:
        set_block_bytes(patch, 12_000)
        patch.setattr(PartialArrays, "_write", full)
        if is_killed:
            patch.setattr(PartialArrays, "abandon", PartialArrays.journal)
        with pytest.raises(OSError, match="free some space"):
            tokenize(corpus, tokenizer, tmp_path, valid=0.2, threads=1, shard_tokens=997)
    left = {path.name for path in (tmp_path / ".partial").glob("train-*")}
    assert is_killed == ("train-00003.npy" in left)
    tokenize(corpus, tokenizer, tmp_path, valid=0.2, shard_tokens=997)
    assert contents(tmp_path) == contents(written[997].folder)


def test_other_shards_begin_again(corpus, tokenizer, tmp_path, caplog, joined):
    def interrupt(phase, _done, _total):
        if phase == "check":
            raise Interrupt

    options = {"valid": 0.2, "shard_tokens": 997}
    with pytest.raises(Interrupt):
        tokenize(corpus, tokenizer, tmp_path / "data", **options, progress=interrupt)
    data = tokenize(corpus, tokenizer, tmp_path / "data", valid=0.2)
    assert "because the options changed" in caplog.text
    assert contents(data.folder) == contents(joined.folder)


def test_an_overwritten_folder_keeps_no_shard(corpus, tokenizer, data_folder, joined, written):
    with pytest.raises(FileExistsError, match="already holds token files"):
        tokenize(corpus, tokenizer, data_folder)
    (data_folder / "notes.txt").write_text("mine")
    options = {"valid": 0.2, "overwrite": True}
    tokenize(corpus, tokenizer, data_folder, **options, shard_tokens=4_000)
    found = contents(data_folder)
    assert found.pop("notes.txt") == b"mine"
    assert found == contents(written[4_000].folder)
    tokenize(corpus, tokenizer, data_folder, **options)
    (data_folder / "notes.txt").unlink()
    assert contents(data_folder) == contents(joined.folder)


def test_shards_without_a_manifest_are_not_overwritten(corpus, tokenizer, tmp_path):
    (tmp_path / "train-00007.npy").write_text("mine")
    with pytest.raises(FileExistsError, match=r"train-00007\.npy already exists"):
        tokenize(corpus, tokenizer, tmp_path, shard_tokens=1_000)


def test_too_many_shards(corpus, tokenizer, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="shard_tokens must be at least 1, not 0"):
        tokenize(corpus, tokenizer, tmp_path / "data", shard_tokens=0)
    monkeypatch.setattr(token_files, "MAX_SHARDS", 4)
    with pytest.raises(ValueError, match=r"at most 4 are possible: give longer shards"):
        tokenize(corpus, tokenizer, tmp_path / "data", shard_tokens=1_000)


# --- reading what is damaged, hostile or huge -----------------------------------------------------


def test_a_damaged_shard_is_named(data_folder):
    path = data_folder / "train-00002.npy"
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    findings = [finding for finding in verify_data(data_folder) if finding.problem]
    assert [finding.file for finding in findings] == ["train-00002.npy"]
    path.unlink()
    with pytest.raises(FileError, match=r"train-00002\.npy: it is missing|train-00002"):
        open_data(data_folder)


def test_a_shard_with_another_header(data_folder):
    path = data_folder / "train-00002.npy"
    np.save(path, np.load(path).view(np.int16))
    data = open_data(data_folder)
    assert len(data.train[:2_000]) == 2_000
    with pytest.raises(FileError, match=r"train-00002\.npy.* does not begin as its manifest says"):
        data.train[1_990:2_001]


def test_a_shard_that_becomes_shorter(data_folder):
    data = open_data(data_folder)
    data.train[:10]
    os.truncate(data_folder / "train-00000.npy", 500)
    with pytest.raises(OSError, match=r"had 2128 bytes, and now it has 500"):
        data.train[:10]
    os.truncate(data_folder / "train-00001.npy", 500)
    with pytest.raises(FileError, match=r"train-00001\.npy has 500 bytes instead of 2,128"):
        data.train[1_000:1_010]


def moved(name, to):
    def change(content):
        content["files"][to] = content["files"].pop(name)
        return content

    change.__name__ = f"moved to {to}"
    return change


@pytest.mark.parametrize(
    "change",
    [
        *(setting("shard_tokens", to=to) for to in (0, -1, 1, 999, 2**63, 1e3, "1000", [1000])),
        setting("splits", "train", to={"documents": 5, "tokens": 2**62, "text_bytes": 7}),
        without("shard_tokens"),
        without("files", "train-00001.npy"),
        setting("files", "train-00001.npy", "size_bytes", to=2_126),
        setting("files", "train-99999.npy", to={"size_bytes": 0, "sha256": []}),
        *(moved("train-00001.npy", to) for to in ("../train.npy", "/etc/passwd", "train-1.npy")),
    ],
    ids=lambda change: change.__name__,
)
def test_hostile_manifests_are_refused_in_a_sentence(data_folder, change):
    write_manifest(data_folder, change)
    with pytest.raises(FileError, match=r"manifest\.json") as error:
        open_data(data_folder)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 1_000


TRILLION = 10**12


@pytest.fixture
def trillion(written, tokenizer, tmp_path):
    """A folder of 10**12 ids in sparse files: 400 shards of 2.5 * 10**9 ids, 5 GB each."""
    folder = shutil.copytree(written[997].folder, tmp_path / "data")
    for path in folder.glob("train*.npy"):
        path.unlink()
    manifest = load_data_manifest(folder)
    size = TRILLION // 400
    splits = {**manifest.splits, "train": Counts(1, TRILLION, TRILLION)}
    # A validation shard of that size too, which its 997s are not.
    layouts = array_layouts(splits, "uint16", size)
    valid = np.concatenate([np.load(path) for path in sorted(folder.glob("valid-*.npy"))])
    for path in folder.glob("valid-*.npy"):
        path.unlink()
    content = plain(manifest) | {"splits": plain(splits), "shard_tokens": size}
    content["files"] = {"tokenizer.json": content["files"]["tokenizer.json"]}
    for name, layout in layouts.items():
        with (folder / name).open("wb") as file:
            file.write(layout.header())
            file.truncate(layout.size_bytes)
        blocks = -(-layout.size_bytes // BLOCK_BYTES)
        digest = hashlib.sha256(b"").hexdigest()
        content["files"][name] = {"size_bytes": layout.size_bytes, "sha256": [digest] * blocks}
    (folder / "valid-00000.npy").write_bytes(layouts["valid-00000.npy"].header() + valid.tobytes())
    marked = folder / "train-00399.npy"
    with marked.open("r+b") as file:
        file.seek(marked.stat().st_size - 2 * 64)
        file.write(np.arange(64, dtype="<u2").tobytes())
    write_manifest(folder, lambda _content: {"format": "token files", "version": 1, **content})
    return folder


def test_a_trillion_tokens_need_no_index(trillion):
    data = open_data(trillion)
    assert len(data.train) == TRILLION
    assert data.train[-64:].tolist() == [*range(64)]
    tracemalloc.start()
    for order in ("epoch", "random"):
        batches = Batches(data.train, 16, 1_024, seed=0, order=order)
        assert batches.num_windows == (TRILLION - 1) // 1_024
        for number in (0, 10**6, 10**7):
            x, _ = batches[number]
            assert x.shape == (16, 1_024)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8e6
    maps = [
        line for line in Path("/proc/self/maps").read_text().splitlines() if str(trillion) in line
    ]
    assert OPEN_SHARDS - 5 < len(maps) <= OPEN_SHARDS, "16 random rows a batch, of 400 shards"


def test_maps_are_closed():
    opened = []
    tokens = ShardedTokens(lambda n: opened.append(n) or np.arange(2), 2, 400, "int64")
    for number in range(200):
        assert tokens[2 * number] == 0
    assert tokens[0] == 0
    assert opened == [*range(200), 0], "the first shard was opened again"
