"""Train a tokenizer: texts or files to merges.

What enters: files of UTF-8 text, or an iterable of strings. What leaves: a `Tokenizer` whose merges
are those of `reference.train`, for any number of threads and any order of the files.

>>> tokenizer = train_tokenizer(texts=["low low low lower lower"], vocab_size=259)
>>> tokenizer.merges
((b'o', b'w'), (b'l', b'ow'), (b' ', b'low'))
"""

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from tilth.files import StrPath
from tilth.tokenizer._core import Trainer
from tilth.tokenizer.splitting import NATIVE_PATTERNS, CustomSplitter
from tilth.tokenizer.tokenizer import Tokenizer, checked_threads

Progress = Callable[[str, int, int], None]
"""Called at both ends of a phase ("count", "merge") and ten times a second: done, of how much."""

TEXTS_AT_ONCE = 1024  # shared between the threads: enough for all, and little to hold

log = logging.getLogger(__name__)


def train_tokenizer(
    paths: StrPath | Iterable[StrPath] | None = None,
    vocab_size: int = 10_000,
    special_tokens: Sequence[str] | None = None,
    *,
    texts: Iterable[str] | None = None,
    pattern: str = "gpt2",
    threads: int | None = None,
    progress: Progress | None = None,
) -> Tokenizer:
    """Learn merges, most frequent pair first, until the vocabulary is full or no pair is left.

    `vocab_size` counts everything: the special tokens (the first ids), the 256 bytes, the merges.
    Special tokens cut the text before anything is counted. Files are read in parts, never whole;
    memory grows with the number of different pieces.
    """
    for name, value in (("texts", texts), ("special_tokens", special_tokens)):
        if isinstance(value, str):  # it would be taken for a list of characters
            raise ValueError(f"{name} is one string; give a list of strings.")
    special_tokens = list(special_tokens or [])
    num_merges = vocab_size - 256 - len(special_tokens)
    _check(vocab_size, special_tokens, num_merges)
    files = _files(paths)
    tell = progress or (lambda _phase, _done, _total: None)
    trainer = Trainer(special_tokens, pattern, checked_threads(threads), progress)
    if pattern in NATIVE_PATTERNS:
        size_bytes = sum(file.stat().st_size for file in files)
        tell("count", 0, size_bytes)
        trainer.add_files([str(file) for file in files])
        tell("count", size_bytes, size_bytes)
        remaining = iter(texts or ())
        while batch := list(islice(remaining, TEXTS_AT_ONCE)):
            trainer.add_texts(batch)
    else:
        log.warning("The pattern %r goes through the regex package, which is slower.", pattern)
        for piece, count in _count_custom(files, texts, pattern, special_tokens).items():
            trainer.add_piece(piece.encode(), count)
    tell("merge", 0, num_merges)
    pairs = trainer.train(num_merges)
    tell("merge", len(pairs), num_merges)
    if len(pairs) < num_merges:
        log.warning(
            "No pair is left after %d merges, so the vocabulary has %d tokens instead of %d.",
            len(pairs),
            vocab_size - num_merges + len(pairs),
            vocab_size,
        )

    spelled = [bytes([byte]) for byte in range(256)]  # by the trainer's ids
    for left, right in pairs:
        spelled.append(spelled[left] + spelled[right])
    vocab = dict(enumerate([*(token.encode() for token in special_tokens), *spelled]))
    merges = [(spelled[left], spelled[right]) for left, right in pairs]
    return Tokenizer(vocab, merges, special_tokens, pattern=pattern)


def train_bpe(
    input_path: StrPath, vocab_size: int, special_tokens: Sequence[str]
) -> tuple[dict[int, bytes], list[tuple[bytes, bytes]]]:
    """The plain form: one file to a vocabulary and its merges."""
    tokenizer = train_tokenizer(input_path, vocab_size, special_tokens)
    return dict(tokenizer.vocab), list(tokenizer.merges)


def _check(vocab_size: int, special_tokens: list[str], num_merges: int) -> None:
    if num_merges < 0:
        raise ValueError(
            f"A vocabulary of {vocab_size} cannot hold the 256 bytes and {len(special_tokens)} "
            f"special tokens; make vocab_size at least {256 + len(special_tokens)}."
        )
    for place, token in enumerate(special_tokens):
        if token in special_tokens[:place]:
            raise ValueError(f"The special token {token!r} is given twice; name it once.")
        if not isinstance(token, str) or not token:
            raise ValueError(f"A special token is a text that is not empty, but one is {token!r}.")
        if len(token.encode("utf-8", "surrogatepass")) == 1:
            raise ValueError(
                f"The special token {token!r} is one of the 256 bytes; choose a longer one."
            )


def _files(paths: StrPath | Iterable[StrPath] | None) -> list[Path]:
    if paths is None:
        return []
    files = [Path(paths)] if isinstance(paths, str | os.PathLike) else [Path(p) for p in paths]
    for file in files:
        with file.open("rb"):  # a misspelt name is an error now, not after an hour of counting
            pass
    return files


def _count_custom(
    files: list[Path], texts: Iterable[str] | None, pattern: str, special_tokens: list[str]
) -> Counter[str]:
    """Count pieces of a pattern that may look anywhere: each file is read whole."""
    splitter = CustomSplitter(pattern, dict.fromkeys(special_tokens, 0))
    counts: Counter[str] = Counter()
    for text in _all_texts(files, texts):
        pieces = splitter.split(text, allow_special=True)
        counts.update(piece for piece, special_id in pieces if special_id is None)
    return counts


def _all_texts(files: list[Path], texts: Iterable[str] | None) -> Iterator[str | bytes]:
    for file in files:
        yield file.read_bytes()
    yield from texts or ()
