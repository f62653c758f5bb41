"""A real Ray on loopback, started and stopped here: corpora while workers are killed."""

import gc
import os
import random
import signal
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tilth.data import tokenize, verify_data
from tilth.executors import AGAIN, Executor, run_tasks
from tilth.tokenizer import count_in_tasks, count_pieces, train_tokenizer

# Ray leaves the processes of a start that failed to the garbage collector.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]

END = "<|endoftext|>"
FILES = 12
TASKS = 18  # for `tokenize`, which cuts files
REPEATS = 10  # of each file, for `count_in_tasks`: a task takes 0.6 s, 0.06 s for one file
KILLS = 10


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """30 MB in files of one size: a task takes long enough to be killed within it."""
    draw = random.Random(0)
    words = [
        "".join(draw.choices("abcdefghijklmnopqrst\u00ef", k=draw.randint(1, 9)))
        for _ in range(20_000)
    ]
    folder = tmp_path_factory.mktemp("corpus")
    texts = [
        "".join(" ".join(draw.choices(words, k=100)) + END for _ in range(4000)).encode()
        for _ in range(FILES)
    ]
    size, paths = max(map(len, texts)), [folder / f"{n:02}.txt" for n in range(FILES)]
    for path, text in zip(paths, texts, strict=True):
        path.write_bytes(text.ljust(size))
    return paths


@pytest.fixture
def submitted(monkeypatch):
    """Return the numbers of tasks that are submitted, call by call."""
    numbers = []

    def run(function, tasks, *rest):
        numbers.append(len(tasks))
        return run_tasks(function, tasks, *rest)

    for module in ("tilth.data.tasks", "tilth.tokenizer.tasks"):
        monkeypatch.setattr(f"{module}.run_tasks", run)
    return numbers


@pytest.fixture(autouse=True)
def ray(monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    yield
    gc.collect()  # here, where the warnings are ignored


def busy_workers():
    """Return the descendants of this process that are workers of Ray and run a task."""
    found, parents = [], [os.getpid()]
    while parents:
        pid = parents.pop()
        with suppress(OSError):  # it has ended
            for thread in Path(f"/proc/{pid}/task").iterdir():
                parents += map(int, (thread / "children").read_text().split())
            title = Path(f"/proc/{pid}/cmdline").read_bytes()
            if title.startswith(b"ray::") and not title.startswith(b"ray::IDLE"):
                found.append(pid)
    return found


@contextmanager
def killed_workers(number):
    """Kill workers that run a task, at random moments; yield the list of the killed ones."""
    killed, draw, is_over = [], random.Random(1), threading.Event()

    def kill():
        while len(killed) < number and not is_over.is_set():
            if workers := busy_workers():
                time.sleep(draw.uniform(0, 0.2))
                with suppress(ProcessLookupError):
                    os.kill(pid := draw.choice(workers), signal.SIGKILL)
                    killed.append(pid)
            time.sleep(0.01)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        is_over.set()
        thread.join()


def until_done(command):
    """Run a command again for as long as it says so: Ray repeats a task three times."""
    while True:
        try:
            return command()
        except (OSError, ValueError) as error:
            # Ray waits 30 seconds for its own start, beside other work.
            if AGAIN not in str(error) and "timed out during startup" not in str(error):
                raise


def test_tokenizing(corpus, submitted, tmp_path):
    tokenizer = train_tokenizer(corpus, vocab_size=2000, special_tokens=[END])
    one = tokenize(corpus, tokenizer, tmp_path / "one", shard_tokens=1_000_000)
    options = {"executor": Executor("ray", 2), "tasks": TASKS, "shard_tokens": 1_000_000}
    with killed_workers(KILLS) as killed:
        many = until_done(lambda: tokenize(corpus, tokenizer, tmp_path / "many", **options))
    print(f"tokenized with {len(killed)} workers killed")
    assert len(killed) >= KILLS // 2
    assert submitted[0] == TASKS
    for path in one.folder.iterdir():
        assert path.read_bytes() == (many.folder / path.name).read_bytes()
    assert verify_data(many.folder)


def test_counting(corpus, submitted, tmp_path):
    """A task has the repeats of a file, and the sum those of all files."""
    files = [path for path in corpus for _ in range(REPEATS)]
    count_pieces(files, [END]).save(tmp_path / "one")
    options = {"executor": Executor("ray", 2), "tasks": FILES}
    with killed_workers(KILLS) as killed:
        until_done(lambda: count_in_tasks(files, tmp_path / "many", [END], **options))
    print(f"counted with {len(killed)} workers killed")
    assert len(killed) >= KILLS // 2
    assert submitted[0] == FILES
    assert (tmp_path / "many").read_bytes() == (tmp_path / "one").read_bytes()
