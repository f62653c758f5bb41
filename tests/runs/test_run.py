"""Run directories: creation, opening, verification and locking."""

import errno
import fcntl
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from tilth.files import FileError
from tilth.runs import open_run
from tilth.runs import run as run_module
from tilth.runs.checkpoints import Checkpoint
from tilth.runs.metrics import Log, StepRecord
from tilth.runs.run import check_run_folder, create_run, last_job, verify_run, versions

RECORD = StepRecord(1, 256, 0.5, 4.0, 1e-3, 0.5, 512.0, 0.7)
FILES = {"README.md", "checkpoints", "config.toml", "manifest.json", "tokenizer.json"}


def names_in(folder):
    return {path.name for path in folder.iterdir()}


# --- creation -------------------------------------------------------------------------------------


def test_new_run_is_complete(make_run, config, tokenizer, tmp_path):
    run = make_run()
    assert names_in(tmp_path) == {"run"}
    assert names_in(run.folder) == FILES
    assert run.config == config
    assert run == open_run(run.folder) == open_run(str(run.folder))
    assert run.tokenizer() == tokenizer
    assert (run.metrics(), run.samples(), run.checkpoints()) == ([], [], [])
    with pytest.raises(FileError, match="has no checkpoint yet; train it first"):
        run.checkpoint()
    assert (run.is_finished, run.is_running) == (False, False)
    assert run.manifest.data_fingerprint == "d" * 64
    assert run.manifest.tokenizer_fingerprint == tokenizer.fingerprint
    assert run.manifest.versions == versions()
    assert {name for name, problem in verify_run(run) if problem} == set()


def test_config_is_plain_toml(make_run, config):
    values = tomllib.loads((make_run().folder / "config.toml").read_text())
    assert values["optimizer"]["lr"] == config.optimizer.lr
    assert values["model"]["d_model"] == 16
    assert "budget_seconds" not in values


def test_readme_names_every_file(make_run):
    run = make_run("first")
    text = (run.folder / "README.md").read_text()
    assert text.startswith("# first\n")
    written = {each.split("/")[0] for each in re.findall(r"^\| `([^`]+)`", text, re.MULTILINE)}
    with run.locked():
        pass
    assert written == names_in(run.folder) - {"README.md"} | {"metrics.jsonl", "samples.jsonl"}
    assert "100 steps of\n256 tokens" in text


@pytest.mark.parametrize(
    "name", ["Läufe 走る 😀", "走" * 85, "a b'c\"d", "-x", "a.b..", "r\udcff", "%s{}"]
)
def test_unusual_run_names(make_run, name):
    run = make_run(name)
    assert open_run(run.folder) == run
    assert names_in(run.folder.parent) == {name}
    assert (run.folder / "README.md").read_text().startswith("# ")


def test_parents_are_created_and_an_empty_folder_is_used(make_run, tmp_path):
    make_run("a/b/c")
    (tmp_path / "empty").mkdir()
    make_run("empty")
    assert names_in(tmp_path / "empty") == FILES


def test_symlink_to_the_run_is_followed(make_run, tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "run").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "run")
    (tmp_path / "new").symlink_to(tmp_path / "disk" / "new")
    for name, real in (("link", "run"), ("new", "new")):
        make_run(name)
        assert (tmp_path / name).is_symlink()
        assert names_in(tmp_path / "disk" / real) == FILES
    assert names_in(tmp_path) == {"disk", "link", "new"}


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda path: path.write_text("mine"), "is a file; name a new folder."),
        (lambda path: (path / "notes").mkdir(parents=True), "is not empty; name a new folder"),
        (lambda path: (path / ".git").mkdir(parents=True), "is not empty; name a new folder"),
    ],
)
def test_existing_files_are_not_overwritten(make_run, tmp_path, make, sentence):
    make(tmp_path / "run")
    with pytest.raises(FileExistsError) as caught:
        make_run()
    assert f"{tmp_path / 'run'} {sentence}" in str(caught.value)
    assert names_in(tmp_path) == {"run"}


def test_existing_run_is_not_overwritten(make_run, tmp_path):
    make_run()
    with pytest.raises(
        FileExistsError, match=r"is a run already; continue it with `tilth resume .*run`"
    ):
        make_run()


@pytest.mark.parametrize("name", [".", "", "../here"])
def test_current_folder_is_not_replaced(tmp_path, monkeypatch, config, tokenizer, name):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(FileExistsError, match="is the current folder; name a new one"):
        create_run(name, config, tokenizer, "d" * 64)
    assert names_in(tmp_path) == {"here"}
    check_run_folder(Path("below"))


def test_folder_created_concurrently_is_not_replaced(make_run, tmp_path, monkeypatch):
    def versions_and_another_run():
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "config.toml").write_text("of another process")
        return versions()

    monkeypatch.setattr(run_module, "versions", versions_and_another_run)
    with pytest.raises(OSError, match=r"cannot create the run .*run .*not empty"):
        make_run()
    assert (tmp_path / "run" / "config.toml").read_text() == "of another process"
    assert names_in(tmp_path) == {"run"}


def test_full_disk_leaves_nothing(make_run, tmp_path):
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, usual[1]))
    try:
        with pytest.raises(OSError, match=r"^cannot create the run .*/run \(.*File too large"):
            make_run()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert names_in(tmp_path) == set()


def test_only_leftovers_of_dead_processes_are_removed(make_run, tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    init = ".run.1.partial"  # of a process that lives
    gone = [f".run.{ended.pid}.partial", f".run.{os.getpid()}.partial"]
    others = [".run.backup.partial", ".run.0123456789abcdef.partial", f".runs.{ended.pid}.partial"]
    for name in [init, *gone, *others]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.toml").write_text("half")
    others.append(".run.999999999.partial")
    (tmp_path / others[-1]).write_text("a file of the user's")
    make_run()
    assert names_in(tmp_path) == {"run", init, *others}


def test_leftover_link_of_another_user_is_ignored(make_run, tmp_path, monkeypatch):
    """In a folder with the sticky bit, such as /tmp, only its owner may remove it."""
    link = tmp_path / ".run.999999999.partial"
    link.symlink_to("nowhere")
    unlink = Path.unlink

    def unlink_own(path, *args, **options):
        if path == link:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        unlink(path, *args, **options)

    monkeypatch.setattr(Path, "unlink", unlink_own)
    make_run()
    assert names_in(tmp_path) == {"run", link.name}


WITHOUT_PRIVILEGES = """
import os, sys
from tilth.config.model import ModelConfig
from tilth.config.training import TrainingConfig
from tilth.runs.run import create_run, open_run
from tilth.tokenizer import train_tokenizer
import tilth.tokenizer.formats
tokenizer = train_tokenizer(texts=["the cat"], vocab_size=258)
model = ModelConfig(258, context_length=8, d_model=16, num_layers=1, num_heads=2)
config = TrainingConfig("data", model, steps=9).resolve(
    device="cpu", dtype="float32", compile=False, threads=1
)
folder = sys.argv[1]
os.umask(0)
create_run(folder + "/readable", config, tokenizer, "d" * 64)
os.chmod(folder, 0o555)
if os.getuid() == 0:
    try:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    except OSError:
        print("cannot drop privileges")
        sys.exit()
open_run(folder + "/readable").checkpoints()
try:
    create_run(folder + "/run", config, tokenizer, "d" * 64)
except OSError as error:
    print(error)
"""


def test_read_only_parent_is_reported():
    # Not in tmp_path, whose parents only their owner may enter.
    with tempfile.TemporaryDirectory() as folder:
        program = [sys.executable, "-c", WITHOUT_PRIVILEGES, folder]
        done = subprocess.run(program, capture_output=True, text=True, check=True)
        assert names_in(Path(folder)) == {"readable"}
        Path(folder).chmod(0o755)
    if done.stdout.startswith("cannot drop"):
        pytest.skip(done.stdout)
    assert re.fullmatch(
        r"cannot create the run .*/run \(Permission denied\); check its name, and .*\n", done.stdout
    )


# --- opening --------------------------------------------------------------------------------------


def test_moved_run_opens(make_run, tmp_path):
    run = make_run()
    with Log(run.folder / "metrics.jsonl") as log:
        log.append(RECORD.to_dict())
    moved = open_run(shutil.move(run.folder, tmp_path / "elsewhere"))
    assert (moved.config, moved.manifest) == (run.config, run.manifest)
    assert moved.metrics() == [RECORD]
    assert not [problem for _, problem in verify_run(moved) if problem]
    assert str(run.folder) not in (tmp_path / "elsewhere" / "config.toml").read_text()


@pytest.mark.parametrize(
    ("file", "content", "sentence"),
    [
        ("config.toml", None, r"run is not a run \(it has no config.toml\); name a folder that"),
        ("config.toml", b"steps = [", r"config.toml is not TOML \(.*\); correct it"),
        ("config.toml", b"\xff\xfe", r"config.toml is not TOML \('utf-8'"),
        ("config.toml", b"", r"config.toml is not a training config \(the key data is missing"),
        ("config.toml", b"x = " + b"[" * 100_000, r"config.toml is not TOML"),
        ("manifest.json", None, "manifest.json does not exist"),
        ("manifest.json", b'{"format": "run", "ver', "manifest.json is truncated"),
        ("manifest.json", b'{"format": "data", "version": 1}', "is a 'data' manifest, not a 'run'"),
        ("manifest.json", b'{"format": "run", "version": 2}', "newer tilth .*upgrade tilth"),
        (
            "manifest.json",
            b'{"format": "run", "version": 1}',
            "the key data_fingerprint is missing",
        ),
    ],
)
def test_damaged_file_is_named(make_run, file, content, sentence):
    folder = make_run().folder
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_bytes(content)
    with pytest.raises(FileError, match=sentence) as caught:
        open_run(folder)
    assert "\n" not in str(caught.value)


def test_other_folders_are_rejected(tmp_path):
    for path in (tmp_path, tmp_path / "missing", "", "\0"):
        with pytest.raises(FileError, match="is not a run"):
            open_run(path)


@pytest.mark.parametrize(
    ("line", "instead", "sentence"),
    [
        ("steps = 100", "", "config.toml has no steps; restore it"),
        ("steps = 100", "budget_seconds = 60.0", "has no steps"),
        ("steps = 100", "stesp = 100", r"\('stesp' is not a key of .*did you mean steps\?\)"),
        ("threads = 1", "", "config.toml has no machine.threads; restore it"),
        ("save_every = 20", "", "config.toml has no watch.save_every; restore it"),
        ("min_lr = 1e-05", "", "config.toml has no optimizer.min_lr; restore it"),
        ("d_model = 16", 'd_model = "16"', "d_model must be a whole number, not '16'"),
        ("lr = 0.001", "lr = nan", "optimizer.lr is nan; it must be finite"),
    ],
)
def test_invalid_config_edits_are_rejected(make_run, line, instead, sentence):
    folder = make_run().folder
    text = (folder / "config.toml").read_text()
    assert f"\n{line}\n" in text
    (folder / "config.toml").write_text(text.replace(f"\n{line}\n", f"\n{instead}\n", 1))
    with pytest.raises(FileError, match=sentence):
        open_run(folder)


def test_changed_tokenizer_is_rejected(make_run, tmp_path):
    run = make_run()
    path = run.folder / "tokenizer.json"
    whole = path.read_bytes()
    path.write_bytes(whole + b"\n")  # the same tokenizer, in other bytes
    run.tokenizer()
    assert dict(verify_run(run))["tokenizer.json"] == (f"{path} was changed; restore a copy")
    content = json.loads(whole)
    content["model"]["merges"] = content["model"]["merges"][:-1]
    content["model"]["vocab"].popitem()
    path.write_text(json.dumps(content))
    with pytest.raises(
        FileError, match="is not the tokenizer that the run was trained with; restore"
    ):
        run.tokenizer()
    assert "trained with" in dict(verify_run(run))["tokenizer.json"]
    path.unlink()
    assert "does not exist" in dict(verify_run(run))["tokenizer.json"]


def test_newest_checkpoint_without_evaluations(make_run):
    run = make_run()
    for step in (20, 40):
        (run.folder / "checkpoints" / f"step-{step:06}").mkdir()
    assert run.checkpoint().step == 40
    assert not run.is_finished
    (run.folder / "checkpoints" / "step-000100").mkdir()
    assert run.is_finished


def test_config_is_not_written_through_a_link(make_run, tmp_path):
    run = make_run()
    outside = tmp_path / "mine.toml"
    config = run.folder / "config.toml"
    config.rename(outside)
    config.symlink_to(outside)
    before = outside.read_bytes()
    with pytest.raises(FileError, match=r"config\.toml is a symbolic link; replace it by a copy"):
        run.save_config(replace(run.config, steps=200))
    assert outside.read_bytes() == before


def test_next_checkpoint_is_read_if_one_is_removed_meanwhile(make_run, monkeypatch):
    run = make_run()
    checkpoints = run.folder / "checkpoints"
    (checkpoints / "step-000020").mkdir()

    def read(checkpoint, config):
        assert config == run.config.model
        if checkpoint.step == 20:  # a training goes on meanwhile
            (checkpoints / "step-000040").mkdir()
            checkpoint.folder.rmdir()
            raise FileError(checkpoint.folder, "does not exist", "look again")
        return {"step": checkpoint.step}

    monkeypatch.setattr(Checkpoint, "weights", read)
    assert run.weights() == (run.checkpoint(40), {"step": 40})
    with pytest.raises(FileError, match="has no checkpoint of step 20"):
        run.weights(step=20)

    def damaged(checkpoint, _config):
        raise FileError(checkpoint.folder, "is damaged", "take another")

    monkeypatch.setattr(Checkpoint, "weights", damaged)
    with pytest.raises(FileError, match="is damaged"):
        run.weights()


def test_verify_names_each_file(make_run):
    run = make_run()
    (run.folder / "checkpoints" / "step-000020").mkdir()
    (run.folder / "metrics.jsonl").write_bytes(b'{"step": 1}\n\n{"step": 2}\n')
    (run.folder / "samples.jsonl").write_bytes(b'{"step": 1}\n{"st')
    found = dict(verify_run(run))
    assert list(found) == [
        "config.toml",
        "tokenizer.json",
        "metrics.jsonl",
        "samples.jsonl",
        "checkpoints/step-000020",
    ]
    assert found["tokenizer.json"] is found["samples.jsonl"] is None
    assert "damaged line 1 (the key tokens is missing" in found["metrics.jsonl"]
    assert "state.json does not exist" in found["checkpoints/step-000020"]


def test_verify_skips_checkpoints_removed_meanwhile(make_run):
    run = make_run()
    for step in (20, 40):
        (run.folder / "checkpoints" / f"step-{step:06}").mkdir()
    parts = verify_run(run)
    next(parts)
    (run.folder / "checkpoints" / "step-000020").rmdir()
    assert [name for name, _ in parts][2:] == ["checkpoints/step-000040"]


def test_verify_reports_missing_steps_and_checkpoints(make_run):
    run = make_run()
    metrics = run.folder / "metrics.jsonl"
    assert "samples.jsonl" not in dict(verify_run(run))
    second = replace(RECORD, step=2)
    with Log(metrics) as log:
        log.append(RECORD.to_dict())
        log.append(replace(second, saved="step-000002").to_dict())
    problem = "is empty, but metrics.jsonl names step-000002; restore a copy, or"
    assert problem in dict(verify_run(run))["metrics.jsonl"]
    with run.locked():  # it may be on its way to the disk
        assert dict(verify_run(run))["metrics.jsonl"] is None
    (run.folder / "checkpoints" / "step-000002").mkdir()
    assert dict(verify_run(run))["metrics.jsonl"] is None
    metrics.write_text(json.dumps(second.to_dict()) + "\n")
    assert "metrics.jsonl has no step 1; restore" in dict(verify_run(run))["metrics.jsonl"]
    metrics.unlink()
    assert "metrics.jsonl has no step 1; restore" in dict(verify_run(run))["metrics.jsonl"]


def test_save_config_replaces_the_config(make_run, config):
    run = make_run()
    longer = replace(config, steps=200)
    assert run.save_config(longer).config == longer
    assert open_run(run.folder).config == longer
    assert names_in(run.folder) == FILES


def test_save_config_does_not_write_through_a_link(make_run, config, tmp_path):
    """In an untrusted run, the README may link to a file of the user."""
    run, own = make_run(), tmp_path / "own"
    own.write_text("mine")
    (run.folder / "README.md").unlink()
    (run.folder / "README.md").symlink_to(own)
    run.save_config(replace(config, steps=200))
    assert own.read_text() == "mine"
    assert "200 steps" in (run.folder / "README.md").read_text()


def test_symlinked_lock_is_rejected(make_run, tmp_path):
    run = make_run()
    (run.folder / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileError, match="lock cannot be locked"), run.locked():
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_huge_config_is_not_read(make_run):
    run = make_run()
    with (run.folder / "config.toml").open("ab") as file:
        file.truncate(1 << 33)  # sparse
    with pytest.raises(FileError, match=r"config.toml has 8,589,934,592 bytes, more than"):
        open_run(run.folder)


def test_reading_a_run_does_not_import_torch(make_run):
    run = make_run()
    with Log(run.folder / "metrics.jsonl") as log:
        log.append(RECORD.to_dict())
    program = (
        "import sys, tilth\n"
        f"run = tilth.open_run({str(run.folder)!r})\n"
        "assert run.metrics() and not run.samples() and not run.checkpoints()\n"
        "assert not run.is_running and not run.is_finished and run.tokenizer()\n"
        "from tilth.runs.run import verify_run\n"
        "assert not [problem for _, problem in verify_run(run) if problem]\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


# --- locking --------------------------------------------------------------------------------------

HOLDER = """
import sys, time
from tilth.runs import open_run
from tilth.runs import run as run_module
with open_run(sys.argv[1]).locked():
    print("locked", flush=True)
    time.sleep(60)
"""


def test_lock_excludes_other_processes(make_run):
    run = make_run()
    other = subprocess.Popen([sys.executable, "-c", HOLDER, run.folder], stdout=subprocess.PIPE)
    try:
        assert other.stdout.readline() == b"locked\n"
        assert run.is_running
        sentence = f"Another process is training {run.folder}; wait for it, or stop it."
        with pytest.raises(ValueError, match=re.escape(sentence)), run.locked():
            pytest.fail("both hold it")
        other.send_signal(signal.SIGKILL)
        other.wait()
    finally:
        other.kill()
        other.wait()
        other.stdout.close()
    assert not run.is_running, "the lock of a killed process goes with it"
    with run.locked():
        assert run.is_running
        with pytest.raises(ValueError, match="Another process"), run.locked():
            pytest.fail("held twice")
    assert not run.is_running


def test_the_last_job(make_run):
    run = make_run()
    assert last_job(run.folder) == ""
    for job in ("elastic-2026", "17", "17", ""):
        with run.locked(job):
            assert last_job(run.folder) == job
        with run.locked():
            pass
        assert last_job(run.folder) == job


def test_is_running_does_not_prevent_locking(make_run):
    run = make_run()
    with run.locked():
        pass
    with (run.folder / "lock").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)  # in the midst of `is_running`
        threading.Timer(0.1, lambda: fcntl.flock(file, fcntl.LOCK_UN)).start()
        with run.locked():
            assert run.is_running


@pytest.mark.parametrize(
    "name",
    ["config.toml", "manifest.json", "tokenizer.json", "metrics.jsonl", "samples.jsonl", "lock"]
    + [f"checkpoints/step-000007/{name}" for name in ("model.safetensors", "state.json")],
)
def test_pipe_in_a_run_does_not_block(make_run, name):
    run = make_run()
    path = run.folder / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    began = time.monotonic()
    with pytest.raises((ValueError, OSError)):  # noqa: PT012, one of them meets it
        opened = open_run(run.folder)
        problems = [problem for _, problem in verify_run(opened) if problem]
        if problems:
            raise ValueError(problems[0])
        with opened.locked():
            pytest.fail("it was locked")
    assert time.monotonic() - began < 5
