"""The two corpora of the write-up: those given, or the built-in ones.

The built-in corpora are the generated stories and the source of Python's standard library, a text
that every installation has and that resembles the stories little.
"""

import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

from tilth.config.model import END_TOKEN
from tilth.corpus.stories import write_stories
from tilth.data.token_files import MANIFEST, Data, open_data
from tilth.data.tokenizing import tokenize
from tilth.files import StrPath, atomic_write
from tilth.lab.question import Tell
from tilth.lab.texts import documents_of
from tilth.tokenizer import train_tokenizer

BUILT_IN = ("stories", "python")
BUILT_IN_BYTES = 20_000_000  # at most, of each
VOCAB_SIZE = 10_000
BYTES_PER_TOKEN_OF_VOCABULARY = 500  # fewer leave tokens that training hardly sees
VALID = 0.05


def open_corpora(data: Sequence[StrPath | Data]) -> list[Data]:
    """Open the two given data folders."""
    if len(data) != 2:
        raise ValueError(
            f"{len(data)} data folders are given; give --data twice, for stories and for another "
            "text, or leave it out for the built-in corpora."
        )
    opened = [each if isinstance(each, Data) else open_data(each) for each in data]
    if len({each.folder.resolve().name for each in opened}) < len(opened):
        raise ValueError("The two data folders have the same name; rename one.")
    return opened


def make_corpora(folder: Path, size_bytes: int, seed: int, tell: Tell) -> list[Data]:
    """Make the built-in corpora with a tokenizer each; those that exist are opened."""
    size_bytes = min(size_bytes, BUILT_IN_BYTES)
    opened = []
    for name in BUILT_IN:
        made = folder / name
        if not (made / MANIFEST).exists():
            tell(f"Making the built-in corpus {name}: {size_bytes / 1e6:.1f} MB.")
            folder.mkdir(parents=True, exist_ok=True)
            text = folder / f"{name}.txt"
            if name == "stories":
                write_stories(text, size_bytes, seed, overwrite=True)
            else:
                _write_documents(text, _standard_library(), size_bytes)
            vocab_size = max(300, min(VOCAB_SIZE, size_bytes // BYTES_PER_TOKEN_OF_VOCABULARY))
            tokenizer = train_tokenizer(text, vocab_size, [END_TOKEN])
            tokenize(text, tokenizer, made, valid=VALID, overwrite=True)
        opened.append(open_data(made))
    return opened


def write_text(data: Data, path: Path, size_bytes: int) -> int:
    """Write documents of the train split as a text file with separators; return its bytes."""
    return _write_documents(path, documents_of(data, "train", size_bytes), size_bytes)


def _write_documents(path: Path, documents: Iterator[str], size_bytes: int) -> int:
    written = 0
    with atomic_write(path, overwrite=True) as file:
        for document in documents:
            if written >= size_bytes:
                break
            written += file.write(f"{document}{END_TOKEN}".encode())
    return written


def _standard_library() -> Iterator[str]:
    """Yield the parts of the standard library's modules that two empty lines separate."""
    library = Path(sysconfig.get_paths()["stdlib"])
    for path in [*sorted(library.glob("*.py")), *sorted(library.glob("[a-rt-z]*/*.py"))]:
        text = path.read_text("utf-8", errors="replace")
        yield from (part.strip("\n") for part in text.split("\n\n\n") if part.strip())
