"""How fast token ids become bytes again, beside its peers.

One thread, GPT-2's vocabulary, the ids of a whole text. Two comparisons: from a list of Python
integers, which tiktoken takes, and from an array, which costs no object for each id.
Target: at least 5 times as fast as tiktoken.
"""

# Peers need not be installed where types are checked.
# mypy: disable-error-code="import-not-found, import-untyped"

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from bench import encoding
from bench.declaration import Benchmark, Contender, Target
from bench.workloads import tokenizer_texts

Task = tuple[Callable[[Any], bytes], Any]


def run(task: Task) -> bytes:
    """Do what is timed."""
    decode, ids = task
    return decode(ids)


def text_ids(file: Path, sample: float) -> Any:  # noqa: ANN401, an array of uint32
    """Encode the text, outside what is timed."""
    encode, text = encoding.tilth(file, sample)
    return encode(text)


def tilth_array(file: Path, sample: float) -> Task:
    """Decode an array with tilth."""
    from tilth.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(file.parent / "tokenizer.json")
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
    """Sum up bytes so that other bytes give another answer."""
    return {"bytes": len(text), "sha256": sha256(text).hexdigest()[:16]}


def peer(name: str, setup: Callable[[Path, float], Task], package: str, ours: str) -> Contender:
    """Declare a peer."""
    return Contender(name, setup, run, same_bytes, package=package, against=ours)


BENCHMARK = Benchmark(
    prepare=tokenizer_texts,
    threads=1,
    contenders=[
        Contender("tilth list", tilth_list, run, same_bytes, package="tilth"),
        peer("tiktoken list", tiktoken_list, "tiktoken", "tilth list"),
        peer("gigatoken list", gigatoken_list, "gigatoken", "tilth list"),
        Contender("tilth array", tilth_array, run, same_bytes, package="tilth"),
        peer("gigatoken array", gigatoken_array, "gigatoken", "tilth array"),
    ],
    targets=[Target("tiktoken list", at_least=5.0)],
)
