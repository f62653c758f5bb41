"""Speed of decoding token ids into bytes, compared with other tokenizers.

One thread, GPT-2's vocabulary, the ids of a whole text. Two comparisons: from a list of Python
integers, the input of tiktoken, and from an array, which needs no object per id.
Target: at least 4 times as fast as tiktoken on every text.
"""

# Type checking does not need the peers.
# mypy: disable-error-code="import-not-found, import-untyped"

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import encoding
from bench.declaration import Benchmark, Contender, Target
from bench.vocabularies import tokenizer_texts
from bench.workloads import call, fingerprint

Task = tuple[Callable[[Any], bytes], Any]


def text_ids(file: Path, sample: float) -> Any:  # noqa: ANN401, an array of uint32
    """Encode the text, untimed."""
    encode, text = encoding.tilth(file, sample)
    return encode(text)


def tilth_array(file: Path, sample: float) -> Task:
    """Decode an array with tilth."""
    from tilth.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(file.parent / "tilth.json")
    return tokenizer.decode_bytes, text_ids(file, sample)


def tilth_list(file: Path, sample: float) -> Task:
    """Decode a list with tilth."""
    decode, ids = tilth_array(file, sample)
    return decode, ids.tolist()


def tiktoken_list(file: Path, sample: float) -> Task:
    """Decode a list with tiktoken."""
    return encoding.tiktoken_encoding(file.parent).decode_bytes, text_ids(file, sample).tolist()


def gigatoken_list(file: Path, sample: float) -> Task:
    """Decode a list with gigatoken."""
    decode, ids = gigatoken_array(file, sample)
    return decode, ids.tolist()


def gigatoken_array(file: Path, sample: float) -> Task:
    """Decode an array with gigatoken."""
    from gigatoken import Tokenizer

    return Tokenizer(file.parent / "tokenizer.json").decode, text_ids(file, sample)


def same_bytes(text: bytes) -> dict[str, Any]:
    """Return the number of bytes and a checksum."""
    return {"bytes": len(text), "sha256": fingerprint(text)}


def peer(name: str, setup: Callable[[Path, float], Task], package: str, ours: str) -> Contender:
    """Declare a peer."""
    return Contender(name, setup, call, same_bytes, package=package, against=ours)


BENCHMARK = Benchmark(
    prepare=tokenizer_texts,
    threads=1,
    contenders=[
        Contender("tilth list", tilth_list, call, same_bytes, package="tilth"),
        peer("tiktoken list", tiktoken_list, "tiktoken", "tilth list"),
        peer("gigatoken list", gigatoken_list, "gigatoken", "tilth list"),
        Contender("tilth array", tilth_array, call, same_bytes, package="tilth"),
        peer("gigatoken array", gigatoken_array, "gigatoken", "tilth array"),
    ],
    targets=[Target("tiktoken list", at_least=4.0)],
)
