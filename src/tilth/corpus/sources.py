"""Named corpora from the Hugging Face hub, downloaded to a folder.

A download gathers under a hidden name in the folder and stays there when it is interrupted; the
next fetch continues it. (`hf_hub_download` discards a partial download, and 2 GB take long to
download twice.) A complete file is compared with the hub's size and SHA-256.

>>> sorted(NAMED)
['openwebtext', 'tinystories']
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from tilth.errors import first_line, import_extra
from tilth.files import DISK_FULL, FileError, Progress, StrPath, checksum, open_regular, try_lock
from tilth.formatting import suggestion

BUILT_IN = "tilth corpus stories --size 50MB --out stories.txt"


class Dataset(NamedTuple):
    """Files of a dataset on the hub."""

    repository: str
    files: tuple[str, ...]


NAMED = {
    "tinystories": Dataset(
        "roneneldan/TinyStories", ("TinyStoriesV2-GPT4-train.txt", "TinyStoriesV2-GPT4-valid.txt")
    ),
    "openwebtext": Dataset("stanford-cs336/owt-sample", ("owt_train.txt.gz", "owt_valid.txt.gz")),
}


def fetch(name: str, folder: StrPath, *, progress: Progress | None = None) -> list[Path]:
    """Download the files of a named corpus into a folder; complete files are only checked.

    `progress` is called with the phase "fetch", in bytes.
    """
    if name not in NAMED:
        hint = suggestion(name, NAMED, f"there are {' and '.join(NAMED)}")
        raise ValueError(f"There is no corpus named {name!r}; {hint}")
    hub = import_extra("huggingface_hub", "Fetching")
    for module in ("errors", "file_download", "utils"):
        import_extra(f"huggingface_hub.{module}", "Fetching")
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file; name a folder for the corpus")
    folder.mkdir(parents=True, exist_ok=True)
    files = [_remote_file(hub, NAMED[name].repository, file) for file in NAMED[name].files]
    complete_bytes = 0

    def tell(done: int) -> None:
        if progress is not None:
            progress("fetch", complete_bytes + done, sum(file.size_bytes for file in files))

    for file in files:
        _fetch_file(hub, file, folder / file.name, tell)
        complete_bytes += file.size_bytes
        tell(0)
    return [folder / file.name for file in files]


class _RemoteFile(NamedTuple):
    url: str
    name: str
    size_bytes: int
    tag: str

    def is_at(self, path: Path) -> bool:
        """Return whether a file is a copy of it."""
        # Of large files the hub's tag is the SHA-256; of small ones it is git's own hash.
        has_sha256 = re.fullmatch("[0-9a-f]{64}", self.tag)
        return path.stat().st_size == self.size_bytes and (
            not has_sha256 or checksum(path) == self.tag
        )


def _remote_file(hub: Any, repository: str, name: str) -> _RemoteFile:  # noqa: ANN401
    url = hub.hf_hub_url(repository, name, repo_type="dataset")
    with _errors_explained(hub, name, url):
        found = hub.get_hf_file_metadata(url)
    return _RemoteFile(url, name, found.size or 0, found.etag or "")


def _fetch_file(hub: Any, remote: _RemoteFile, target: Path, tell: Callable[[int], None]) -> None:  # noqa: ANN401
    if target.exists():
        if not target.is_file() or not remote.is_at(target):
            problem = "is there already, but is not the file on the hub"
            raise FileError(target, problem, "move it away, and fetch again")
        return
    # Another version of the file has another tag, and must not be appended to this one.
    version = re.sub(r"[^0-9a-zA-Z]", "", remote.tag)[:16]
    partial_path = target.with_name(f".{remote.name}.{version}.partial")
    # Not through a link, which may lead to a file of the user.
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    with open_regular(partial_path, flags, "written") as file:
        file.seek(0, os.SEEK_END)
        if not try_lock(file):
            hint = "wait for it, or stop it"
            raise FileError(partial_path, "is being written by another fetch", hint)
        if file.tell() > remote.size_bytes:  # not left by a fetch
            file.truncate(0)
            file.seek(0)
        with _errors_explained(hub, remote.name, remote.url):
            hub.file_download.http_get(
                remote.url,
                file,
                resume_size=file.tell(),
                # A compressed transfer cannot be resumed.
                headers={**hub.utils.build_hf_headers(), "Accept-Encoding": "identity"},
                expected_size=remote.size_bytes,
                tqdm_class=partial(_Bar, tell),
            )
            os.fsync(file.fileno())
        if not remote.is_at(partial_path):
            partial_path.unlink()
            raise FileError(target, "did not arrive as it is on the hub", "fetch it again")
        partial_path.rename(target)


class _Bar:
    """The part of tqdm's interface that the hub's client calls."""

    def __init__(self, tell: Callable[[int], None], *, initial: int = 0, **_looks: object) -> None:
        self._tell = tell
        self._done = initial

    def update(self, size_bytes: int) -> None:
        """Count received bytes."""
        self._done += size_bytes
        self._tell(self._done)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        pass


@contextmanager
def _errors_explained(hub: Any, name: str, url: str) -> Iterator[None]:  # noqa: ANN401
    """Turn an error of the network, the hub or the disk into one sentence."""
    # The base error of the HTTP client; the hub's package has changed the client.
    refused, offline = hub.errors.HfHubHTTPError, hub.errors.OfflineModeIsEnabled
    network_error = next(kind for kind in refused.__mro__ if kind.__name__ == "HTTPError")
    host = urlsplit(url).netloc
    hint = f"or begin with the built-in corpus: {BUILT_IN}"
    try:
        yield
    except refused as error:
        status = error.response.status_code
        raise OSError(f"{host} refuses {name} (HTTP {status}); try again later, {hint}") from None
    except (network_error, offline) as error:
        problem = f"Cannot fetch {name} from {host} ({first_line(error)})"
        raise ConnectionError(f"{problem}; try again later to continue, {hint}") from None
    except OSError as error:
        if error.errno in DISK_FULL:
            problem = f"The disk is full, and {name} is incomplete"
            raise OSError(f"{problem}; free some space and fetch again to continue") from None
        raise
