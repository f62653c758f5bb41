"""Counting in tasks: the bytes of one process, and the same tokenizer."""

import json

import pytest

from tilth.executors import Executor
from tilth.files import FileError
from tilth.tokenizer import count_pieces, train_tokenizer
from tilth.tokenizer import tasks as counting
from tilth.tokenizer.tasks import count_in_tasks, train_in_tasks

END = "<|endoftext|>"
STORIES = [f"Story {n}: the cat, naïve 🌱 and the hat. " * (n % 5 + 1) for n in range(200)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    for number in range(5):
        (folder / f"{number}.txt").write_text(END.join(STORIES[number::5]))
    lines = "".join(json.dumps({"text": story}) + "\n" for story in STORIES)
    (folder / "b.jsonl").write_text(lines)
    (folder / "books").mkdir()
    for number, story in enumerate(STORIES[:30]):
        (folder / "books" / f"{number:03}.txt").write_bytes(story.encode())
    names = [*(f"{number}.txt" for number in range(5)), "0.txt", "b.jsonl", "books"]
    return [folder / name for name in names]


@pytest.fixture
def in_order(monkeypatch):
    """Run tasks in this process, in an order of our choice."""

    def install(order):
        def run(function, arguments, _executor, _folder):
            for index in order([*range(len(arguments))]):
                function(arguments[index])
                yield index

        monkeypatch.setattr(counting, "run_tasks", run)

    return install


@pytest.mark.parametrize("number", [1, 3, 20])
@pytest.mark.parametrize("options", [{}, {"separator": ".", "pattern": r"\p{L}+|\s+"}])
def test_any_number_of_tasks_writes_the_bytes_of_one_process(
    corpus, tmp_path, in_order, number, options
):
    in_order(lambda indices: indices[::-1])
    count_pieces(corpus, [END], **options).save(tmp_path / "one")
    shared = {"executor": Executor(), "tasks": number, **options}
    numbers = count_in_tasks(corpus, tmp_path / "many", [END], **shared)
    assert (tmp_path / "many").read_bytes() == (tmp_path / "one").read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"one", "many"}
    one = train_tokenizer(corpus, 300, [END], **options)
    many = train_tokenizer(counts=tmp_path / "many", vocab_size=300)
    assert one.fingerprint == many.fingerprint
    assert numbers[0] > 0
    one.save(tmp_path / "one.json")
    assert train_in_tasks(corpus, tmp_path / "many.json", 300, [END], **shared) == one
    assert (tmp_path / "many.json").read_bytes() == (tmp_path / "one.json").read_bytes()
    assert not [*tmp_path.glob(".*")]


def test_training_in_tasks_leaves_other_files(corpus, tmp_path, in_order):
    """The name was that of the counts; it was replaced through a link, and deleted."""
    in_order(lambda indices: indices)
    (tmp_path / "mine").write_text("mine")
    (tmp_path / ".a.json.counts").symlink_to("mine")
    (tmp_path / ".b.json.counts").write_text("mine")
    for name in ("a.json", "b.json"):
        train_in_tasks(corpus, tmp_path / name, 300, [END], executor=Executor())
        assert (tmp_path / f".{name}.counts").read_text() == "mine"
    assert (tmp_path / ".a.json.counts").is_symlink()


def test_training_in_tasks_checks_the_size_first_and_resumes(corpus, tmp_path, in_order):
    ran = []
    in_order(lambda indices: ran.extend(indices) or indices)
    shared = {"executor": Executor(), "tasks": 9}
    with pytest.raises(ValueError, match="make vocab_size at least 257"):
        train_in_tasks(corpus, tmp_path / "t.json", 100, [END], **shared)
    with pytest.raises(ValueError, match="too large"):
        train_in_tasks(corpus, tmp_path / "t.json", 2**40, [END], **shared)
    assert not ran
    in_order(lambda indices: indices[:2])
    with pytest.raises(FileError, match="does not exist"):
        train_in_tasks(corpus, tmp_path / "t.json", 300, [END], **shared)
    in_order(lambda indices: ran.extend(indices) or indices)
    train_in_tasks(corpus, tmp_path / "t.json", 300, [END], **shared)
    assert 4 < len(ran) < 9
    assert {path.name for path in tmp_path.iterdir()} == {"t.json"}


def test_a_second_call_runs_only_the_missing_tasks(corpus, tmp_path, in_order):
    in_order(lambda indices: indices[:2])
    with pytest.raises(FileError, match="does not exist"):
        count_in_tasks(corpus, tmp_path / "counts", [END], executor=Executor(), tasks=9)
    ran = []
    in_order(lambda indices: ran.extend(indices) or indices)
    count_in_tasks(corpus, tmp_path / "counts", [END], executor=Executor(), tasks=9)
    assert 4 < len(ran) < 9
    count_pieces(corpus, [END]).save(tmp_path / "one")
    assert (tmp_path / "counts").read_bytes() == (tmp_path / "one").read_bytes()


def test_damaged_counts_of_a_task(corpus, tmp_path, in_order):
    in_order(lambda indices: indices[:2])
    with pytest.raises(FileError, match="does not exist"):
        count_in_tasks(corpus, tmp_path / "counts", [END], executor=Executor(), tasks=9)
    file = next((tmp_path / ".counts.tasks").glob("*.counts"))
    file.write_bytes(file.read_bytes()[:-1])
    in_order(lambda indices: indices)
    with pytest.raises(FileError, match="damaged"):
        count_in_tasks(corpus, tmp_path / "counts", [END], executor=Executor(), tasks=9)
    assert not (tmp_path / "counts").exists()
    count_in_tasks(corpus, tmp_path / "counts", [END], executor=Executor(), tasks=9)
    count_pieces(corpus, [END]).save(tmp_path / "one")
    assert (tmp_path / "counts").read_bytes() == (tmp_path / "one").read_bytes()


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda f: (f / "jobs").mkdir(), "was not made by tilth"),
        (lambda f: (f / "notes.txt").touch(), "was not made by tilth"),
        (lambda f: [(f / n).touch() for n in ("tilth-tasks", "notes")], "holds 'notes'"),
        (lambda f: [(f / n).touch() for n in ("tilth-tasks", "jobs")], "holds 'jobs'"),
        (lambda f: [(f / "tilth-tasks").touch(), (f / "sum.counts").mkdir()], "'sum.counts'"),
        (lambda f: (f / "tilth-tasks").symlink_to("/dev/null"), "holds 'tilth-tasks'"),
        (lambda f: [(f / "tilth-tasks").touch(), (f / "jobs").symlink_to("/tmp")], "holds 'jobs'"),
        (
            lambda f: [(f / "tilth-tasks").touch(), (f / f"{'0' * 64}.counts").symlink_to("x")],
            "which tilth did not write",
        ),
        (lambda f: f.rmdir() or f.symlink_to("elsewhere"), "is a link to another folder"),
        (lambda f: f.rmdir() or f.touch(), "is a link to another folder, or a file"),
    ],
)
def test_a_folder_of_another_origin_is_left(corpus, tmp_path, in_order, make, problem):
    """A folder `jobs` in it was deleted."""
    in_order(lambda indices: indices)
    folder = tmp_path / ".counts.tasks"
    folder.mkdir()
    make(folder)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(FileError, match=problem) as caught:
        count_in_tasks(corpus, tmp_path / "counts", [END], executor=Executor())
    assert "; move it elsewhere, or choose another name" in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_files_of_a_killed_call_are_removed(corpus, tmp_path, in_order):
    """An empty folder may be used."""
    in_order(lambda indices: indices)
    folder = tmp_path / ".counts.tasks"
    folder.mkdir()
    count_in_tasks(corpus, tmp_path / "counts", [END], executor=Executor(), tasks=1)
    assert not folder.exists()
    (folder / "jobs").mkdir(parents=True)
    for name in ("tilth-tasks", "sum.counts", "jobs/1_0_log.out"):
        (folder / name).touch()
    count_in_tasks(corpus, tmp_path / "counts", [END], executor=Executor(), tasks=1, overwrite=True)
    assert not folder.exists()


def test_processes(corpus, tmp_path):
    count_in_tasks(corpus, tmp_path / "many", [END], executor=Executor(workers=2), tasks=3)
    count_pieces(corpus, [END]).save(tmp_path / "one")
    assert (tmp_path / "many").read_bytes() == (tmp_path / "one").read_bytes()
