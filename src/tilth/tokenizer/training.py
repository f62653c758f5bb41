"""Train a tokenizer: learn the merges of a corpus.

The corpus is text files, folders, JSON lines, Parquet, compressed files, or an iterable of strings.
The merges are those of `reference.train`, for any number of threads and any order of the files.

>>> tokenizer = train_tokenizer(texts=["low low low lower lower"], vocab_size=259)
>>> tokenizer.merges
((b'o', b'w'), (b'l', b'ow'), (b' ', b'low'))
"""

import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

from tilth.config.threads import checked_threads
from tilth.corpus.listing import compression_of, kind_of, list_sources
from tilth.corpus.readers import Corpus
from tilth.files import Progress, StrPath
from tilth.tokenizer._core import MAX_TOKENS, Trainer
from tilth.tokenizer.patterns import Pattern, describe, is_native, steps_of
from tilth.tokenizer.splitting import CustomSplitter
from tilth.tokenizer.tokenizer import Tokenizer
from tilth.tokenizer.vocabulary import Pair, Vocabulary

SEPARATOR = "<|endoftext|>"
TEXTS_PER_BATCH = 1024  # enough work for all threads, little to hold in memory
MAX_WARNINGS = 5  # about skipped documents

log = logging.getLogger(__name__)


def train_tokenizer(
    paths: StrPath | Iterable[StrPath] | None = None,
    vocab_size: int = 10_000,
    special_tokens: Sequence[str] | None = None,
    *,
    texts: Iterable[str] | None = None,
    pattern: Pattern = "gpt2",
    separator: str | None = None,
    field: str = "text",
    on_error: str = "stop",
    threads: int | None = None,
    progress: Progress | None = None,
) -> Tokenizer:
    """Learn merges, most frequent pair first, until the vocabulary is full or no pair is left.

    `vocab_size` counts special tokens (the first ids), the 256 bytes and the merges. The text is
    split at special tokens before pieces are counted. Files are streamed; memory grows with the
    number of distinct pieces.

    The core reads files of plain text itself: it splits them at special tokens only, and malformed
    UTF-8 counts as U+FFFD. `tilth.corpus.Corpus` reads all other files into documents, according to
    `separator`, `field` and `on_error`; plain text too if `separator` is not a special token.
    `progress` is called in the phases "count" (bytes) and "merge" (merges).
    """
    for name, value in (("texts", texts), ("special_tokens", special_tokens)):
        if isinstance(value, str):  # an iterable of characters
            raise ValueError(f"{name} is one string; give a list of strings.")
    special_tokens = list(special_tokens or [])
    num_merges = vocab_size - 256 - len(special_tokens)
    _check(vocab_size, special_tokens, pattern, num_merges)
    files, others = _plain_and_others(
        paths, need_corpus=separator is not None and separator not in special_tokens
    )
    separator = SEPARATOR if separator is None else separator
    corpus = Corpus(others, separator=separator, field=field, on_error=on_error) if others else None
    files_bytes = sum(file.stat().st_size for file in files)
    size_bytes = files_bytes + (corpus.size_bytes if corpus else 0)
    tell = progress or (lambda _phase, _done, _total: None)
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
    tell("count", size_bytes, size_bytes)
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
    vocab = dict(enumerate([*(token.encode() for token in special_tokens), *tokens]))
    merges = [(tokens[left], tokens[right]) for left, right in pairs]
    return Tokenizer(vocab, merges, special_tokens, pattern=pattern)


def train_bpe(
    input_path: StrPath, vocab_size: int, special_tokens: Sequence[str]
) -> tuple[dict[int, bytes], list[Pair]]:
    """Train on one file; return the vocabulary and the merges."""
    tokenizer = train_tokenizer(input_path, vocab_size, special_tokens)
    return dict(tokenizer.vocab), list(tokenizer.merges)


def _check(vocab_size: int, special_tokens: list[str], pattern: Pattern, num_merges: int) -> None:
    if num_merges < 0:
        raise ValueError(
            f"A vocabulary of {vocab_size} cannot hold the 256 bytes and {len(special_tokens)} "
            f"special tokens; make vocab_size at least {256 + len(special_tokens)}."
        )
    if vocab_size > MAX_TOKENS:
        raise ValueError(f"vocab_size is too large; give {MAX_TOKENS:,} at most.")
    validated = Vocabulary.from_parts({}, (), special_tokens, pattern=pattern)
    for token in validated.special_tokens:
        if len(token.encode()) == 1:
            raise ValueError(f"The special token {token!r} is a single byte; choose a longer one.")


def _plain_and_others(
    paths: StrPath | Iterable[StrPath] | None, need_corpus: bool
) -> tuple[list[Path], list[Path]]:
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
        for sentence in found.skipped[: max(0, MAX_WARNINGS - skipped)]:
            log.warning("Skipped: %s.", sentence)
        skipped += len(found.skipped)
        read_bytes = block.read_bytes
        yield found.texts, read_bytes
    if skipped:
        log.warning("Skipped %d documents in all.", skipped)
    remaining = iter(texts)
    while batch := list(islice(remaining, TEXTS_PER_BATCH)):
        yield batch, read_bytes
