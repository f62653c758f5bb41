"""An untrusted journal: damage is an error that names the file, and nothing hangs."""

import json
import os
import shutil
from dataclasses import replace

import pytest

from tilth.files import FileError
from tilth.lab.search.claims import CLAIMS
from tilth.lab.search.journal import JOURNAL
from tilth.lab.search.search import Search
from tilth.runs.metrics import MAX_LOG_BYTES

LR = "optimizer.lr=1e-4..1e-1"


@pytest.fixture(scope="module")
def base(base):
    return replace(base, steps=2)


@pytest.fixture(scope="module")
def whole(base, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "search"
    Search(base, [LR], folder, trials=1).answer()
    return folder


@pytest.fixture
def folder(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "search")
    return tmp_path / "search"


def change(folder, key, value):
    """Replace the user attribute of this name in every line of the journal that sets it."""
    path = folder / JOURNAL
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    changed = 0
    for line in lines:
        if key in (attributes := line.get("user_attr", {})):
            attributes[key] = value
            changed += 1
    assert changed
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("plan", [], "plan must be a table"),
        ("plan", {"steps": 2}, "the key machine is missing"),
        ("plan", {"steps": 0, "machine": {}, "flops": 1, "seconds": 1}, "plan.steps must be at"),
        (
            "plan",
            {"steps": 10**401, "machine": {}, "flops": 1, "seconds": 1},
            "steps must be at most",
        ),
        ("plan", {"steps": 2, "machine": 3, "flops": 1, "seconds": 1}, "machine must be"),
        ("asked", 3, "asked must be a table"),
        ("values", 3, "values must be a table"),
        ("values", {"optimizer.lt": 3}, "has other values in trial 0 than are searched"),
        ("outcome", {"state": "done"}, "outcome.state must be"),
        ("outcome", {"state": "finished", "bits_per_byte": 1e308}, "bits_per_byte is 1e"),
        ("outcome", {"state": "finished", "steps": {}}, "steps must be a whole number"),
    ],
)
def test_damaged_attributes(base, folder, key, value, said):
    change(folder, key, value)
    with pytest.raises(FileError, match=rf"{JOURNAL} .*{said}"):
        list(Search(base, [LR], folder, trials=2).run())


@pytest.mark.parametrize(
    "line", ["3", "{}", '{"op_code": 99}', '{"op_code": 4, "worker_id": 1}', "{"]
)
def test_damaged_lines(base, folder, line):
    path = folder / JOURNAL
    path.write_text(f"{line}\n" + path.read_text())
    with pytest.raises(FileError, match=f"{JOURNAL} is not the journal of a search"):
        list(Search(base, [LR], folder, trials=2).run())


def test_a_sparse_journal_is_not_read(base, folder):
    os.truncate(folder / JOURNAL, MAX_LOG_BYTES + 1)
    with pytest.raises(FileError, match="more than the limit of 1,073,741,824"):
        list(Search(base, [LR], folder, trials=2).run())


def test_a_pipe_or_a_link_in_place_of_the_journal(base, folder, tmp_path):
    (folder / JOURNAL).unlink()
    os.mkfifo(folder / JOURNAL)
    with pytest.raises(FileError, match=f"{JOURNAL} is a pipe"):
        list(Search(base, [LR], folder, trials=2).run())
    (folder / JOURNAL).unlink()
    (tmp_path / "diary").write_text("dear diary, ")
    (folder / JOURNAL).symlink_to(tmp_path / "diary")
    with pytest.raises(FileError, match=f"{JOURNAL} cannot be locked"):
        list(Search(base, [LR], folder, trials=2).run())
    assert (tmp_path / "diary").read_text() == "dear diary, "


def test_a_lock_file_of_a_killed_process_is_ignored(base, folder, tmp_path):
    """Optuna's own locks would wait 30 s for such a file, or forever for a dangling link."""
    (folder / f"{JOURNAL}.lock").symlink_to(tmp_path / "nowhere")
    assert Search(base, [LR], folder, trials=2).answer().answer.startswith("The best of 2 trials")


def test_claims_are_never_removed_through_a_link(base, folder, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "1").write_text("mine")
    (folder / CLAIMS).rmdir()
    (folder / CLAIMS).symlink_to(tmp_path / "mine")
    with pytest.raises(FileError, match="claims is a symbolic link"):
        list(Search(base, [LR], folder, trials=2).run())
    assert (tmp_path / "mine" / "1").read_text() == "mine"
