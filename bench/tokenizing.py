"""Speed and memory of converting a corpus file into a token file, compared with other tokenizers.

Two threads, GPT-2's vocabulary (or one trained by tilth, if that is missing), loaded before the
timed run. 200 MB of stories, and 216 MB of text with a million distinct pieces, become 16-bit ids.
Peers return 32-bit ids in memory; the benchmark narrows and writes them, without end tokens. tilth
writes a data folder: end tokens, document index, validation split, checksums, all synced to disk.
Target: at least 1.5 times as fast as the better of gigatoken and tokie.
"""

# Type checking does not need the peers.
# mypy: disable-error-code="import-not-found, import-untyped"

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from shutil import rmtree
from typing import Any

from bench.declaration import Benchmark, Contender, Target
from bench.tokenizer_training import SIZE_BYTES, source_texts
from bench.workloads import (
    REAL_TEXT,
    SPECIAL_TOKEN,
    fingerprint,
    tokenizer_texts,
    with_rare_words,
    write_once,
)

Task = Callable[[], Path]
"""Convert the corpus; return the file of ids."""


def prepare(folder: Path) -> dict[str, Path]:
    """Make a corpus of stories and one of varied text; each document ends in the separator."""
    from tilth.corpus.stories import stories

    tokenizer_texts(folder)

    def corpus() -> str:
        documents = with_rare_words(source_texts(), SIZE_BYTES).split(SPECIAL_TOKEN)
        return "".join(text + SPECIAL_TOKEN for text in documents if text.strip())

    def many_stories() -> str:
        count = SIZE_BYTES // 1000  # a story has about a thousand bytes
        return "".join(text + SPECIAL_TOKEN for text in islice(stories(), count))

    name = "real text, varied" if REAL_TEXT.exists() else "generated text, varied"
    return {
        "stories": write_once(folder / "stories.txt", many_stories),
        name: write_once(folder / "corpus.txt", corpus),
    }


def run(task: Task) -> Path:
    """Convert the corpus."""
    return task()


def tilth(file: Path, sample: float) -> Task:
    """Write a data folder with tilth."""
    from tilth.data import tokenize
    from tilth.tokenizer import Tokenizer

    out = file.parent / "tilth"
    rmtree(out, ignore_errors=True)
    tokenizer = Tokenizer.load(file.parent / "tokenizer.json")

    def task() -> Path:
        tokenize(file, tokenizer, out, valid=0, threads=2)
        return out / "train.npy"

    return task


def gigatoken(file: Path, sample: float) -> Task:
    """Encode a file with gigatoken and write its ids."""
    import awkward
    import numpy as np
    from gigatoken import TextFileSource, Tokenizer

    tokenizer = Tokenizer(file.parent / "tokenizer.json")
    out = file.parent / "gigatoken.bin"

    def task() -> Path:
        rows = tokenizer.encode_files(TextFileSource([str(file)], separator=SPECIAL_TOKEN))
        np.asarray(awkward.flatten(rows)).astype(np.uint16).tofile(out)
        return out

    return task


def tokie(file: Path, sample: float) -> Task:
    """Encode a file with tokie and write its ids."""
    import numpy as np
    from tokie import Tokenizer

    tokenizer = Tokenizer.from_json(str(file.parent / "tokenizer.json"))
    out = file.parent / "tokie.bin"

    def task() -> Path:
        ids, _ = tokenizer.encode_files([str(file)], separator=SPECIAL_TOKEN.encode())
        ids.astype(np.uint16).tofile(out)
        return out

    return task


def same_ids(written: Path) -> dict[str, Any]:
    """Return the number and a checksum of the ids in a file, without end tokens."""
    import json

    import numpy as np

    ids = np.load(written) if written.suffix == ".npy" else np.fromfile(written, np.uint16)
    if written.suffix == ".npy":
        ids = ids[ids != json.loads((written.parent / "manifest.json").read_text())["end_token_id"]]
    return {"tokens": len(ids), "sha256": fingerprint(ids.tobytes())}


BENCHMARK = Benchmark(
    prepare=prepare,
    contenders=[
        Contender("tilth", tilth, run, same_ids, package="tilth"),
        Contender("gigatoken", gigatoken, run, same_ids, package="gigatoken", against="tilth"),
        Contender("tokie", tokie, run, same_ids, package="tokie", against="tilth"),
    ],
    threads=2,
    targets=[Target("gigatoken", at_least=1.5), Target("tokie", at_least=1.5)],
)
