"""Fetch from a small server with the hub's interface."""

import hashlib
import os
import re
import socket
import sys
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import huggingface_hub
import pytest
from huggingface_hub import constants, file_download

from tilth.corpus.sources import NAMED, fetch
from tilth.files import FileError

FILES = {
    name: os.urandom(50_000 + number) for number, name in enumerate(NAMED["tinystories"].files)
}
TRAIN, VALID = FILES


class Hub(BaseHTTPRequestHandler):
    """HEAD and GET of /datasets/OWNER/NAME/resolve/main/FILE, with parts of files."""

    protocol_version = "HTTP/1.1"

    def __init__(self, state, *arguments):
        self.state = state
        super().__init__(*arguments)

    def do_HEAD(self):
        data = self.found()
        if data is not None:
            self.head(200, len(data))

    def do_GET(self):
        data = self.found()
        if data is None:
            return
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(wanted[1]) if wanted and self.state["ranges"] else 0
        self.state["asked"].append((self.path.rsplit("/")[-1], start))
        part = data[start:]
        more = {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"} if start else {}
        self.head(206 if start else 200, len(part), **more)
        most = self.state["most_bytes"]
        self.wfile.write(part[:most])
        if most < len(part):  # the line goes dead
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)

    def found(self):
        match = re.fullmatch(r"/datasets/roneneldan/TinyStories/resolve/main/(.+)", self.path)
        if match is None or self.state["status"] != 200:
            self.send_response(404 if match is None else self.state["status"])
            self.send_header("Content-Length", "0")
            self.end_headers()
            return None
        return self.state["files"][match[1]]

    def head(self, status, size, **more):
        name = self.path.rsplit("/")[-1]
        sha256 = self.state["sha256"].get(name, hashlib.sha256(FILES[name]).hexdigest())
        self.send_response(status)
        self.send_header("Content-Length", str(size))
        self.send_header("X-Repo-Commit", "c" * 40)
        self.send_header("ETag", f'"{sha256}"')
        for header, value in more.items():
            self.send_header(header, value)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def hub(monkeypatch):
    state = {
        "files": dict(FILES),
        "sha256": {},
        "status": 200,
        "ranges": True,
        "most_bytes": 1 << 30,
        "asked": [],
    }
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Hub, state))
    state["endpoint"] = f"http://127.0.0.1:{server.server_port}"
    serving = Thread(target=server.serve_forever, args=(0.01,))
    serving.start()
    use_endpoint(monkeypatch, state["endpoint"])
    yield state
    server.shutdown()
    serving.join()
    server.server_close()
    huggingface_hub.close_session()


def use_endpoint(monkeypatch, endpoint):
    # HF_ENDPOINT is read when the package is imported, which was long ago.
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, endpoint)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    # The client writes only whole chunks of 10 MiB; an interruption loses at most one.
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1000)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(file_download.time, "sleep", lambda _seconds: None)
    huggingface_hub.close_session()


def files_in(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_fetch(tmp_path, hub):
    told = []
    folder = tmp_path / "new" / "folder"
    paths = fetch("tinystories", folder, progress=lambda *report: told.append(report))
    assert paths == [folder / name for name in FILES]
    assert files_in(folder) == FILES
    assert told == sorted(told)
    size = sum(map(len, FILES.values()))
    assert told[-1] == ("fetch", size, size)
    assert ("fetch", 50_000 + 7000, size) in told
    # What is there is checked, not fetched again.
    hub["asked"].clear()
    assert fetch("tinystories", folder) == paths
    assert hub["asked"] == []


def test_an_interrupted_fetch_resumes(tmp_path, hub):
    def stop(_name, done, _size):
        if done > 20_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch("tinystories", tmp_path, progress=stop)
    (partial_file,) = tmp_path.iterdir()
    assert partial_file.name.startswith(".")
    assert TRAIN not in files_in(tmp_path)
    had = partial_file.read_bytes()
    assert len(had) == 20_000
    assert had == FILES[TRAIN][:20_000]

    hub["asked"].clear()
    fetch("tinystories", tmp_path)
    assert hub["asked"][0] == (TRAIN, len(had))
    assert files_in(tmp_path) == FILES


def test_a_connection_that_is_lost_repeatedly(tmp_path, hub):
    hub["most_bytes"] = 20_000
    fetch("tinystories", tmp_path)
    assert files_in(tmp_path) == FILES
    assert [start for name, start in hub["asked"] if name == TRAIN] == [0, 20_000, 40_000]

    hub["most_bytes"] = 0
    with pytest.raises(ConnectionError, match=r"to continue, .* tilth corpus stories"):
        fetch("tinystories", tmp_path / "other")
    assert TRAIN not in files_in(tmp_path / "other")


def test_a_server_without_range_requests(tmp_path, hub):
    version = hashlib.sha256(FILES[TRAIN]).hexdigest()[:16]
    (tmp_path / f".{TRAIN}.{version}.partial").write_bytes(FILES[TRAIN][:1000])
    hub["ranges"] = False
    fetch("tinystories", tmp_path)
    assert files_in(tmp_path) == FILES


def test_a_partial_file_that_is_complete(tmp_path, hub):
    version = hashlib.sha256(FILES[TRAIN]).hexdigest()[:16]
    (tmp_path / f".{TRAIN}.{version}.partial").write_bytes(FILES[TRAIN])
    fetch("tinystories", tmp_path)
    assert [name for name, _ in hub["asked"]] == [VALID]
    assert files_in(tmp_path) == FILES


def test_wrong_bytes_are_refused(tmp_path, hub):
    hub["sha256"][TRAIN] = "0" * 64
    with pytest.raises(FileError, match=f"{TRAIN} did not arrive as it is on the hub; fetch it"):
        fetch("tinystories", tmp_path)
    assert files_in(tmp_path) == {}

    # Bytes that were left by something else are found, and do not stand in the way next time.
    hub["sha256"].clear()
    version = hashlib.sha256(FILES[TRAIN]).hexdigest()[:16]
    (tmp_path / f".{TRAIN}.{version}.partial").write_bytes(b"x" * 1000)
    with pytest.raises(FileError, match="did not arrive"):
        fetch("tinystories", tmp_path)
    fetch("tinystories", tmp_path)
    assert files_in(tmp_path) == FILES


def test_a_partial_file_that_is_too_long(tmp_path, hub):
    version = hashlib.sha256(FILES[TRAIN]).hexdigest()[:16]
    (tmp_path / f".{TRAIN}.{version}.partial").write_bytes(b"x" * 60_000)
    fetch("tinystories", tmp_path)
    assert files_in(tmp_path) == FILES


def test_a_small_file_without_sha256_is_checked_by_its_size(tmp_path, hub):
    hub["sha256"][TRAIN] = "a" * 40
    fetch("tinystories", tmp_path)
    assert files_in(tmp_path) == FILES


def test_another_file_in_its_place(tmp_path, hub):
    (tmp_path / TRAIN).write_bytes(b"mine")
    with pytest.raises(FileError, match=r"is there already, .*; move it away"):
        fetch("tinystories", tmp_path)
    assert files_in(tmp_path) == {TRAIN: b"mine"}


def test_two_processes_at_once(tmp_path, hub):
    def again(_name, _done, _size):
        fetch("tinystories", tmp_path)

    with pytest.raises(FileError, match="is being written by another fetch"):
        fetch("tinystories", tmp_path, progress=again)


@pytest.mark.parametrize("status", [401, 404, 500])
def test_a_hub_that_refuses(tmp_path, hub, status):
    hub["status"] = status
    with pytest.raises(OSError, match=rf"HTTP {status}\); .*tilth corpus stories"):
        fetch("tinystories", tmp_path)
    assert files_in(tmp_path) == {}


def test_no_network(tmp_path, monkeypatch):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    use_endpoint(monkeypatch, f"http://127.0.0.1:{port}")
    with pytest.raises(ConnectionError, match=r"Cannot fetch .*tilth corpus stories") as caught:
        fetch("openwebtext", tmp_path)
    assert "\n" not in str(caught.value)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ConnectionError, match=r"Cannot fetch .*tilth corpus stories"):
        fetch("openwebtext", tmp_path)


def test_a_full_disk(tmp_path, hub, monkeypatch):
    def full(*_arguments, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(file_download, "http_get", full)
    with pytest.raises(OSError, match=r"The disk is full, .* free some space"):
        fetch("tinystories", tmp_path)


def test_names(tmp_path):
    with pytest.raises(ValueError, match="no corpus named 'tinystory'; did you mean tinystories"):
        fetch("tinystory", tmp_path)
    with pytest.raises(ValueError, match="there are tinystories and openwebtext"):
        fetch("x", tmp_path)


def test_the_missing_extra(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("huggingface_hub")]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match=r'pip install "tilth\[fetch\]"'):
        fetch("tinystories", tmp_path)


def test_a_pipe_in_place_of_a_file_is_refused(tmp_path, hub):
    fetch("tinystories", tmp_path)
    (tmp_path / TRAIN).unlink()
    os.mkfifo(tmp_path / TRAIN)
    with pytest.raises(FileError, match="is there already, but is not the file on the hub"):
        fetch("tinystories", tmp_path)
    (tmp_path / TRAIN).unlink()
    version = hashlib.sha256(FILES[TRAIN]).hexdigest()[:16]
    os.mkfifo(tmp_path / f".{TRAIN}.{version}.partial")
    with pytest.raises(FileError, match="is a pipe or a device; remove it"):
        fetch("tinystories", tmp_path)


def test_a_link_in_place_of_the_partial_file_is_not_followed(tmp_path, hub):
    own = tmp_path / "own.txt"
    own.write_text("mine")
    version = hashlib.sha256(FILES[TRAIN]).hexdigest()[:16]
    (tmp_path / f".{TRAIN}.{version}.partial").symlink_to(own)
    with pytest.raises(FileError, match=r"it is a symbolic link.*; remove the link"):
        fetch("tinystories", tmp_path)
    assert own.read_text() == "mine"
