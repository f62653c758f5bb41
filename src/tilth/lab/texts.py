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

from tilth.data.token_files import MANIFEST, SPLITS, Data, Split, open_data
from tilth.data.tokenizing import tokenize
from tilth.files import StrPath, atomic_write, load_manifest, save_manifest
from tilth.tokenizer import Tokenizer, train_tokenizer

MOST_BYTES = 50_000_000  # of each split, if nothing is said
MADE_FROM, KIND, VERSION = "made_from.json", "retokenized data", 1


def documents_of(data: Data, split: Split, max_bytes: int | None = None) -> Iterator[str]:
    """The documents of a split one by one, the first `max_bytes` of them; the last may be cut."""
    left = data.text_bytes(split) if max_bytes is None else max_bytes
    tokenizer = data.tokenizer()
    ids = data.train if split == "train" else data.valid
    for start, end in itertools.pairwise(map(int, data.documents(split))):
        if left <= 0:
            return
        # A token has a byte or more, so no id behind these is needed, however long the document.
        text = tokenizer.decode_bytes(ids[start : min(end - 1, start + left)])[:left]
        left -= len(text)
        if whole_characters := text.decode("utf-8", "ignore"):  # only the limit cuts one in two
            yield whole_characters


def train_on(data: Data, vocab_size: int, max_bytes: int) -> Tokenizer:
    """Train a tokenizer on the train split of a data folder, with its pattern and end token."""
    return train_tokenizer(
        vocab_size=vocab_size,
        special_tokens=[data.end_token],
        texts=documents_of(data, "train", max_bytes),
        pattern=data.tokenizer().pattern,
    )


def retokenize(data: Data, folder: StrPath, vocab_size: int, max_bytes: int = MOST_BYTES) -> Data:
    """Write the documents of a data folder, `max_bytes` of each split, by a tokenizer of this size.

    It is learnt from these documents of the train split, and smaller if they have too few pairs. A
    folder that is finished already is opened, if it was made from the same; killed on the way, the
    next call begins again.
    """
    folder = Path(folder)
    made_from = {"data": data.fingerprint, "vocab_size": vocab_size, "max_bytes": max_bytes}
    if _is_finished(folder, made_from):
        return open_data(folder)
    tokenizer = train_on(data, vocab_size, max_bytes)
    folder.mkdir(parents=True, exist_ok=True)
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
    """The folder of temporary texts; never a link, and never one with files of somebody else."""
    texts = folder / ".texts"
    if not texts.is_symlink():
        texts.mkdir(exist_ok=True)
        own = re.compile(rf"\.?({'|'.join(SPLITS)})\.jsonl(\.[0-9a-f]+\.partial)?")
        if all(own.fullmatch(path.name) for path in texts.iterdir()):
            for path in texts.iterdir():  # what a killed process left
                path.unlink()
            return texts
    raise FileExistsError(f"{texts} is a link or holds other files; move it away.")


def _is_finished(folder: Path, made_from: dict[str, object]) -> bool:
    """Whether the folder holds what is wanted; what is not ours to write over is an error."""
    hint = "name another folder, or remove this one"
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file; name a folder for the token files")
    if not (folder / MADE_FROM).exists():
        if folder.exists() and any(not path.name.startswith(".") for path in folder.iterdir()):
            raise FileExistsError(f"{folder} holds files that are of something else; {hint}")
        return False
    if not (folder / MANIFEST).exists():
        return False
    if load_manifest(folder / MADE_FROM, kind=KIND, version=VERSION) != made_from:
        raise FileExistsError(f"{folder} holds other text or has another vocabulary size; {hint}")
    return True


def _write_lines(data: Data, split: Split, max_bytes: int, folder: Path) -> Path:
    """The documents as JSON lines, as any text may stand between separators, even one of them."""
    path = folder / f"{split}.jsonl"
    with atomic_write(path, overwrite=True) as file:
        for document in documents_of(data, split, max_bytes):
            line = json.dumps({"text": document}, ensure_ascii=False)
            file.write(line.encode() + b"\n")
    return path
