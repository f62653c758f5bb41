r"""The documents of a data folder, and a data folder of the same documents by another tokenizer.

Byte-level BPE is lossless, so token files hold their text.

>>> import tempfile
>>> from tilth.tokenizer import train_tokenizer
>>> tokenizer = train_tokenizer(texts=["a b"], vocab_size=257, special_tokens=["<|endoftext|>"])
>>> with tempfile.TemporaryDirectory() as folder:
...     written = Path(folder, "a.txt").write_text("a cat<|endoftext|>a hat, a cat")
...     data = tokenize(f"{folder}/a.txt", tokenizer, f"{folder}/data", valid=0)
...     again = retokenize(data, f"{folder}/again", vocab_size=260)
...     list(documents_of(data, "train")), list(documents_of(again, "train", max_bytes=10))
...     len(data.train), len(again.train)
(['a cat', 'a hat, a cat'], ['a cat', 'a hat'])
(19, 12)
"""

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path

from tilth.data.guarding import GuardedTokens
from tilth.data.token_files import MANIFEST, SPLITS, Data, Split, open_data
from tilth.data.tokenizing import tokenize
from tilth.files import StrPath, atomic_write, load_manifest, refuse_link, save_manifest
from tilth.tokenizer import Tokenizer, train_tokenizer

MOST_BYTES = 50_000_000  # of each split, by default
STARTS = 1 << 16  # of documents, read at once
MADE_FROM, KIND, VERSION = "made_from.json", "retokenized data", 1


def documents_of(data: Data, split: Split, max_bytes: int | None = None) -> Iterator[str]:
    """Yield the documents of a split, up to `max_bytes`; the last one may be cut."""
    left = data.text_bytes(split) if max_bytes is None else max_bytes
    tokenizer = data.tokenizer()
    # Guarded: another process may cut a memory map short.
    ids = GuardedTokens(data.train if split == "train" else data.valid)
    starts = GuardedTokens(data.documents(split))
    numbers = (starts[first : first + STARTS] for first in range(0, len(starts), STARTS))
    for start, end in itertools.pairwise(map(int, itertools.chain.from_iterable(numbers))):
        if left <= 0:
            return
        # A token has a byte or more, so `left` ids are enough, however long the document.
        text = tokenizer.decode_bytes(ids[start : min(end - 1, start + left)])[:left]
        left -= len(text)
        if whole_characters := text.decode("utf-8", "ignore"):  # only the limit cuts a character
            yield whole_characters


def train_on(data: Data, vocab_size: int, max_bytes: int) -> Tokenizer:
    """Train a tokenizer on the train split of a data folder, with its pattern and end token."""
    return train_tokenizer(
        vocab_size=vocab_size,
        special_tokens=[data.end_token],
        texts=documents_of(data, "train", max_bytes),
        pattern=data.tokenizer().pattern,
    )


def prefix_of(tokenizer: Tokenizer, vocab_size: int) -> Tokenizer:
    """Return a tokenizer with the first `vocab_size` tokens, whose special tokens are the first.

    The merges of a smaller vocabulary are a prefix of those of a larger one.
    """
    vocab = {i: token for i, token in tokenizer.vocab.items() if i < vocab_size}
    special = list(tokenizer.special_tokens)
    merges = tokenizer.merges[: max(0, vocab_size - 256 - len(special))]
    return Tokenizer(vocab, merges, special, pattern=tokenizer.pattern)


def retokenize(data: Data, folder: StrPath, vocab_size: int, max_bytes: int = MOST_BYTES) -> Data:
    """Write the documents of a data folder, `max_bytes` per split, by a new tokenizer.

    The tokenizer is trained on the train split, and smaller if that has too few pairs. A finished
    folder is opened if it was made from the same values; an unfinished one is written again.
    """
    folder = Path(folder)
    made_from = {"data": data.fingerprint, "vocab_size": vocab_size, "max_bytes": max_bytes}
    if _is_finished(folder, made_from):
        return open_data(folder)
    tokenizer = train_on(data, vocab_size, max_bytes)
    folder.mkdir(parents=True, exist_ok=True)
    refuse_link(folder / MADE_FROM)
    # Before the token files: a manifest.json next to it is then always made from these values.
    save_manifest(folder / MADE_FROM, made_from, kind=KIND, version=VERSION, overwrite=True)
    texts = _texts_folder(folder)
    try:
        train, valid = (_write_lines(data, split, max_bytes, texts) for split in SPLITS)
        # Overwrite the files of a call that was killed while it renamed them.
        return tokenize(
            train, tokenizer, folder, valid_corpus=valid, end_token=data.end_token, overwrite=True
        )
    finally:
        for split in SPLITS:
            (texts / f"{split}.jsonl").unlink(missing_ok=True)
        texts.rmdir()


def _texts_folder(folder: Path) -> Path:
    """Return the folder of temporary texts; refuse a link, and a folder with other files."""
    texts = folder / ".texts"
    if not texts.is_symlink():
        texts.mkdir(exist_ok=True)
        own = re.compile(rf"\.?({'|'.join(SPLITS)})\.jsonl(\.[0-9a-f]+\.partial)?")
        if all(own.fullmatch(path.name) for path in texts.iterdir()):
            for path in texts.iterdir():  # of a killed process
                path.unlink()
            return texts
    raise FileExistsError(f"{texts} is a link or holds other files; move it away.")


def _is_finished(folder: Path, made_from: dict[str, object]) -> bool:
    """Return whether the folder was made from these values; raise if it has other files."""
    hint = "name another folder, or remove this one"
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file; name a folder for the token files")
    if not (folder / MADE_FROM).exists():
        if folder.exists() and any(not path.name.startswith(".") for path in folder.iterdir()):
            raise FileExistsError(f"{folder} holds other files; {hint}")
        return False
    if not (folder / MANIFEST).exists():
        return False
    if load_manifest(folder / MADE_FROM, kind=KIND, version=VERSION) != made_from:
        raise FileExistsError(f"{folder} holds other text or has another vocabulary size; {hint}")
    return True


def _write_lines(data: Data, split: Split, max_bytes: int, folder: Path) -> Path:
    """Write the documents as JSON lines; a separator could be part of a document."""
    path = folder / f"{split}.jsonl"
    with atomic_write(path, overwrite=True) as file:
        for document in documents_of(data, split, max_bytes):
            line = json.dumps({"text": document}, ensure_ascii=False)
            file.write(line.encode() + b"\n")
    return path
