"""Time and memory of training a vocabulary, by phase, in a process of its own.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     path = Path(folder, "a.txt")
...     written = path.write_text("low low low lower lower")
...     trained = train_measured(path, 259)
>>> trained.tokens, trained.text_bytes, trained.pieces
(259, 23, 3)
"""

import logging
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tilth.files import StrPath
from tilth.tokenizer.inspection import longest_tokens, visible
from tilth.tokenizer.training import count_pieces, train_tokenizer

LONGEST = 5
READ_BLOCK = 1 << 20


@dataclass(frozen=True)
class Trained:
    """Time and memory of the phases of one training."""

    text_bytes: int
    pieces: int
    """Distinct pieces."""
    tokens: int
    """Size of the vocabulary that was reached."""
    read_seconds: float
    """Only reading the file."""
    count_seconds: float
    """Reading, splitting and counting."""
    merge_seconds: float
    count_bytes: int
    """Growth of the peak memory while counting."""
    merge_bytes: int
    longest: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """The whole time."""
        return self.count_seconds + self.merge_seconds

    @property
    def memory_bytes(self) -> int:
        """The whole growth of the peak memory."""
        return self.count_bytes + self.merge_bytes


def train_measured(
    path: StrPath, vocab_size: int, special_tokens: tuple[str, ...] = (), threads: int | None = None
) -> Trained:
    """Train a vocabulary on a file; call it in a new process, which has no peak memory yet."""
    path, special = Path(path), list(special_tokens)
    start = time.perf_counter()
    with path.open("rb") as file:
        while file.read(READ_BLOCK):
            pass
    read_seconds = time.perf_counter() - start
    marks = [(time.perf_counter(), _peak_bytes())]

    def mark(phase: str, _done: int, _total: int) -> None:
        if phase == "merge" and len(marks) == 1:
            marks.append((time.perf_counter(), _peak_bytes()))

    with no_warnings():  # `tokens` says how many merges there were
        tokenizer = train_tokenizer(path, vocab_size, special, threads=threads, progress=mark)
    marks.append((time.perf_counter(), _peak_bytes()))
    (counting, count_bytes), (merging, merge_bytes) = (
        (end[0] - begin[0], end[1] - begin[1]) for begin, end in pairwise(marks)
    )
    return Trained(
        path.stat().st_size,
        len(count_pieces(path, special, threads=threads)),
        tokenizer.vocab_size,
        read_seconds,
        counting,
        merging,
        count_bytes,
        merge_bytes,
        tuple(visible(token) for _, token in longest_tokens(tokenizer, LONGEST)),
    )


@contextmanager
def no_warnings() -> Iterator[None]:
    """Print no warnings of tokenizers, such as that a corpus has too few pairs to merge."""
    logger = logging.getLogger("tilth.tokenizer")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _peak_bytes() -> int:
    """Return the peak memory of this process; 0 where the system does not say."""
    status = Path("/proc/self/status")  # not ru_maxrss, which starts at that of the parent
    found = re.search(r"VmHWM:\s*(\d+) kB", status.read_text()) if status.exists() else None
    return int(found[1]) * 1024 if found else 0
