"""Settings and fixtures shared by all tests."""

import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import settings

from tests.fake_slurm import slurm  # noqa: F401, a fixture
from tests.first_edition import first, unpacked  # noqa: F401, fixtures

# Hypothesis draws the same examples each time; `--hypothesis-profile others` draws new ones. No
# deadline: another process can delay an example by 200 ms.
settings.register_profile("tilth", deadline=None, derandomize=True)
settings.register_profile("others", deadline=None)
settings.load_profile("tilth")

# In the background or under nohup, SIGINT and SIGHUP are ignored, and child processes inherit that.
# Tests of interruption need the default handlers.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


# The slowest files start first; otherwise one worker runs them last while the others are idle.
COSTLY = (
    *("cli/test_train", "lab/search/test_search", "test_documentation", "training/test_loop"),
    *("lab/test_runner", "cli/test_lab", "tokenizer/test_tokenizer", "test_hostile"),
    *("cli/test_demo", "cli/test_lab_search", "training/test_killed", "corpus/test_readers"),
)


def pytest_collection_modifyitems(items):
    root = Path(__file__).parent
    rank = {root / f"{name}.py": place for place, name in enumerate(COSTLY)}
    items.sort(key=lambda item: rank.get(item.path, len(rank)))


@pytest.fixture
def once_within():
    """Assert that one of ten measurements is below a limit: `once_within(limit, measure)`.

    Times are in seconds. Other processes can lengthen a measurement, but not shorten it.
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
    """Assert that a program ends within a limit after Ctrl-C: `ctrl_c_within(limit, program)`.

    SIGINT is sent 0.5 s after its first line; one of three tries must succeed. Returns its output.
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
    """Return the CPU time of a Python program, start-up included: `cpu_seconds(program)`."""

    def cpu_seconds(program):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return cpu_seconds


@pytest.fixture(scope="session")
def stories(tmp_path_factory):
    """A small data folder, opened. Read-only: all tests share it."""
    import tilth
    from tilth.corpus.stories import write_stories

    folder = tmp_path_factory.mktemp("stories")
    write_stories(folder / "stories.txt", 60_000)
    tokenizer = tilth.train_tokenizer(folder / "stories.txt", 300, ["<|endoftext|>"])
    return tilth.tokenize(folder / "stories.txt", tokenizer, folder / "data", valid=0.1)
