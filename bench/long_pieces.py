"""Speed of encoding a single piece of one megabyte, as in hostile or broken text.

A text that the pattern does not split is one piece, for which a simple merge takes quadratic time.
One thread, GPT-2's vocabulary, the first pass in a process.
Target: at least 10 MB/s (the column MB/s of tilth) on each of the four texts.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

from bench.declaration import Benchmark
from bench.encoding import ONE_THREAD, contenders
from bench.vocabularies import tokenizer_texts
from bench.workloads import pick, write_once

SIZE_BYTES = 1_000_000


def prepare(folder: Path) -> dict[str, Path]:
    """Write four pieces to the folder of the vocabulary."""
    tokenizer_texts(folder)
    folder = folder / "gpt2"
    random = Random(4)
    letters = "".join(pick(random, "abcdefghijklmnopqrstuvwxyz") for _ in range(SIZE_BYTES))
    pieces = {
        "one letter": "a" * SIZE_BYTES,
        "random letters": letters,
        "spaces": " " * SIZE_BYTES,
        "one emoji": "😀" * (SIZE_BYTES // 4),
    }
    return {
        name: write_once(folder / f"{name}.txt", partial(str, piece))
        for name, piece in pieces.items()
    }


BENCHMARK = Benchmark(
    prepare=prepare,
    contenders=[replace(contender, sample=1.0) for contender in contenders(0, "bytes")],
    threads=1,
    environment=ONE_THREAD,
)
