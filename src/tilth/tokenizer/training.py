"""Train a tokenizer: learn the merges of a corpus.

The corpus is text files, folders, JSON lines, Parquet, compressed files, or an iterable of strings.
The merges are those of `reference.train`, for any number of threads and any order of the files.
They depend on the counts of the pieces alone, which `count_pieces` returns.

>>> tokenizer = train_tokenizer(texts=["low low low lower lower"], vocab_size=259)
>>> tokenizer.merges
((b'o', b'w'), (b'l', b'ow'), (b' ', b'low'))
"""

import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

from tilth.config.threads import checked_threads
from tilth.corpus.compression import open_listed
from tilth.corpus.listing import compression_of, kind_of, list_sources
from tilth.corpus.readers import Corpus, warn_skipped
from tilth.files import Progress, StrPath, no_progress
from tilth.tokenizer._core import MAX_TOKENS, Trainer, unicode_version
from tilth.tokenizer.counts import Counting, CountsFile, PieceCounts
from tilth.tokenizer.patterns import Pattern, describe, is_native, steps_of
from tilth.tokenizer.splitting import CustomSplitter
from tilth.tokenizer.table import Pair
from tilth.tokenizer.tokenizer import Tokenizer

Paths = StrPath | Iterable[StrPath] | None

SEPARATOR = "<|endoftext|>"
TEXTS_PER_BATCH = 1024  # enough work for all threads, little to hold in memory

log = logging.getLogger(__name__)


def train_tokenizer(
    paths: Paths = None,
    vocab_size: int = 10_000,
    special_tokens: Sequence[str] | None = None,
    *,
    texts: Iterable[str] | None = None,
    counts: PieceCounts | StrPath | None = None,
    pattern: Pattern | None = None,
    separator: str | None = None,
    field: str = "text",
    on_error: str = "stop",
    threads: int | None = None,
    progress: Progress | None = None,
) -> Tokenizer:
    """Learn merges, most frequent pair first, until the vocabulary is full or no pair is left.

    `vocab_size` counts special tokens (the first ids), the 256 bytes and the merges. The text is
    split at special tokens before pieces are counted, by the pattern "gpt2" unless one is given.
    Files are streamed; memory grows with the number of distinct pieces.

    The core reads files of plain text itself: it splits them at special tokens only, and malformed
    UTF-8 counts as U+FFFD. `tilth.corpus.Corpus` reads all other files into documents, according to
    `separator`, `field` and `on_error`; plain text too if `separator` is not a special token.

    The text is not normalized, and the new tokenizer has no normalizer: normalize the corpus first,
    then add one with `Vocabulary`.

    `counts`, instead of a corpus, are those of `count_pieces`, or a file of them. They have the
    special tokens and the pattern. The tokenizer is that of the corpus.

    `progress` is called in the phases "count" (bytes; "read" for a file of counts) and "merge".
    """
    tell = progress or no_progress
    if counts is None:
        settings = _checked_settings(texts, special_tokens, pattern)
        num_merges = checked_merges(vocab_size, settings)
        trainer = _counted(settings, paths, texts, separator, field, on_error, threads, tell)
    elif paths is not None or texts is not None:
        raise ValueError("There are both counts and a corpus; give one of them.")
    else:
        source = counts if isinstance(counts, PieceCounts) else CountsFile(counts)
        settings = source.settings
        _check_given(settings, special_tokens, pattern)
        num_merges = checked_merges(vocab_size, settings)
        trainer = Trainer([], [], 1, tell)  # it only merges, in one thread
        source.add_to(trainer, tell)
    tell("merge", 0, num_merges)
    pairs = trainer.train(num_merges)
    tell("merge", len(pairs), num_merges)
    if len(pairs) < num_merges:
        size = vocab_size - num_merges + len(pairs)
        problem = "No pair is left after %d merges, so the vocabulary has %d tokens instead of %d."
        log.warning(problem, len(pairs), size, vocab_size)

    tokens = [bytes([byte]) for byte in range(256)]  # by the ids of the trainer
    for left, right in pairs:
        tokens.append(tokens[left] + tokens[right])
    special = list(settings.special_tokens)
    vocab = dict(enumerate([*(token.encode() for token in special), *tokens]))
    merges = [(tokens[left], tokens[right]) for left, right in pairs]
    return Tokenizer(vocab, merges, special, pattern=settings.pattern)


def count_pieces(
    paths: Paths = None,
    special_tokens: Sequence[str] | None = None,
    *,
    texts: Iterable[str] | None = None,
    pattern: Pattern = "gpt2",
    separator: str | None = None,
    field: str = "text",
    on_error: str = "stop",
    threads: int | None = None,
    progress: Progress | None = None,
) -> PieceCounts:
    """Count the pieces of a corpus; the arguments are those of `train_tokenizer`.

    The result does not depend on how the corpus is cut into files and documents.
    """
    settings = _checked_settings(texts, special_tokens, pattern)
    tell = progress or no_progress
    trainer = _counted(settings, paths, texts, separator, field, on_error, threads, tell)
    return PieceCounts.of(settings, trainer)


def _counted(
    settings: Counting,
    paths: Paths,
    texts: Iterable[str] | None,
    separator: str | None,
    field: str,
    on_error: str,
    threads: int | None,
    tell: Progress,
) -> Trainer:
    """Return a trainer that has counted the pieces of a corpus."""
    special_tokens, pattern = list(settings.special_tokens), settings.pattern
    files, others = plain_and_others(
        paths, need_corpus=separator is not None and separator not in special_tokens
    )
    separator = SEPARATOR if separator is None else separator
    corpus = Corpus(others, separator=separator, field=field, on_error=on_error) if others else None
    listed = [each for path in files if path.is_file() for each in list_sources(path)[0].files]
    files_bytes = sum(file.size_bytes for file in listed)
    size_bytes = files_bytes + (corpus.size_bytes if corpus else 0)
    done_bytes: int | None = None  # None while the core reads files and counts the bytes

    def watch(phase: str, done: int, total: int) -> None:
        if phase == "count":
            done, total = done if done_bytes is None else done_bytes, size_bytes
        tell(phase, done, total)

    native = is_native(pattern)
    steps = steps_of(pattern) if native else []
    trainer = Trainer(special_tokens, steps, checked_threads(threads), watch)
    tell("count", 0, size_bytes)
    if native:
        trainer.add_files([str(file) for file in files])
        done_bytes = files_bytes
        for batch, read_bytes in _batches(corpus, texts or ()):
            trainer.add_texts(batch)
            done_bytes = files_bytes + read_bytes
            tell("count", done_bytes, size_bytes)
    else:
        log.warning("The pattern %r is not native; regex is slower.", describe(pattern))
        splitter = CustomSplitter(pattern, dict.fromkeys(special_tokens, 0))
        documents = (text for batch, _ in _batches(corpus, texts or ()) for text in batch)
        counts = Counter(
            piece
            for text in chain(map(Path.read_bytes, files), documents)
            for piece, special_id in splitter.split(text, allow_special=True)
            if special_id is None
        )
        for piece, count in counts.items():
            trainer.add_piece(piece.encode(), count)
    for file in listed:  # a file that was truncated meanwhile would count in part
        with open_listed(file):
            pass
    tell("count", size_bytes, size_bytes)
    return trainer


def train_bpe(
    input_path: StrPath, vocab_size: int, special_tokens: Sequence[str]
) -> tuple[dict[int, bytes], list[Pair]]:
    """Train on one file; return the vocabulary and the merges."""
    tokenizer = train_tokenizer(input_path, vocab_size, special_tokens)
    return dict(tokenizer.vocab), list(tokenizer.merges)


def _checked_settings(
    texts: Iterable[str] | None, special_tokens: Sequence[str] | None, pattern: Pattern | None
) -> Counting:
    for name, value in (("texts", texts), ("special_tokens", special_tokens)):
        if isinstance(value, str):  # an iterable of characters
            raise ValueError(f"{name} is one string; give a list of strings.")
    return Counting.of("gpt2" if pattern is None else pattern, special_tokens or ())


def _check_given(
    settings: Counting, special_tokens: Sequence[str] | None, pattern: Pattern | None
) -> None:
    """Check that arguments, if given, are the settings of the counts."""
    given = Counting.of(
        settings.pattern if pattern is None else pattern,
        settings.special_tokens if special_tokens is None else special_tokens,
    )
    given = replace(given, unicode=settings.unicode)
    settings.check_same(given, "The counts and the arguments", "leave the argument out")
    if settings.unicode != unicode_version:
        problem = "The pieces were counted with Unicode %s, and this tilth has %s."
        log.warning(problem, settings.unicode, unicode_version)


def checked_merges(vocab_size: int, settings: Counting) -> int:
    """Return the number of merges of a vocabulary."""
    least = 256 + len(settings.special_tokens)
    if vocab_size < least:
        raise ValueError(
            f"A vocabulary of {vocab_size} cannot hold the 256 bytes and "
            f"{len(settings.special_tokens)} special tokens; make vocab_size at least {least}."
        )
    if vocab_size > MAX_TOKENS:
        raise ValueError(f"vocab_size is too large; give {MAX_TOKENS:,} at most.")
    return vocab_size - least


def plain_and_others(paths: Paths, need_corpus: bool) -> tuple[list[Path], list[Path]]:
    """Separate files and pipes of plain text, which the core reads, from all other paths."""
    if isinstance(paths, str | os.PathLike):
        paths = [paths]
    files, others = [], []
    for path in map(Path, paths or ()):
        if need_corpus or path.is_dir() or kind_of(path) != "text" or compression_of(path):
            others.append(path)
            continue
        files.append(path)
        if not path.exists():
            list_sources(path)  # raises, with the nearest name as a hint
        # Fail now, not after an hour of counting. A pipe is not opened: its writer would see the
        # first reader close it.
        if path.is_file():
            path.open("rb").close()
    return files, others


def _batches(
    corpus: Corpus | None, texts: Iterable[str]
) -> Iterator[tuple[list[bytes] | list[str], int]]:
    """Yield batches of the documents of a corpus, then of texts, and the bytes read so far."""
    skipped = read_bytes = 0
    for block in corpus.blocks() if corpus else ():
        found = block.documents()
        skipped = warn_skipped(log, found.skipped, skipped)
        read_bytes = block.read_bytes
        yield found.texts, read_bytes
    if skipped:
        log.warning("Skipped %d documents in all.", skipped)
    remaining = iter(texts)
    while batch := list(islice(remaining, TEXTS_PER_BATCH)):
        yield batch, read_bytes
