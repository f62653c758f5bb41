"""Speed and memory of converting a corpus file into a token file, compared with other tokenizers.

Two threads, GPT-2's vocabulary (or one trained by tilth, if that is missing), loaded before the
timed run. 200 MB of stories, and 216 MB of text with a million distinct pieces, become 16-bit ids.
Peers return 32-bit ids in memory; the benchmark narrows and writes them, without end tokens. tilth
writes a data folder: end tokens, document index, validation split, checksums, all synced to disk.
"encoding alone" encodes the same bytes, already in memory, and discards the ids.
Targets: at least 1.5 times as fast as the better of gigatoken and tokie, at most 256 MB of memory,
at least 0.8 of the speed of encoding alone.
"""

# Type checking does not need the peers.
# mypy: disable-error-code="import-not-found, import-untyped"

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from shutil import rmtree
from typing import Any

from bench.declaration import Benchmark, Contender, Limit, Target
from bench.tokenizer_training import SIZE_BYTES, source_texts
from bench.vocabularies import tokenizer_texts
from bench.workloads import (
    REAL_TEXT,
    SPECIAL_TOKEN,
    fingerprint,
    with_rare_words,
    write_once,
)

Task = Callable[[], Any]
"""Convert the corpus; return the file of ids, or the ids and the id of the end token."""


def prepare(folder: Path) -> dict[str, Path]:
    """Make a corpus of stories and one of varied text; each document ends in the separator."""
    from tilth.corpus.stories import stories

    tokenizer_texts(folder)
    folder = folder / "gpt2"

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


def run(task: Task) -> Any:  # noqa: ANN401, see Task
    """Convert the corpus."""
    return task()


def tilth(file: Path, sample: float) -> Task:
    """Write a data folder with tilth."""
    from tilth.data import tokenize
    from tilth.tokenizer import Tokenizer

    out = file.parent / "tilth"
    rmtree(out, ignore_errors=True)
    tokenizer = Tokenizer.load(file.parent / "tilth.json")

    def task() -> Path:
        tokenize(file, tokenizer, out, valid=0, threads=2)
        return out / "train.npy"

    return task


def encoding_alone(file: Path, sample: float) -> Task:
    """Encode the bytes of the file with tilth."""
    from tilth.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(file.parent / "tilth.json")
    data = file.read_bytes()
    end = tokenizer.special_tokens[SPECIAL_TOKEN]
    return lambda: (tokenizer.encode_array(data, threads=2), end)


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


def same_ids(written: Any) -> dict[str, Any]:  # noqa: ANN401, see Task
    """Return the number and a checksum of the ids in a file, without end tokens."""
    import json

    import numpy as np

    if not isinstance(written, Path):
        ids, end = written
    elif written.suffix == ".npy":
        ids = np.load(written)
        end = json.loads((written.parent / "manifest.json").read_text())["end_token_id"]
    else:
        ids, end = np.fromfile(written, np.uint16), None
    ids = (ids if end is None else ids[ids != end]).astype(np.uint16)
    return {"tokens": len(ids), "sha256": fingerprint(ids.tobytes())}


BENCHMARK = Benchmark(
    prepare=prepare,
    contenders=[
        Contender("tilth", tilth, run, same_ids, package="tilth"),
        Contender("gigatoken", gigatoken, run, same_ids, package="gigatoken", against="tilth"),
        Contender("tokie", tokie, run, same_ids, package="tokie", against="tilth"),
        Contender("encoding alone", encoding_alone, run, same_ids, "tilth", against="tilth"),
    ],
    threads=2,
    targets=[
        Target(("gigatoken", "tokie"), at_least=1.5),
        Limit("tilth", at_most=256e6),
        Target("encoding alone", at_least=0.8),
    ],
)
