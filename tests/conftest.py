"""What every test relies on."""

import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples each time (`--hypothesis-profile others` draws others); and a machine that does
# something else for 200 ms is no defect of ours.
settings.register_profile("tilth", deadline=None, derandomize=True)
settings.register_profile("others", deadline=None)
settings.load_profile("tilth")

# Where the suite is started in the background or by nohup, Ctrl-C or the end of the terminal is
# ignored, and every child would inherit that: tests of interruption need the usual handling.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


# The files that take longest begin first: otherwise one process ends with them while others wait.
COSTLY = (
    *("cli/test_train", "cli/test_lab", "lab/search/test_search", "training/test_loop"),
    *("test_documentation", "lab/test_runner", "tokenizer/test_tokenizer", "test_hostile"),
    *("cli/test_lab_search", "cli/test_generate", "generation/test_native_decoder"),
)


def pytest_collection_modifyitems(items):
    root = Path(__file__).parent
    rank = {root / f"{name}.py": place for place, name in enumerate(COSTLY)}
    items.sort(key=lambda item: rank.get(item.path, len(rank)))


@pytest.fixture
def once_within():
    """`once_within(limit, measure)`: one of ten measurements is below `limit` seconds.

    Other programs can make a measurement longer, never shorter.
    """

    def once_within(limit, measure):
        seconds = []
        for _ in range(10):
            seconds.append(measure())
            if seconds[-1] < limit:
                return
            time.sleep(1)
        pytest.fail(f"never below {limit} s: {seconds}")

    return once_within


@pytest.fixture
def ctrl_c_within():
    """`ctrl_c_within(limit, program)`: what it says if it ends within `limit` seconds of Ctrl-C.

    That comes half a second after its first line; one of three tries is enough.
    """

    def ctrl_c_within(limit, program):
        command, pipe = [sys.executable, "-c", program], subprocess.PIPE
        seconds = []
        for _ in range(3):
            with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as child:
                try:
                    assert child.stdout.readline()
                    time.sleep(0.5)
                    start = time.perf_counter()
                    child.send_signal(signal.SIGINT)
                    said = child.communicate(timeout=60)
                    seconds.append(time.perf_counter() - start)
                finally:
                    child.kill()
            if seconds[-1] < limit:
                return said
        pytest.fail(f"never within {limit} s: {seconds}")

    return ctrl_c_within


@pytest.fixture
def cpu_seconds():
    """`cpu_seconds(program)`: how long Python takes for it, start and end included."""

    def cpu_seconds(program):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return cpu_seconds


@pytest.fixture(scope="session")
def stories(tmp_path_factory):
    """A small data folder, opened; nothing may be written into it."""
    import tilth
    from tilth.corpus.stories import write_stories

    folder = tmp_path_factory.mktemp("stories")
    write_stories(folder / "stories.txt", 60_000)
    tokenizer = tilth.train_tokenizer(folder / "stories.txt", 300, ["<|endoftext|>"])
    return tilth.tokenize(folder / "stories.txt", tokenizer, folder / "data", valid=0.1)
