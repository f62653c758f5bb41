"""List the sources of a corpus: paths to files with their kind, size and modification time.

The suffix of a file determines its kind; `.gz` or `.zst` may follow it:

| name | kind | documents |
|---|---|---|
| `.jsonl`, `.ndjson`, `.json` | "json lines" | a field of the object on each line |
| `.parquet` | "parquet" | the rows of a column |
| any other | "text" | the texts between separators |
| a folder | "folder" | its text files, one document each |

Files of a folder that are not text become separate sources after it.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     for name in ("b.txt", "a.txt.gz", "c.jsonl", ".hidden"):
...         _ = Path(folder, name).write_bytes(b"")
...     [(source.kind, [f.path.name for f in source.files]) for source in list_sources(folder)]
[('folder', ['a.txt.gz', 'b.txt']), ('json lines', ['c.jsonl'])]
"""

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from tilth.files import FileError, StrPath
from tilth.formatting import nearest_name

Kind = Literal["text", "json lines", "parquet", "folder"]

KINDS: dict[str, Kind] = {
    # A .json that is one large object is an error at its first line; read as text, it would
    # silently teach a model JSON syntax.
    ".json": "json lines",
    ".jsonl": "json lines",
    ".ndjson": "json lines",
    ".parquet": "parquet",
}


class ListedFile(NamedTuple):
    """A file with the size and modification time it had when it was listed."""

    path: Path
    size_bytes: int
    modified_ns: int


def kind_of(path: Path) -> Kind:
    """Return the kind of a file by its suffix."""
    path = path.with_suffix("") if compression_of(path) else path
    return KINDS.get(path.suffix.lower(), "text")


def compression_of(path: Path) -> str:
    """Return the compression of a file by its suffix: "gz", "zst" or ""."""
    suffix = path.suffix.lower()
    return suffix[1:] if suffix in {".gz", ".zst"} else ""


@dataclass(frozen=True)
class Source:
    """One file, or the text files of one folder in order of their paths."""

    path: Path
    kind: Kind
    files: tuple[ListedFile, ...]

    @property
    def size_bytes(self) -> int:
        """The size on disk."""
        return sum(file.size_bytes for file in self.files)

    def stamp(self) -> str:
        """Return a digest of the names, sizes and modification times of the files."""
        digest = hashlib.sha256()
        for path, size_bytes, modified_ns in self.files:
            name = os.fsencode(path.relative_to(self.path))
            digest.update(b"%s\0%d\0%d\0" % (name, size_bytes, modified_ns))
        return digest.hexdigest()


def list_sources(paths: StrPath | Iterable[StrPath]) -> tuple[Source, ...]:
    """Return the sources at `paths`, in order; a path that cannot be read is an error."""
    if isinstance(paths, str | os.PathLike):
        paths = [paths]
    sources = [source for path in paths for source in _sources_at(path)]
    if not sources:
        raise ValueError("A corpus needs at least one path; name a file or a folder.")
    return tuple(sources)


def _sources_at(given: StrPath) -> Iterator[Source]:
    if not isinstance(given, str | os.PathLike):
        raise ValueError(f"A path must be a string or a Path, not {given!r}.")
    path = Path(given)
    if path.is_dir():
        files = [_listed_file(file) for file in sorted(_files_under(path))]
        if not files:
            hint = "name a folder with files that are not hidden"
            raise FileError(path, "has no files in it", hint)
        if texts := tuple(file for file in files if kind_of(file.path) == "text"):
            yield Source(path, "folder", texts)
        files = [file for file in files if kind_of(file.path) != "text"]
    else:
        files = [_listed_file(path)]
    yield from (Source(file.path, kind_of(file.path), (file,)) for file in files)


def _files_under(folder: Path) -> Iterator[Path]:
    """Yield the files that are not hidden; links are followed, each folder is visited once."""
    seen = set()

    def fail(error: OSError) -> None:
        hint = "check the permissions of the folder"
        raise FileError(error.filename, f"cannot be listed ({error.strerror})", hint) from None

    for parent, folders, names in os.walk(folder, followlinks=True, onerror=fail):
        # A link may lead to one of its parents.
        real = os.path.realpath(parent)
        folders[:] = [] if real in seen else sorted(n for n in folders if not n.startswith("."))
        if real not in seen:
            yield from (Path(parent, name) for name in names if not name.startswith("."))
        seen.add(real)


def _listed_file(path: Path) -> ListedFile:
    try:
        found = path.stat()
    except FileNotFoundError:
        if path.is_symlink():
            raise FileError(path, "is a broken link", "repair or remove it") from None
        raise FileNotFoundError(f"{path} does not exist; {_suggestion(path)}") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or error
        hint = "check the path and its permissions"
        raise FileError(path, f"cannot be read ({reason})", hint) from None
    if not stat.S_ISREG(found.st_mode):  # no position to resume from
        raise FileError(path, "is a pipe or a device", "copy it to a file")
    if kind_of(path) == "parquet" and compression_of(path):
        raise FileError(path, "is a compressed Parquet file", "decompress it")
    return ListedFile(path, found.st_size, found.st_mtime_ns)


def _suggestion(path: Path) -> str:
    try:
        siblings = [sibling.name for sibling in path.parent.iterdir()]
    except OSError:
        return f"the folder {path.parent} does not exist or cannot be read"
    nearest = nearest_name(path.name, siblings)
    return f"did you mean {path.with_name(nearest)}?" if nearest else "check the path"
