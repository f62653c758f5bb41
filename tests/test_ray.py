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
from tilth.executors import AGAIN, Executor
from tilth.tokenizer import count_in_tasks, count_pieces, train_tokenizer

# Ray leaves the processes of a start that failed to the garbage collector.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]

END = "<|endoftext|>"
TASKS = 12
KILLS = 10


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """30 MB: a task takes long enough to be killed within it."""
    draw = random.Random(0)
    words = [
        "".join(draw.choices("abcdefghijklmnopqrst\u00ef", k=draw.randint(1, 9)))
        for _ in range(20_000)
    ]
    path = tmp_path_factory.mktemp("corpus") / "a.txt"
    with path.open("w") as file:
        for _ in range(50_000):
            file.write(" ".join(draw.choices(words, k=100)) + END)
    return path


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


def test_tokenizing(corpus, tmp_path):
    tokenizer = train_tokenizer([corpus], vocab_size=2000, special_tokens=[END])
    one = tokenize(corpus, tokenizer, tmp_path / "one", shard_tokens=1_000_000)
    options = {"executor": Executor("ray", 2), "tasks": TASKS, "shard_tokens": 1_000_000}
    with killed_workers(KILLS) as killed:
        many = until_done(lambda: tokenize(corpus, tokenizer, tmp_path / "many", **options))
    print(f"tokenized with {len(killed)} workers killed")
    assert len(killed) >= KILLS // 2
    for path in one.folder.iterdir():
        assert path.read_bytes() == (many.folder / path.name).read_bytes()
    assert verify_data(many.folder)


def test_counting(corpus, tmp_path):
    count_pieces(corpus, [END]).save(tmp_path / "one")
    options = {"executor": Executor("ray", 2), "tasks": TASKS}
    with killed_workers(KILLS) as killed:
        until_done(lambda: count_in_tasks(corpus, tmp_path / "many", [END], **options))
    print(f"counted with {len(killed)} workers killed")
    assert len(killed) >= KILLS // 2
    assert (tmp_path / "many").read_bytes() == (tmp_path / "one").read_bytes()
