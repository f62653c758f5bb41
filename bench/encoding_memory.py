"""Memory of encoding a str of 200 million characters with one emoji, beyond the str and the ids.

The emoji makes Python store each character in four bytes: converting the whole text to UTF-8 would
take 200 MB, and stay with the str. One thread, GPT-2's vocabulary (or one trained by tilth). The
argument exists before the run; the size of the ids is subtracted (32 bytes for an int of a list).
Target: at most 300 MB.
"""

import sys
from pathlib import Path
from typing import Any

from bench.declaration import Benchmark, Contender, Limit
from bench.encoding import ONE_THREAD, Task, same_ids
from bench.vocabularies import tokenizer_texts
from bench.workloads import call, english, read_text, repetitions, write_once

SIZE_BYTES = 200_000_000
EMOJI = "🌱"
INT_BYTES, SMALL_INTS = 32, 257  # of an int object; Python has one object for each smaller int
LIMIT_BYTES = 300e6


def prepare(folder: Path) -> dict[str, Path]:
    """Write ASCII text and one emoji to the folder of the vocabulary."""
    tokenizer_texts(folder)

    def text() -> str:
        parts: list[str] = []
        ascii_only = [english(20_000_000).encode("ascii", "ignore").decode()]
        for repetition in repetitions(ascii_only, seed=5, words_per_change=200):
            parts += repetition
            if sum(map(len, parts)) >= SIZE_BYTES:
                break
        return "\n".join(parts)[: SIZE_BYTES - 1] + EMOJI

    return {"ASCII and one emoji": write_once(folder / "gpt2" / "emoji.txt", text)}


def array(file: Path, sample: float) -> Task:
    """Encode into an array."""
    from tilth.tokenizer import Tokenizer

    return Tokenizer.load(file.parent / "tilth.json").encode_array, read_text(file, sample)


def ids_list(file: Path, sample: float) -> Task:
    """Encode into a list."""
    from tilth.tokenizer import Tokenizer

    return Tokenizer.load(file.parent / "tilth.json").encode, read_text(file, sample)


def array_bytes(ids: Any) -> int:  # noqa: ANN401, an array
    """Return the size of an array."""
    return int(ids.nbytes)


def list_bytes(ids: list[int]) -> int:
    """Return the size of a list and of its ints."""
    return sys.getsizeof(ids) + INT_BYTES * sum(1 for token_id in ids if token_id >= SMALL_INTS)


BENCHMARK = Benchmark(
    prepare=prepare,
    contenders=[
        Contender("encode_array", array, call, same_ids, "tilth", result_bytes=array_bytes),
        Contender("encode", ids_list, call, same_ids, "tilth", result_bytes=list_bytes),
    ],
    threads=1,
    environment=ONE_THREAD,
    targets=[
        Limit("encode_array", LIMIT_BYTES, "growth_bytes"),
        Limit("encode", LIMIT_BYTES, "growth_bytes"),
    ],
)
