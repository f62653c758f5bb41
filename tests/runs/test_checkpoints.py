"""Listing, integrity and removal of checkpoints."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilth.files import FileError, checksum, checksum_of, save_manifest
from tilth.runs.atomic_folders import remove_leftovers
from tilth.runs.checkpoints import (
    LEFTOVER,
    Checkpoint,
    best_checkpoint,
    folder_name,
    list_checkpoints,
    remove,
    remove_old,
)

FILES = ["model.safetensors", "optimizer.safetensors", "state.json"]


def write(run_folder, step, valid_loss=None, **more):
    """Write a checkpoint whose tensor files have arbitrary bytes."""
    folder = run_folder / "checkpoints" / f"step-{step:06}"
    folder.mkdir(parents=True)
    for name in FILES[:2]:
        (folder / name).write_bytes(f"{name} of {step}".encode())
    state = {
        "step": step,
        "valid_loss": valid_loss,
        "guard": {"mean_loss": 1.5},
        "checksums": {name: checksum(folder / name) for name in FILES[:2]},
        **more,
    }
    state["checksum"] = checksum_of(state)
    save_manifest(folder / "state.json", state, kind="checkpoint", version=1)
    return Checkpoint(step, folder)


def names_in(run_folder):
    return sorted(path.name for path in (run_folder / "checkpoints").iterdir())


def steps_of(run_folder):
    return [checkpoint.step for checkpoint in list_checkpoints(run_folder)]


# --- listing --------------------------------------------------------------------------------------


def test_list_is_sorted_by_step(tmp_path):
    assert list_checkpoints(tmp_path) == []
    steps = [5, 1_000_000, 0, 999_999, 40]
    written = {write(tmp_path, step) for step in steps}
    assert steps_of(tmp_path) == sorted(steps)
    assert set(list_checkpoints(tmp_path)) == written
    assert [each.name for each in list_checkpoints(tmp_path)][-2:] == [
        "step-999999",
        "step-1000000",
    ]


def test_folder_names():
    assert [folder_name(step) for step in (0, 500, 999_999, 10**6)] == [
        "step-000000",
        "step-000500",
        "step-999999",
        "step-1000000",
    ]


@pytest.mark.parametrize(
    "name",
    [
        ".step-000007.partial",
        ".step-000007.removed.partial",
        "step-7",
        "step-0000007",
        "step-000007 (copy)",
        "step-000007.bak",
        "step-٠٠٠٠٠٧",
        "step--00007",
        "Step-000007",
        "notes",
    ],
)
def test_other_names_are_not_listed(tmp_path, name):
    whole = write(tmp_path, 7)
    shutil.copytree(whole.folder, whole.folder.with_name(name))
    assert list_checkpoints(tmp_path) == [whole]


def test_files_and_dangling_links_are_not_listed(tmp_path):
    write(tmp_path, 1)
    (tmp_path / "checkpoints" / "step-000002").write_text("a file")
    (tmp_path / "checkpoints" / "step-000003").symlink_to("nowhere")
    assert steps_of(tmp_path) == [1]
    shutil.rmtree(tmp_path / "checkpoints")
    (tmp_path / "checkpoints").write_text("a file")
    assert list_checkpoints(tmp_path) == []


# --- integrity ------------------------------------------------------------------------------------


def test_check_returns_the_state(tmp_path):
    checkpoint = write(tmp_path, 7, 1.5, tokens=56)
    state = checkpoint.check()
    assert (state.step, state.valid_loss, state.tokens) == (7, 1.5, 56)
    assert state == checkpoint.state()


@pytest.mark.parametrize("name", FILES)
def test_every_flipped_or_missing_byte_is_detected(tmp_path, name):
    checkpoint = write(tmp_path, 7, 1.5)
    path = checkpoint.folder / name
    whole = path.read_bytes()
    for place in range(len(whole)):
        changed = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
        cut, more = whole[:place], whole[:place] + b"x" + whole[place:]
        for content in [changed] if place % 9 else [changed, cut, more]:
            path.write_bytes(content)
            with pytest.raises(FileError, match=name):
                checkpoint.check()
    path.write_bytes(whole)
    checkpoint.check()
    path.unlink()
    with pytest.raises(FileError, match=f"{name} does not exist"):
        checkpoint.check()
    path.mkdir()
    with pytest.raises(FileError, match=name):
        checkpoint.check()


def test_tensors_of_another_step_are_rejected(tmp_path):
    one, other = write(tmp_path, 7), write(tmp_path, 8)
    shutil.copy(other.folder / "model.safetensors", one.folder)
    with pytest.raises(FileError, match=r"model.safetensors is damaged; choose another checkpoint"):
        one.check()


def test_renamed_checkpoint_is_rejected(tmp_path):
    folder = write(tmp_path, 7).folder
    (renamed,) = [Checkpoint(900, folder.rename(folder.with_name("step-000900")))]
    assert list_checkpoints(tmp_path) == [renamed]
    with pytest.raises(FileError, match="step-000900 has the state of step 7; restore its name"):
        renamed.check()


def test_read_error_names_the_file(tmp_path):
    if not Path("/proc/self/mem").exists():
        pytest.skip("needs a file whose reading fails")
    checkpoint = write(tmp_path, 7)
    (checkpoint.folder / "optimizer.safetensors").unlink()
    (checkpoint.folder / "optimizer.safetensors").symlink_to("/proc/self/mem")
    problem = r"optimizer.safetensors cannot be read \(Input/output error\); choose another"
    with pytest.raises(FileError, match=problem):
        checkpoint.check()


# --- removal --------------------------------------------------------------------------------------


def test_best_checkpoint(tmp_path):
    assert best_checkpoint([]) is None
    for step, loss in ((1, None), (2, 3.0), (3, 2.0), (4, 2.0), (5, 2.5)):
        write(tmp_path, step, loss)
    checkpoints = list_checkpoints(tmp_path)
    assert best_checkpoint(checkpoints).step == 4, "the newer of equals"
    assert best_checkpoint(checkpoints[:1]) is None
    (checkpoints[3].folder / "state.json").write_text("{")
    assert best_checkpoint(checkpoints).step == 3, "a damaged one is not the best"


@settings(max_examples=40)
@given(
    st.dictionaries(st.integers(1, 12), st.none() | st.sampled_from([1.0, 2.0, 3.0]), max_size=8),
    st.integers(1, 4),
    st.integers(0, 13),
)
def test_remove_old_keeps_the_newest_and_the_best(tmp_path_factory, losses, keep, newest):
    folder = tmp_path_factory.mktemp("run")
    for step, loss in losses.items():
        write(folder, step, loss)
    remove_old(folder, keep, newest)
    steps = sorted(step for step in losses if step <= newest)
    evaluated = [step for step in steps if losses[step] is not None]
    best = [min(evaluated, key=lambda step: (losses[step], -step))] if evaluated else []
    later = [step for step in losses if step > newest]
    assert steps_of(folder) == sorted({*steps[-keep:], *best, *later})
    for checkpoint in list_checkpoints(folder):
        checkpoint.check()
    if losses:
        assert not list((folder / "checkpoints").glob(".*"))


def test_damaged_later_checkpoint_does_not_count(tmp_path):
    """The run skipped its damaged last checkpoint and was stopped before it reached that step."""
    for step, loss in ((10, 3.0), (12, 2.5), (20, 1.0)):
        write(tmp_path, step, loss)
    (tmp_path / "checkpoints" / "step-000020" / "model.safetensors").write_bytes(b"")
    remove_old(tmp_path, keep=1, newest=12)
    assert steps_of(tmp_path) == [12, 20]


def test_removed_checkpoint_is_renamed_first(tmp_path, monkeypatch):
    checkpoint = write(tmp_path, 7)
    seen = []

    def look(path, **_options):
        seen.append((Path(path).name, steps_of(tmp_path)))

    monkeypatch.setattr(shutil, "rmtree", look)
    remove(checkpoint.folder)
    assert seen[-1] == (".step-000007.removed.partial", [])


def test_removing_a_link_keeps_its_target(tmp_path):
    folder = write(tmp_path, 7).folder
    elsewhere = folder.rename(tmp_path / "another disk")
    folder.symlink_to(elsewhere)
    assert steps_of(tmp_path) == [7]
    list_checkpoints(tmp_path)[0].check()
    remove(folder)
    assert names_in(tmp_path) == []
    Checkpoint(7, elsewhere).check()


def test_leftovers_are_removed(tmp_path):
    write(tmp_path, 7)
    folder = tmp_path / "checkpoints"
    for name in (".step-000008.partial", ".step-000001.removed.partial"):
        shutil.copytree(folder / "step-000007", folder / name)
    (folder / ".step-000003.removed.partial").symlink_to("nowhere")
    (folder / "notes.partial").mkdir()
    (folder / ".step-notes.partial").mkdir()
    (folder / ".my.partial").mkdir()
    remove_leftovers(tmp_path / "checkpoints", LEFTOVER)
    kept = [".my.partial", ".step-notes.partial", "notes.partial", "step-000007"]
    assert names_in(tmp_path) == kept
    remove_leftovers(tmp_path / "missing", LEFTOVER)


def test_remove_replaces_an_old_leftover(tmp_path):
    folder = write(tmp_path, 7).folder
    shutil.copytree(folder, folder.with_name(".step-000007.removed.partial"))
    remove(folder)
    assert names_in(tmp_path) == []


def test_failed_deletion_is_ignored(tmp_path, monkeypatch):
    """For example, in a write-protected folder."""
    for step in (1, 2, 3):
        write(tmp_path, step)

    def refuse(*_arguments, **_options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "unlink", refuse)
    monkeypatch.setattr(os, "rmdir", refuse)
    remove_old(tmp_path, keep=1, newest=3)
    remove_leftovers(tmp_path / "checkpoints", LEFTOVER)
    assert steps_of(tmp_path) == [3]
    monkeypatch.undo()
    remove_leftovers(tmp_path / "checkpoints", LEFTOVER)
    assert names_in(tmp_path) == ["step-000003"]
