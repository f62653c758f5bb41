r"""Cut a corpus into parts of documents that can be read alone.

Text files, JSON lines and folders are cut between two documents. Compressed files, Parquet files
and text files whose separator can overlap itself stay whole.

>>> import tempfile
>>> from pathlib import Path
>>> with tempfile.TemporaryDirectory() as folder:
...     path = Path(folder, "a.jsonl")
...     _ = path.write_text('{"text": "one"}\n{"text": "two"}\n{"text": "three"}\n')
...     corpus = Corpus(path)
...     parts = cut(corpus, 2)
...     [block.documents().texts for part in parts for block in corpus.blocks(*part)]
[[b'one', b'two'], [b'three']]
"""

from itertools import pairwise

from tilth.corpus.compression import open_listed
from tilth.corpus.listing import ListedFile, Source, compression_of
from tilth.corpus.readers import BEGINNING, Corpus, Position, overlaps_itself

WINDOW_BYTES = 1 << 20

Part = tuple[Position, Position]
"""The start and the stop of `Corpus.blocks`."""


def cut(corpus: Corpus, number: int) -> list[Part]:
    """Return at most `number` parts of about equal size, which are the corpus in order."""
    end = Position(len(corpus.sources), 0)
    bounds = {BEGINNING, end}
    number = min(number, corpus.size_bytes)
    for index in range(1, number):
        bounds.add(_position_after(corpus, index * corpus.size_bytes // number))
    return list(pairwise(sorted(bounds)))


def size_bytes(corpus: Corpus, part: Part) -> int:
    """Return the size of a part on disk."""
    start, stop = (_bytes_before(corpus, position) for position in part)
    return stop - start


def _bytes_before(corpus: Corpus, position: Position) -> int:
    before = sum(source.size_bytes for source in corpus.sources[: position.source])
    if position.place:
        source = corpus.sources[position.source]
        is_folder = source.kind == "folder"
        inside = sum(file.size_bytes for file in source.files[: position.place])
        before += inside if is_folder else position.place
    return before


def _position_after(corpus: Corpus, byte: int) -> Position:
    """Return the first place at or after a byte of the corpus where it can be cut."""
    for number, source in enumerate(corpus.sources):
        if byte < source.size_bytes:
            place = _place_after(corpus, source, byte) if byte else 0
            return Position(number + 1, 0) if place is None else Position(number, place)
        byte -= source.size_bytes
    return Position(len(corpus.sources), 0)


def _place_after(corpus: Corpus, source: Source, byte: int) -> int | None:
    """Return the first place in a source at or after a byte, or None: after its end."""
    if source.kind == "folder":
        for place, file in enumerate(source.files):
            if byte <= 0:
                return place
            byte -= file.size_bytes
        return None
    file = source.files[0]
    separator = b"\n" if source.kind == "json lines" else corpus.separator
    # The occurrences of a separator that cannot overlap itself are those that a search from the
    # beginning of the file finds. A compressed file is not read from the middle.
    if source.kind == "parquet" or compression_of(file.path) or overlaps_itself(separator):
        return None
    return _after_separator(file, byte, separator)


def _after_separator(file: ListedFile, byte: int, separator: bytes) -> int | None:
    # A separator that ends at `byte` counts: the place is a boundary already.
    place = max(0, byte - len(separator))
    with open_listed(file) as raw:
        while place < file.size_bytes:
            raw.seek(place)
            window = raw.read(WINDOW_BYTES + len(separator) - 1)
            found = window.find(separator)
            if found >= 0:
                after = place + found + len(separator)
                return after if after < file.size_bytes else None
            place += WINDOW_BYTES
    return None
