"""Tests of tilth.files: what is on disk after every way a write can end, and strict manifests."""

import errno
import fcntl
import gc
import hashlib
import io
import json
import os
import pickle
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilth import files
from tilth.files import (
    FileError,
    atomic_write,
    checked,
    checksum,
    load_manifest,
    open_regular,
    read_bytes,
    read_toml,
    save_manifest,
    write_text_atomically,
)
from tilth.schema import FileName, Range

OLD, NEW = b"the old content", b"the new content" * 10_000


def write(path, data=NEW, *, overwrite=True, and_then=lambda: None):
    with atomic_write(path, overwrite=overwrite) as file:
        file.write(data)
        and_then()


def throw(error):
    raise error


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def leftovers(folder):
    return [name for name in names(folder) if name.endswith(".partial")]


def assert_one_sentence(error, path):
    text = str(error)
    assert str(path) in text
    assert "; " in text, "no hint"
    assert not any(noise in text for noise in ("\n", "[Errno", ".partial")), text


def start_child(script, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(Path(files.__file__).parents[1])}
    command = [sys.executable, "-c", script, *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True)


def run_child(script, *arguments):
    """The JSON that a script prints."""
    with start_child(script, *arguments) as process:
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return json.loads(output)


WAITING_WRITER = """
import sys
from tilth.files import atomic_write
with atomic_write(sys.argv[1], overwrite=True) as file:
    file.write(b"part of it")
    if sys.argv[2] == "flushed":
        file.flush()
    print("ready", flush=True)
    sys.stdin.readline()
    file.write(b" and the rest")
"""


@contextmanager
def waiting_writer(path, state="flushed"):
    """Another process in the middle of a write to `path`; killed at the latest when this ends."""
    with start_child(WAITING_WRITER, path, state) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def abandon(path):
    """Leave behind what a killed writer leaves; return its name."""
    before = set(names(path.parent))
    with waiting_writer(path) as process:
        process.kill()
        process.wait()
    (leftover,) = set(names(path.parent)) - before
    return leftover


# --- Writing a file -------------------------------------------------------------------------------


def test_importing_is_light():
    heavy = "import json, sys, tilth.files; print(json.dumps([*sys.modules]))"
    assert not {"torch", "numpy"} & set(run_child(heavy))


def test_a_file_appears_at_the_end_and_whole(tmp_path):
    path = tmp_path / "file"
    with atomic_write(path) as file:
        file.write(NEW)
        file.flush()
        assert not path.exists()
        (temporary,) = names(tmp_path)
        assert temporary.startswith(".file.")
        assert temporary.endswith(".partial")
    assert path.read_bytes() == NEW
    assert names(tmp_path) == ["file"]
    assert path.stat().st_nlink == 1


def test_the_old_file_remains_until_the_rename(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(OLD)
    with atomic_write(str(path), overwrite=True) as file:
        file.write(NEW)
        file.flush()
        assert path.read_bytes() == OLD
    assert path.read_bytes() == NEW
    assert names(tmp_path) == ["file"]


def test_text_is_utf8_with_its_own_line_ends(tmp_path):
    write_text_atomically(tmp_path / "text", "Grüße\r\nen\n")
    assert (tmp_path / "text").read_bytes() == b"Gr\xc3\xbc\xc3\x9fe\r\nen\n"
    with pytest.raises(FileExistsError):
        write_text_atomically(tmp_path / "text", "")
    with pytest.raises(UnicodeEncodeError):
        write_text_atomically(tmp_path / "other", "\ud800")
    assert names(tmp_path) == ["text"]


def test_the_file_can_seek_back_and_be_closed_in_the_block(tmp_path):
    path = tmp_path / "file"
    with atomic_write(path) as file:
        file.write(b"....body")
        file.seek(0)
        file.write(b"head")
        file.close()
        write(path, b"of another writer, who must not take the closed file for a leftover")
        assert len(leftovers(tmp_path)) == 1
        path.unlink()
    assert path.read_bytes() == b"headbody"
    assert names(tmp_path) == ["file"]


def test_the_working_folder_may_change_in_the_block(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with atomic_write("file") as file:
        monkeypatch.chdir("elsewhere")
        file.write(NEW)
    assert (tmp_path / "file").read_bytes() == NEW
    assert names(tmp_path / "elsewhere") == []


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o022, 0o077])
def test_the_umask_decides_the_permissions(tmp_path, mask):
    before = os.umask(mask)
    try:
        write(tmp_path / "file")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o666 & ~mask


@pytest.mark.parametrize("data", [b"fits into the buffer", NEW], ids=["buffered", "large"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_the_file_is_synced_before_it_is_named_and_the_folder_after(
    tmp_path, monkeypatch, overwrite, data
):
    path = tmp_path / "file"
    events = []

    def recorded(name, real):
        def call(*arguments, **options):
            event = name
            if name == "fsync":
                status = os.fstat(arguments[0])
                is_folder = os.path.samestat(status, tmp_path.stat())
                event = "sync the folder" if is_folder else f"sync {status.st_size} bytes"
            events.append(event)
            return real(*arguments, **options)

        return call

    for name in ("fsync", "rename", "link", "unlink"):
        monkeypatch.setattr(os, name, recorded(name, getattr(os, name)))
    write(path, data, overwrite=overwrite)
    named = ["rename"] if overwrite else ["link", "unlink"]
    whole = [f"sync {len(data)} bytes", *named, "sync the folder"]
    assert events[: len(whole)] == whole
    assert set(events[len(whole) :]) <= {"unlink"}


# --- Rejected targets -----------------------------------------------------------------------------


def test_an_existing_file_is_refused(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(OLD)
    with pytest.raises(FileExistsError, match="--overwrite") as caught, atomic_write(path):
        pytest.fail("the block must not begin")
    assert_one_sentence(caught.value, path)
    assert path.read_bytes() == OLD
    assert names(tmp_path) == ["file"]


def test_a_missing_folder_is_named_and_not_made(tmp_path):
    path = tmp_path / "missing" / "file"
    with pytest.raises(FileNotFoundError, match="does not exist") as caught:
        write(path)
    assert_one_sentence(caught.value, path.parent)
    assert names(tmp_path) == []


def test_a_folder_or_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, kind in ((tmp_path, "a folder"), (tmp_path / "pipe", "a device or pipe")):
        with pytest.raises(OSError, match=f"because it is {kind}") as caught, atomic_write(path):
            pytest.fail("the block must not begin")
        assert_one_sentence(caught.value, path)
    assert names(tmp_path) == ["pipe"]
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


@pytest.mark.parametrize("name", ["x" * 256, "file/inside a file"])
def test_an_impossible_name_is_refused_before_the_work(tmp_path, name):
    (tmp_path / "file").write_bytes(OLD)
    with pytest.raises(OSError, match="cannot write") as caught, atomic_write(tmp_path / name):
        pytest.fail("the block must not begin")
    assert_one_sentence(caught.value, tmp_path / name)
    assert names(tmp_path) == ["file"]


# --- Exceptions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x"),
        OSError("x"),
        FileNotFoundError(2, "x", "y"),
        ConnectionResetError(104, "x"),
        OSError(errno.ENOSPC, "x", "another file"),
        StopIteration(),
        GeneratorExit(),
        SystemExit(3),
        KeyboardInterrupt(),
    ],
    ids=repr,
)
@pytest.mark.parametrize("exists", [False, True])
def test_an_exception_leaves_what_was_there(tmp_path, error, exists):
    path = tmp_path / "file"
    if exists:
        path.write_bytes(OLD)
    with pytest.raises(type(error)) as caught:
        write(path, overwrite=exists, and_then=lambda: throw(error))
    assert caught.value is error
    assert names(tmp_path) == (["file"] if exists else [])
    assert not exists or path.read_bytes() == OLD


def test_control_c_leaves_what_was_there(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(OLD)
    # A job that a script started with & has SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            write(path, and_then=lambda: signal.raise_signal(signal.SIGINT))
    finally:
        signal.signal(signal.SIGINT, before)
    assert path.read_bytes() == OLD
    assert names(tmp_path) == ["file"]


def test_nested_writes_and_nested_exceptions(tmp_path):
    outer, inner = tmp_path / "outer", tmp_path / "inner"

    def fail_inside():
        try:
            write(inner, and_then=lambda: throw(ValueError("first")))
        except ValueError as error:
            write(inner, OLD)
            raise RuntimeError("second") from error

    with pytest.raises(RuntimeError, match="second") as caught:
        write(outer, and_then=fail_inside)
    assert str(caught.value.__cause__) == "first"
    assert names(tmp_path) == ["inner"]
    assert inner.read_bytes() == OLD


def test_bytes_left_in_the_buffer_do_not_reach_the_next_file(tmp_path):
    writing = atomic_write(tmp_path / "file")
    file = writing.__enter__()
    file.write(b"left in the buffer")
    descriptor = file.fileno()
    error = ValueError("stop")
    assert not writing.__exit__(ValueError, error, None)
    with (tmp_path / "innocent").open("wb") as innocent:
        assert innocent.fileno() == descriptor
        assert file.closed
        del file
        gc.collect()
    assert (tmp_path / "innocent").read_bytes() == b""


@pytest.mark.parametrize("failing", ["file", "folder"])
def test_a_failing_sync_is_reported(tmp_path, monkeypatch, failing):
    path = tmp_path / "file"
    path.write_bytes(OLD)
    real = os.fsync

    def fsync(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode) == (failing == "folder"):
            raise OSError(errno.EIO, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="Input/output error") as caught:
        write(path)
    assert caught.value.errno == errno.EIO
    assert_one_sentence(caught.value, path)
    assert path.read_bytes() == (OLD if failing == "file" else NEW)
    assert names(tmp_path) == ["file"]


# --- Publication, and concurrent writers ----------------------------------------------------------


def test_a_file_that_appears_meanwhile_is_not_replaced(tmp_path):
    path = tmp_path / "file"
    with pytest.raises(FileExistsError, match="--overwrite") as caught:
        write(path, overwrite=False, and_then=lambda: path.write_bytes(OLD))
    assert_one_sentence(caught.value, path)
    assert path.read_bytes() == OLD
    assert names(tmp_path) == ["file"]


def test_a_file_that_appears_at_the_last_moment_is_not_replaced(tmp_path, monkeypatch):
    path = tmp_path / "file"

    def after_a_rival(real):
        def call(*arguments, **options):
            path.write_bytes(OLD)
            return real(*arguments, **options)

        return call

    for name in ("link", "rename", "replace"):
        monkeypatch.setattr(os, name, after_a_rival(getattr(os, name)))
    with pytest.raises(FileExistsError, match="--overwrite"):
        write(path, overwrite=False)
    assert path.read_bytes() == OLD
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("code", [errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.EMLINK])
def test_a_file_system_without_hard_links(tmp_path, monkeypatch, code):
    def link(*_arguments, **_options):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", link)
    path, raced = tmp_path / "file", tmp_path / "raced"
    write(path, overwrite=False)
    assert path.read_bytes() == NEW
    with pytest.raises(FileExistsError, match="--overwrite"):
        write(raced, overwrite=False, and_then=lambda: raced.write_bytes(OLD))
    assert raced.read_bytes() == OLD
    assert names(tmp_path) == ["file", "raced"]


def test_a_file_system_without_locks_or_folder_syncs(tmp_path, monkeypatch):
    real = os.fsync

    def fsync(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        real(descriptor)

    def flock(*_arguments):
        raise OSError(errno.ENOLCK, "No locks available")

    leftover = abandon(tmp_path / "file")
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(fcntl, "flock", flock)
    write(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == NEW
    # Without locks nobody can know that its writer is dead.
    assert names(tmp_path) == [leftover, "file"]


def test_of_many_writers_without_overwrite_one_wins(tmp_path):
    path = tmp_path / "file"
    barrier = threading.Barrier(8)
    won, refused = [], []

    def compete(number):
        try:
            with atomic_write(path) as file:
                file.write(bytes([number]) * 1000)
                barrier.wait(30)
            won.append(number)
        except FileExistsError:
            refused.append(number)

    run_threads(compete, 8)
    assert len(won) == 1
    assert len(refused) == 7
    assert path.read_bytes() == bytes(won) * 1000
    assert names(tmp_path) == ["file"]


def test_many_writers_with_overwrite_all_succeed(tmp_path):
    path = tmp_path / "file"
    finished = []

    def compete(number):
        for _ in range(25):
            write(path, bytes([number]) * 1000)
            content = path.read_bytes()
            assert content == content[:1] * 1000
        finished.append(number)

    run_threads(compete, 4)
    assert sorted(finished) == [0, 1, 2, 3]
    assert names(tmp_path) == ["file"]


def run_threads(function, count):
    threads = [threading.Thread(target=function, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_writer_whose_file_is_swept_before_its_lock_begins_again(tmp_path, monkeypatch):
    path = tmp_path / "file"
    real = fcntl.flock
    swept = []

    def flock(descriptor, operation):
        monkeypatch.setattr(fcntl, "flock", real)
        swept.extend(leftovers(tmp_path))
        write(path, OLD)  # a whole other writer, between the creation and the lock of the first
        assert leftovers(tmp_path) == []
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    write(path, NEW)
    assert len(swept) == 1
    assert path.read_bytes() == NEW
    assert names(tmp_path) == ["file"]


# --- Killed writers -------------------------------------------------------------------------------

KILLED_AT_EVERY_LINE = """
import json, os, signal, sys
from pathlib import Path
from tilth import files

path, overwrite = Path(sys.argv[1]), sys.argv[2] == "True"

def write():
    with files.atomic_write(path, overwrite=overwrite) as file:
        file.write(b"a" * 5000)
        file.write(b"b" * 100_000)
        file.write(b"c" * 5000)

def kill_at(moment):
    lines = 0
    def trace(frame, event, _argument):
        nonlocal lines
        if frame.f_code.co_filename not in (files.__file__, "<string>"):
            return None
        lines += event == "line"
        if lines == moment:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace
    sys.settrace(trace)

records = []
for moment in range(1, 1000):
    if overwrite:
        path.write_bytes(b"old")
    else:
        path.unlink(missing_ok=True)
    process = os.fork()
    if process == 0:
        kill_at(moment)
        write()
        os._exit(0)
    _, status = os.waitpid(process, 0)
    if os.WIFEXITED(status):
        break
    content = files.checksum(path) if path.exists() else None
    left = sorted(set(os.listdir(path.parent)) - {path.name})
    with files.atomic_write(path, overwrite=True) as file:
        file.write(b"next")
    records.append([content, left, sorted(os.listdir(path.parent))])
assert os.WEXITSTATUS(status) == 0
print(json.dumps(records))
"""


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_writer_killed_at_any_line_leaves_the_old_file_or_the_new(tmp_path, overwrite):
    records = run_child(KILLED_AT_EVERY_LINE, tmp_path / "file", overwrite)
    old = hashlib.sha256(b"old").hexdigest() if overwrite else None
    new = hashlib.sha256(b"a" * 5000 + b"b" * 100_000 + b"c" * 5000).hexdigest()
    contents = [content for content, _, _ in records]
    published = contents.index(new)
    # Old up to one moment and new ever after: there is no third state.
    assert contents == [old] * published + [new] * (len(contents) - published)
    assert published > 20
    # The test is worth something only if kills do leave files behind, at most one each.
    assert sum(len(left) for _, left, _ in records) > 10
    assert max(len(left) for _, left, _ in records) == 1
    assert all(after == ["file"] for _, _, after in records)


@pytest.mark.parametrize("state", ["buffered", "flushed"])
def test_a_writer_killed_while_it_waits(tmp_path, state):
    path = tmp_path / "file"
    path.write_bytes(OLD)
    with waiting_writer(path, state) as process:
        process.kill()
        assert process.wait() == -signal.SIGKILL
    assert path.read_bytes() == OLD
    assert len(leftovers(tmp_path)) == 1
    write(path)
    assert path.read_bytes() == NEW
    assert names(tmp_path) == ["file"]


def test_a_living_writer_keeps_its_temporary_file(tmp_path):
    path = tmp_path / "file"
    with waiting_writer(path) as process:
        before = leftovers(tmp_path)
        write(path)
        assert leftovers(tmp_path) == before != []
        assert path.read_bytes() == NEW
        process.communicate("\n", timeout=30)
    assert process.returncode == 0
    assert path.read_bytes() == b"part of it and the rest"
    assert names(tmp_path) == ["file"]


BUSY_WRITER = """
import sys
from tilth.files import atomic_write
print("ready", flush=True)
while True:
    for letter in b"AB":
        with atomic_write(sys.argv[1], overwrite=True) as file:
            for _ in range(100):
                file.write(bytes([letter]) * 3001)
"""


def test_a_reader_never_sees_a_part_and_neither_after_a_kill(tmp_path):
    path = tmp_path / "file"
    whole = {b"A" * 300_100, b"B" * 300_100}
    write(path, b"A" * 300_100)
    seen = set()
    for delay_seconds in (0.005, 0.013, 0.029, 0.061):
        with start_child(BUSY_WRITER, path) as process:
            assert process.stdout.readline() == "ready\n"
            end = time.monotonic() + delay_seconds
            while time.monotonic() < end:
                seen.add(path.read_bytes())
            process.kill()
        seen.add(path.read_bytes())
        assert len(leftovers(tmp_path)) <= 1
    assert seen <= whole
    write(path)
    assert names(tmp_path) == ["file"]


def test_only_its_own_leftovers_are_removed(tmp_path):
    targets = [tmp_path / name for name in ("a", "a.b", "a.0123456789abcdef", "b[*]", "ab")]
    left = {target: abandon(target) for target in targets}
    foreign = [".a.partial", ".a.notes.partial", ".a.0123456789ABCDEF.partial", "a.partial"]
    for name in foreign:
        (tmp_path / name).write_bytes(OLD)
    (tmp_path / ".a.0000000000000000.partial").mkdir()
    (tmp_path / ".a.1111111111111111.partial").symlink_to(tmp_path / "a.partial")
    for target in targets:
        assert left[target] in names(tmp_path)
        before = set(names(tmp_path))
        write(target)
        assert before - set(names(tmp_path)) == {left[target]}
    assert all((tmp_path / name).read_bytes() == OLD for name in foreign)


# --- Names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["Grüße 你好 🌱.json", "a\nb", "x" * 100, "x" * 101, "x" * 255, "é" * 127],
    ids=ascii,
)
def test_unusual_names(tmp_path, name):
    path = tmp_path / name
    write(path, OLD, overwrite=False)
    leftover = abandon(path)
    assert len(os.fsencode(leftover)) <= 143
    write(path, NEW)
    assert path.read_bytes() == NEW
    assert names(tmp_path) == [name]


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS refuses names that are not UTF-8")
def test_a_name_that_is_not_utf8(tmp_path):
    for name in (os.fsdecode(b"\xff"), os.fsdecode(b"\xff" * 255)):
        write(tmp_path / name)
        assert (tmp_path / name).read_bytes() == NEW


def test_long_names_that_begin_alike_keep_their_leftovers_apart(tmp_path):
    first, second = tmp_path / ("x" * 254 + "1"), tmp_path / ("x" * 254 + "2")
    of_first, of_second = abandon(first), abandon(second)
    write(first)
    assert names(tmp_path) == [of_second, first.name]
    write(second)
    assert names(tmp_path) == [first.name, second.name]
    assert of_first != of_second


def test_a_symlink_is_written_through(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_bytes(OLD)
    link, dangling = tmp_path / "link", tmp_path / "dangling"
    link.symlink_to("real/file")
    dangling.symlink_to("real/later")
    with pytest.raises(FileExistsError) as caught:
        write(link, overwrite=False)
    assert_one_sentence(caught.value, link)
    with atomic_write(link, overwrite=True) as file:
        file.write(NEW)
        assert leftovers(tmp_path) == []
        assert len(leftovers(tmp_path / "real")) == 1
    write(dangling, OLD, overwrite=False)
    assert link.is_symlink()
    assert dangling.is_symlink()
    assert (tmp_path / "real" / "file").read_bytes() == NEW
    assert (tmp_path / "real" / "later").read_bytes() == OLD
    assert names(tmp_path / "real") == ["file", "later"]


# --- Disks and permissions ------------------------------------------------------------------------

FULL_DISK = """
import json, os, resource, signal, sys
from tilth.files import atomic_write

path, limit, chunk, flush = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "True"
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    with atomic_write(path, overwrite=True) as file:
        for _ in range(300_000 // chunk):
            file.write(b"x" * chunk)
        if flush:
            file.flush()
    error = ["no error", None, ""]
except OSError as raised:
    error = [type(raised).__name__, raised.errno, str(raised)]
print(json.dumps(error))
"""


@pytest.mark.parametrize(
    ("limit", "chunk", "flush"),
    [
        (100_000, 300_000, False),  # one write, of which the system takes only a part
        (299_999, 300_000, False),
        (100_000, 1000, False),  # the error comes in the middle of the block
        (299_500, 1000, False),  # the error comes from the last buffer, after the block
        (299_500, 1000, True),
        (0, 300_000, False),
    ],
)
def test_a_full_disk_leaves_the_old_file(tmp_path, limit, chunk, flush):
    path = tmp_path / "file"
    path.write_bytes(OLD)
    kind, code, text = run_child(FULL_DISK, path, limit, chunk, flush)
    assert (kind, code) == ("OSError", errno.EFBIG)
    assert_one_sentence(text, path)
    assert path.read_bytes() == OLD
    assert names(tmp_path) == ["file"]


WITHOUT_PRIVILEGES = """
import json, os, sys
from tilth.files import atomic_write

if os.getuid() == 0:
    try:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    except OSError:
        print(json.dumps("cannot drop privileges"))
        sys.exit()
errors = []
for path in sys.argv[1:]:
    try:
        with atomic_write(path, overwrite=True):
            errors.append(["the block began", ""])
    except OSError as error:
        errors.append([type(error).__name__, str(error)])
print(json.dumps(errors))
"""


def test_a_folder_that_may_not_be_written():
    # Not in tmp_path, whose parents only their owner may enter.
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        top.chmod(0o755)
        listed, closed = top / "listed", top / "closed"
        for folder, mode in ((listed, 0o555), (closed, 0o000)):
            folder.mkdir()
            (folder / "file").write_bytes(OLD)
            (folder / "file").chmod(0o666)
            folder.chmod(mode)
        paths = [listed / "file", listed / "another", closed / "file"]
        try:
            errors = run_child(WITHOUT_PRIVILEGES, *paths)
        finally:
            for folder in (listed, closed):
                folder.chmod(0o755)
        if errors == "cannot drop privileges":
            pytest.skip(errors)
        assert len(errors) == len(paths)
        for path, (kind, text) in zip(paths, errors, strict=True):
            assert kind == "PermissionError"
            assert_one_sentence(text, path)
        assert names(listed) == names(closed) == ["file"]
        assert (listed / "file").read_bytes() == (closed / "file").read_bytes() == OLD


# --- FileError and checksum -----------------------------------------------------------------------


@pytest.mark.parametrize("path", ["a/file", Path("a/file")])
def test_file_error_is_one_sentence_and_survives_pickling(path):
    error = FileError(path, "is torn", "make it again")
    for same in (error, pickle.loads(pickle.dumps(error))):
        assert isinstance(same, ValueError)
        assert str(same) == "a/file is torn; make it again"
        assert same.path == path


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 2_500_000])
def test_checksum_is_the_sha256_of_the_bytes(tmp_path, size):
    data = (bytes(range(251)) * (size // 251 + 1))[:size]
    expected = hashlib.sha256(data).hexdigest()
    (tmp_path / "file").write_bytes(data)
    assert checksum(tmp_path / "file") == checksum(str(tmp_path / "file")) == expected
    assert checksum(io.BytesIO(data)) == expected
    with (tmp_path / "file").open("rb") as file:
        file.read(1)
        assert checksum(file) == hashlib.sha256(data[1:]).hexdigest()


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="sha256sum is not installed")
def test_checksum_is_what_sha256sum_prints(tmp_path):
    (tmp_path / "file").write_bytes(NEW)
    printed = subprocess.run(["sha256sum", tmp_path / "file"], capture_output=True, check=True)
    assert printed.stdout.split()[0].decode() == checksum(tmp_path / "file")


def test_checksum_does_not_hold_the_file_in_memory(tmp_path):
    with (tmp_path / "file").open("wb") as file:
        file.truncate(32 << 20)
    tracemalloc.start()
    try:
        digest = checksum(tmp_path / "file")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4 << 20
    assert digest == hashlib.sha256(bytes(32 << 20)).hexdigest()


def test_checksum_of_nothing_is_a_file_error(tmp_path):
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(FileError) as caught:
            checksum(path)
        assert caught.value.path == path
        assert_one_sentence(caught.value, path)


# --- Manifests ------------------------------------------------------------------------------------

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=10,
)
contents = st.dictionaries(
    st.text().filter(lambda key: key not in ("format", "version")), json_values, max_size=4
)


@settings(max_examples=40)
@given(content=contents, kind=st.text(), version=st.integers(-(10**20), 10**20))
def test_a_manifest_returns_what_was_saved(content, kind, version):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "manifest.json"
        assert save_manifest(path, content, kind=kind, version=version) is None
        loaded = load_manifest(path, kind=kind, version=version)
        # repr tells 1 from True and 0.0 from -0.0, which == does not.
        assert repr(loaded) == repr(content)
        independent = json.loads(path.read_bytes())
        assert independent == {"format": kind, "version": version, **content}
        assert list(independent)[:2] == ["format", "version"]


def test_a_manifest_is_readable(tmp_path):
    path = tmp_path / "manifest.json"
    save_manifest(path, {"größe": 2, "files": ["a"]}, kind="tokens", version=3)
    assert path.read_text(encoding="utf-8").splitlines() == [
        "{",
        '  "format": "tokens",',
        '  "version": 3,',
        '  "größe": 2,',
        '  "files": [',
        '    "a"',
        "  ]",
        "}",
    ]
    with pytest.raises(FileExistsError, match="--overwrite"):
        save_manifest(path, {}, kind="tokens", version=3)
    save_manifest(path, {}, kind="tokens", version=3, overwrite=True)
    assert load_manifest(path, kind="tokens", version=3) == {}
    path.write_bytes(path.read_bytes() + b"\n")  # an editor's newline does no harm
    assert load_manifest(path, kind="tokens", version=3) == {}


def test_a_manifest_keeps_file_names_that_are_not_utf8(tmp_path):
    content = {"file": os.fsdecode(b"caf\xe9 \\u00e9"), os.fsdecode(b"\xff"): "é"}
    save_manifest(tmp_path / "manifest.json", content, kind="tokens", version=1)
    (tmp_path / "manifest.json").read_text(encoding="utf-8")
    assert load_manifest(tmp_path / "manifest.json", kind="tokens", version=1) == content


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


circular = {}
circular["itself"] = circular


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"format": "x"}, "reserved"),
        ({"version": 1}, "reserved"),
        ({"loss": float("nan")}, "float"),
        ({"loss": [float("inf")]}, "float"),
        ({"loss": {"a": -float("inf")}}, "float"),
        ({"counts": {1: 2}}, "strings as keys"),
        ({1: 2}, "strings as keys"),
        ({"counts": {1: 2, "1": 3}}, "twice"),
        ({"shape": (1, 2)}, "lists for tuples"),
        ({"path": Path("x")}, "serializable"),
        ({"bytes": b"x"}, "serializable"),
        ({"deep": nested(100_000)}, "recursion"),
        (circular, "Circular"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_json_cannot_hold_is_refused_at_save(tmp_path, content, problem):
    path = tmp_path / "manifest.json"
    with pytest.raises(ValueError, match=problem) as caught:
        save_manifest(path, content, kind="tokens", version=1)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert names(tmp_path) == []


def assert_refused(path, problem=None):
    with pytest.raises(FileError, match=problem) as caught:
        load_manifest(path, kind="tokens", version=2)
    assert caught.value.path == path
    assert_one_sentence(caught.value, path)


def test_a_torn_manifest_is_refused_wherever_it_is_torn(tmp_path):
    path, torn = tmp_path / "manifest.json", tmp_path / "torn.json"
    content = {"größe": [1, 2.5e3, True, None], "name": 'Geschichten "🌱"', "more": {"a": {}}}
    save_manifest(path, content, kind="tokens", version=2)
    data = path.read_bytes()
    for size in range(len(data)):
        torn.write_bytes(data[:size])
        assert_refused(torn, "truncated")


def test_a_damaged_manifest_is_read_or_refused_but_never_worse(tmp_path):
    path, damaged = tmp_path / "manifest.json", tmp_path / "damaged.json"
    save_manifest(path, {"größe": [1, 2.5e3], "name": "a"}, kind="tokens", version=2)
    data = path.read_bytes()
    for position in range(len(data)):
        for byte in b'\x00\n" 0e}\xff':
            damaged.write_bytes(data[:position] + bytes([byte]) + data[position + 1 :])
            try:
                load_manifest(damaged, kind="tokens", version=2)
            except FileError as error:
                assert_one_sentence(error, damaged)


@settings(max_examples=60)
@given(data=st.binary() | json_values.map(lambda value: json.dumps(value).encode()))
def test_foreign_bytes_are_refused(data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "manifest.json"
        path.write_bytes(data)
        assert_refused(path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "truncated"),
        ("null", "not a manifest of tilth"),
        ("[]", "not a manifest of tilth"),
        ('"format"', "not a manifest of tilth"),
        ("{}", "not a manifest of tilth"),
        ('{"format": 1, "version": 2}', "not a manifest of tilth"),
        ('{"format": ["tokens"], "version": 2}', "not a manifest of tilth"),
        ('{"format": "run", "version": 2}', "is a 'run' manifest, not a 'tokens'"),
        ('{"format": "run\\nx", "version": 2}', "manifest, not a 'tokens'"),
        ('{"format": "tokens"}', "whole number"),
        ('{"format": "tokens", "version": null}', "whole number"),
        ('{"format": "tokens", "version": true}', "whole number"),
        ('{"format": "tokens", "version": "2"}', "whole number"),
        ('{"format": "tokens", "version": 2.0}', "whole number"),
        ('{"format": "tokens", "version": 3}', "newer tilth .* upgrade"),
        ('{"format": "tokens", "version": 1}', "reads version 2"),
        ('{"format": "tokens", "version": 0}', "reads version 2"),
        ('{"format": "tokens", "version": -1}', "reads version 2"),
        ('{"format": "tokens", "version": 2, "a": NaN}', "not finite"),
        ('{"format": "tokens", "version": 2, "a": Infinity}', "not finite"),
        ('{"format": "tokens", "version": 2, "a": [-Infinity]}', "not finite"),
        ('{"format": "tokens", "version": 2, "a": 1e999}', "not finite"),
        ('{"format": "tokens", "version": 2, "a": 1, "a": 1}', "'a' appears twice"),
        ('{"format": "tokens", "version": 2, "a": {"b": 1, "b": 2}}', "'b' appears twice"),
        ('{"format": "tokens", "version": 1, "version": 2}', "'version' appears twice"),
        ('{"format": "tokens", "version": 2}{}', "truncated"),
        ('\ufeff{"format": "tokens", "version": 2}', "truncated"),
        ('{"format": "tokens", "version": ' + "9" * 5000 + "}", "truncated"),
        ('{"format": "tokens", "version": 2, "a": ' + "[" * 200_000 + "]" * 200_000 + "}", "trunc"),
        ("[" * 200_000, "truncated"),
        ('{"a":' * 200_000, "truncated"),
    ],
    ids=lambda value: value[:60],
)
def test_a_wrong_manifest_is_refused_in_one_sentence(tmp_path, text, problem):
    (tmp_path / "manifest.json").write_text(text, encoding="utf-8")
    assert_refused(tmp_path / "manifest.json", problem)


def test_a_manifest_that_is_not_utf8_or_not_there_is_refused(tmp_path):
    good = '{"format": "tokens", "version": 2}'
    for encoding in ("utf-16", "utf-32", "utf-16-le"):
        (tmp_path / "manifest.json").write_text(good, encoding=encoding)
        assert_refused(tmp_path / "manifest.json", "truncated")
    (tmp_path / "manifest.json").write_bytes(good.encode().replace(b"tokens", b"\xff"))
    assert_refused(tmp_path / "manifest.json", "truncated")
    assert_refused(tmp_path / "missing", "does not exist")
    assert_refused(tmp_path, "is a folder")


def test_pipes_devices_and_folders_are_refused_at_once(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for read in (open_regular, read_bytes, checksum, read_toml):
        for path in (pipe, "/dev/zero"):
            with pytest.raises(FileError, match="is a pipe or a device; copy it to a file"):
                read(path)
        with pytest.raises(FileError, match="is a folder; name the file in it"):
            read(tmp_path)
    assert_refused(pipe, "is a pipe or a device")


def test_only_opening_without_links_blames_a_link(tmp_path):
    loop, link = tmp_path / "loop", tmp_path / "link"
    loop.symlink_to(loop)
    link.symlink_to(tmp_path / "file")
    (tmp_path / "file").write_bytes(b"abc")
    assert read_bytes(link) == b"abc"
    assert_refused(loop, r"cannot be read \(Too many levels of symbolic links\)")
    with pytest.raises(FileError, match=r"cannot be locked \(it is a symbolic link\)"):
        files.open_lock(link)


def test_a_file_above_its_ceiling_is_refused_unread(tmp_path):
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(FileError, match="more than the limit of 1,000"):
        read_bytes(path, 1000)
    assert_refused(path, "more than the limit of 67,108,864")


@pytest.mark.parametrize("text", ["a = [", "[" * 100_000, "\xff", "a = 1\na = 2"])
def test_what_is_not_toml_is_one_sentence(tmp_path, text):
    path = tmp_path / "config.toml"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(FileError, match=r"config\.toml is not TOML \(.*\); correct it"):
        read_toml(path)


@dataclass(frozen=True)
class Tokens:
    count: Annotated[int, Range(at_least=0)]
    name: FileName = "tokens.npy"


def test_a_manifest_is_checked_against_a_schema(tmp_path):
    path = tmp_path / "manifest.json"

    def load(content):
        save_manifest(path, content, kind="tokens", version=1, overwrite=True)
        return checked(Tokens, load_manifest(path, kind="tokens", version=1), path)

    assert load({"count": 3, "added later": [1]}) == Tokens(3)
    for content, problem in [
        ({}, "the key count is missing from the file; add it"),
        ({"count": "3"}, "count must be a whole number, not '3'"),
        ({"count": -1}, "count must be at least 0, not -1"),
        ({"count": 1, "name": "../up"}, "name '../up' is not the name of a file"),
    ]:
        with pytest.raises(FileError, match=rf"manifest\.json is damaged \({problem}"):
            load(content)


def test_a_manifest_that_could_not_be_written_again_is_refused(tmp_path):
    path = tmp_path / "manifest.json"
    path.write_text('{"format": "tokens", "version": 2, "x": ' + "[" * 100 + "]" * 100 + "}")
    assert_refused(path, "nested too deeply")
    path.write_text(json.dumps({"format": "x" * 100_000, "version": 2}))
    with pytest.raises(FileError) as caught:
        load_manifest(path, kind="tokens", version=2)
    assert len(str(caught.value)) < 500 + len(str(path))


def test_toml_of_any_depth_is_an_error(tmp_path):
    """The parser has no limit for dotted keys: 2,000 lines of 4,000 parts took minutes."""
    path = tmp_path / "config.toml"
    path.write_text("a." * 3000 + "b = 1")
    with pytest.raises(FileError, match="nested too deeply"):
        read_toml(path)
    path.write_text(("a." * 4000 + "b = 1\n") * 100)
    with pytest.raises(FileError, match="more than 10,000 dots"):
        read_toml(path)
    path.write_text("# " + "a" * (1 << 20))
    with pytest.raises(FileError, match="more than the limit of 1,048,576"):
        read_toml(path)
