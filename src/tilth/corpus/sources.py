"""Named corpora from the Hugging Face hub: a name to files on disk.

What enters: a name and a folder. What leaves: the paths of the corpus's files, each whole and equal
to the hub's. The bytes gather under a hidden name beside the real one and stay there when the work
is interrupted; the next fetch goes on behind them. (`hf_hub_download` throws away what it has, and
2 GB are long to wait for twice.)

>>> sorted(NAMED)
['openwebtext', 'tinystories']
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Self
from urllib.parse import urlsplit

from tilth.errors import import_extra
from tilth.files import DISK_FULL, FileError, Progress, StrPath, checksum, try_lock
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
    """Bring the files of a named corpus into a folder; what is there already is only checked.

    `progress` hears of the phase "fetch", in bytes.
    """
    if name not in NAMED:
        hint = suggestion(name, NAMED, f"there are {' and '.join(NAMED)}")
        raise ValueError(f"There is no corpus named {name!r}; {hint}")
    repository, files = NAMED[name]
    hub = import_extra("huggingface_hub", "Fetching")
    for module in ("errors", "file_download", "utils"):
        import_extra(f"huggingface_hub.{module}", "Fetching")
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file; name a folder for the corpus")
    folder.mkdir(parents=True, exist_ok=True)
    remote = [_Remote.of(hub, repository, file) for file in files]
    tell = progress or (lambda _phase, _done, _total: None)
    total_bytes = sum(file.size_bytes for file in remote)
    whole_bytes = 0

    def tell_all(done: int) -> None:
        tell("fetch", whole_bytes + done, total_bytes)

    for file in remote:
        _fetch_file(hub, file, folder, tell_all)
        whole_bytes += file.size_bytes
        tell_all(0)
    return [folder / file.name for file in remote]


class _Remote(NamedTuple):
    """A file on the hub."""

    url: str
    name: str
    size_bytes: int
    tag: str

    @classmethod
    def of(cls, hub: Any, repository: str, name: str) -> "_Remote":  # noqa: ANN401
        url = hub.hf_hub_url(repository, name, repo_type="dataset")
        with _explained(hub, name, url):
            found = hub.get_hf_file_metadata(url)
        return cls(url, name, found.size or 0, found.etag or "")

    def is_at(self, path: Path) -> bool:
        """Whether a file is a copy of it."""
        # Of large files the hub's tag is the SHA-256; of small ones it is git's own hash.
        has_sha256 = re.fullmatch("[0-9a-f]{64}", self.tag)
        return (
            path.is_file()
            and path.stat().st_size == self.size_bytes
            and (not has_sha256 or checksum(path) == self.tag)
        )


def _fetch_file(hub: Any, remote: _Remote, folder: Path, tell: Callable[[int], None]) -> None:  # noqa: ANN401
    target = folder / remote.name
    if target.exists():
        if not remote.is_at(target):
            problem = "is there already, but is not the file on the hub"
            raise FileError(target, problem, "move it away, and fetch again")
        return
    # Another version of the file has another tag, and must not be appended to this one.
    version = re.sub(r"[^0-9a-zA-Z]", "", remote.tag)[:16]
    partial_path = folder / f".{remote.name}.{version}.partial"
    with _opened_alone(partial_path) as file:
        if file.tell() > remote.size_bytes:  # no fetch of ours has left that
            file.truncate(0)
            file.seek(0)
        with _explained(hub, remote.name, remote.url):
            hub.file_download.http_get(
                remote.url,
                file,
                resume_size=file.tell(),
                # Compressed on the way, a file has no places to go on from.
                headers={**hub.utils.build_hf_headers(), "Accept-Encoding": "identity"},
                expected_size=remote.size_bytes,
                tqdm_class=partial(_Bar, tell),
            )
            file.flush()
            os.fsync(file.fileno())
        if not remote.is_at(partial_path):
            partial_path.unlink()
            raise FileError(target, "did not arrive as it is on the hub", "fetch it again")
        partial_path.rename(target)


@contextmanager
def _opened_alone(path: Path) -> Iterator[BinaryIO]:
    """The bytes that are here already, open at their end, for one process at a time."""
    # To open a pipe would wait for its other end; a link may lead to a file of the user.
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise FileError(path, "is not a regular file", "remove it, and fetch again")
    with path.open("ab") as file:
        if not try_lock(file):
            hint = "wait for it, or stop it"
            raise FileError(path, "is being written by another fetch", hint)
        yield file


class _Bar:
    """What the hub's client takes for a progress bar."""

    def __init__(self, tell: Callable[[int], None], *, initial: int = 0, **_looks: object) -> None:
        self._tell = tell
        self._done = initial

    def update(self, size_bytes: int) -> None:
        """More has arrived."""
        self._done += size_bytes
        self._tell(self._done)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        pass


@contextmanager
def _explained(hub: Any, name: str, url: str) -> Iterator[None]:  # noqa: ANN401
    """One sentence for what the network, the hub or the disk says."""
    # The root of the errors of the HTTP client, of which the hub's package has changed the name.
    refused, offline = hub.errors.HfHubHTTPError, hub.errors.OfflineModeIsEnabled
    network_error = next(kind for kind in refused.__mro__ if kind.__name__ == "HTTPError")
    host = urlsplit(url).netloc
    try:
        yield
    except refused as error:
        raise OSError(
            f"{host} does not hand out {name} (HTTP {error.response.status_code}); try again "
            f"later, or begin with the built-in corpus: {BUILT_IN}"
        ) from None
    except (network_error, offline) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConnectionError(
            f"There is no network to fetch {name} from {host} ({reason}); try again later, which "
            f"goes on where this stopped, or begin with the built-in corpus: {BUILT_IN}"
        ) from None
    except OSError as error:
        if error.errno in DISK_FULL:
            raise OSError(
                f"The disk is full, and {name} is not whole; make room and fetch again, which "
                "goes on where this stopped"
            ) from None
        raise
