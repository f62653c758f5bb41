"""Train a tokenizer: texts or files to merges.

What enters: a corpus (text files, folders, JSON lines, Parquet, compressed ones), or an iterable of
strings. What leaves: a `Tokenizer` whose merges are those of `reference.train`, for any number of
threads and any order of the files.

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
from tilth.corpus.listing import compression_of, kind_of, listed
from tilth.corpus.readers import Corpus
from tilth.files import Progress, StrPath
from tilth.tokenizer._core import MAX_TOKENS, Trainer
from tilth.tokenizer.splitting import NATIVE_PATTERNS, CustomSplitter
from tilth.tokenizer.tokenizer import Tokenizer
from tilth.tokenizer.vocabulary import Vocabulary

SEPARATOR = "<|endoftext|>"
TEXTS_AT_ONCE = 1024  # shared between the threads: enough for all, and little to hold
SHOWN_SENTENCES = 5  # of skipped documents; a million bad lines need not be read one by one

log = logging.getLogger(__name__)


def train_tokenizer(
    paths: StrPath | Iterable[StrPath] | None = None,
    vocab_size: int = 10_000,
    special_tokens: Sequence[str] | None = None,
    *,
    texts: Iterable[str] | None = None,
    pattern: str = "gpt2",
    separator: str | None = None,
    field: str = "text",
    on_error: str = "stop",
    threads: int | None = None,
    progress: Progress | None = None,
) -> Tokenizer:
    """Learn merges, most frequent pair first, until the vocabulary is full or no pair is left.

    `vocab_size` counts everything: the special tokens (the first ids), the 256 bytes, the merges.
    Special tokens cut the text before anything is counted. Files are read in parts, never whole;
    memory grows with the number of different pieces.

    Files of plain text go straight to the core, which cuts them at special tokens alone and counts
    what is not UTF-8 as U+FFFD. Of all others, and of those too if a `separator` is named that is
    no special token, the documents are counted as `tilth.corpus.Corpus` reads them by `separator`,
    `field` and `on_error`. `progress` hears of the phases "count" (in bytes) and "merge".
    """
    for name, value in (("texts", texts), ("special_tokens", special_tokens)):
        if isinstance(value, str):  # it would be taken for a list of characters
            raise ValueError(f"{name} is one string; give a list of strings.")
    special_tokens = list(special_tokens or [])
    num_merges = vocab_size - 256 - len(special_tokens)
    _check(vocab_size, special_tokens, num_merges)
    is_cut_elsewhere = separator is not None and separator not in special_tokens
    files, others = _plain_and_others(paths, is_cut_elsewhere)
    separator = SEPARATOR if separator is None else separator
    corpus = Corpus(others, separator=separator, field=field, on_error=on_error) if others else None
    files_bytes = sum(file.stat().st_size for file in files)
    size_bytes = files_bytes + (corpus.size_bytes if corpus else 0)
    tell = progress or (lambda _phase, _done, _total: None)
    done_bytes: int | None = None  # while None, the core itself knows

    def watch(phase: str, done: int, total: int) -> None:
        if phase == "count":
            done, total = done if done_bytes is None else done_bytes, size_bytes
        tell(phase, done, total)

    trainer = Trainer(special_tokens, pattern, checked_threads(threads), watch)
    tell("count", 0, size_bytes)
    if pattern in NATIVE_PATTERNS:
        trainer.add_files([str(file) for file in files])
        done_bytes = files_bytes
        for documents, read_bytes in _batches(corpus):
            trainer.add_texts(documents)
            done_bytes = files_bytes + read_bytes
            tell("count", done_bytes, size_bytes)
        remaining = iter(texts or ())
        while batch := list(islice(remaining, TEXTS_AT_ONCE)):
            trainer.add_texts(batch)
    else:
        log.warning("The pattern %r goes through the regex package, which is slower.", pattern)
        all_texts: Iterable[str | bytes] = chain(
            (file.read_bytes() for file in files),
            (text for documents, _ in _batches(corpus) for text in documents),
            texts or (),
        )
        for piece, count in _count_custom(all_texts, pattern, special_tokens).items():
            trainer.add_piece(piece.encode(), count)
    tell("count", size_bytes, size_bytes)
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
    if vocab_size > MAX_TOKENS:
        raise ValueError(f"vocab_size is too large; give {MAX_TOKENS:,} at most.")
    for token in Vocabulary.from_parts({}, (), special_tokens).special_tokens:  # checks them
        if len(token.encode()) == 1:
            raise ValueError(
                f"The special token {token!r} is one of the 256 bytes; choose a longer one."
            )


def _plain_and_others(
    paths: StrPath | Iterable[StrPath] | None, is_cut_elsewhere: bool
) -> tuple[list[Path], list[Path]]:
    """The files that are text as they stand, a pipe too; and all other paths."""
    if isinstance(paths, str | os.PathLike):
        paths = [paths]
    files, others = [], []
    for path in map(Path, paths or ()):
        is_plain = not path.is_dir() and kind_of(path) == "text" and not compression_of(path)
        if is_cut_elsewhere or not is_plain:
            others.append(path)
            continue
        if not path.exists():
            listed(path)  # says so, and which name is meant
        # What cannot be read is an error now, not after an hour of counting. A pipe is left alone:
        # its writer would see the first reader close it.
        if path.is_file():
            path.open("rb").close()
        files.append(path)
    return files, others


def _batches(corpus: Corpus | None) -> Iterator[tuple[list[bytes], int]]:
    """The documents of a corpus, and the bytes that are read so far."""
    skipped = 0
    for block in corpus.blocks() if corpus else ():
        found = block.documents()
        for sentence in found.skipped[: max(0, SHOWN_SENTENCES - skipped)]:
            log.warning("Skipped: %s.", sentence)
        skipped += len(found.skipped)
        yield found.texts, block.read_bytes
    if skipped:
        log.warning("Skipped %d documents in all.", skipped)


def _count_custom(
    texts: Iterable[str | bytes], pattern: str, special_tokens: list[str]
) -> Counter[str]:
    """Count pieces of a pattern that may look anywhere: each text is taken whole."""
    splitter = CustomSplitter(pattern, dict.fromkeys(special_tokens, 0))
    counts: Counter[str] = Counter()
    for text in texts:
        pieces = splitter.split(text, allow_special=True)
        counts.update(piece for piece, special_id in pieces if special_id is None)
    return counts
