"""How fast text becomes token ids, beside its peers, when the text has been encoded before.

One thread, GPT-2's vocabulary (or one that tilth learns, where there is none), `<|endoftext|>` in
the text is the special token. Each returns what it makes with the least effort: an array of ids,
except Hugging Face, which has lists alone (and is given the first tenth of the text). Most keep the
pieces that they have seen, as we do: each encodes the same text once before, untimed.
`encoding_fresh` is the first time.
Targets: at least as fast as gigatoken; at least 15 times as fast as tiktoken.
"""

# Peers need not be installed where types are checked.
# mypy: disable-error-code="import-not-found, import-untyped"

import json
from base64 import b64decode
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from bench.declaration import Benchmark, Contender, Target
from bench.workloads import read_text, tokenizer_texts

Task = tuple[Callable[[str], Any], str]
Setup = Callable[[Path, float], Task]
# Beside Rayon's, which comes by `threads`: those of Hugging Face and of fastokens.
ONE_THREAD = {"TOKENIZERS_PARALLELISM": "false", "FASTOKENS_BPE_THREADS": "1"}


def load_numpy() -> None:
    """Import what some import when they encode first: 0.1 s that no peer should pay in its run."""
    import numpy  # noqa: F401


def run(task: Task) -> object:
    """Do what is timed."""
    encode, text = task
    return encode(text)


def tilth(file: Path, sample: float) -> Task:
    """Encode with tilth, into an array."""
    from tilth.tokenizer import Tokenizer

    load_numpy()
    tokenizer = Tokenizer.load(file.parent / "tokenizer.json")
    return tokenizer.encode_array, read_text(file, sample)


def gigatoken(file: Path, sample: float) -> Task:
    """Encode with gigatoken, into an array; of its ways to encode one text none was faster."""
    from gigatoken import Tokenizer

    load_numpy()
    tokenizer = Tokenizer(file.parent / "tokenizer.json")
    return tokenizer.encode, read_text(file, sample)


def fastokens(file: Path, sample: float) -> Task:
    """Encode with fastokens, into a buffer."""
    import numpy as np
    from fastokens import Tokenizer

    tokenizer = Tokenizer.from_file(str(file.parent / "tokenizer.json"))

    def encode(text: str) -> object:
        ids, _ = tokenizer.encode_batch_flat([text])
        return np.frombuffer(ids, dtype=np.uint32)

    return encode, read_text(file, sample)


def tiktoken_encoding(folder: Path) -> Any:  # noqa: ANN401, tiktoken is no dependency
    """Make tiktoken's encoding from the ranks, with the pattern that it has for GPT-2."""
    from tiktoken import Encoding
    from tiktoken_ext.openai_public import r50k_pat_str

    lines = (folder / "ranks.tiktoken").read_bytes().splitlines()
    ranks = {b64decode(token): int(rank) for token, rank in map(bytes.split, lines)}
    (special,) = json.loads((folder / "tokenizer.json").read_bytes())["added_tokens"]
    return Encoding(
        "benchmark",
        pat_str=r50k_pat_str,
        mergeable_ranks=ranks,
        special_tokens={special["content"]: special["id"]},
    )


def tiktoken(file: Path, sample: float) -> Task:
    """Encode with tiktoken, into an array."""
    load_numpy()
    encoding = tiktoken_encoding(file.parent)
    return partial(encoding.encode_to_numpy, allowed_special="all"), read_text(file, sample)


def hugging_face(file: Path, sample: float) -> Task:
    """Encode with Hugging Face tokenizers, without the offsets that it could also give."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(file.parent / "tokenizer.json"))
    return lambda text: tokenizer.encode_batch_fast([text])[0].ids, read_text(file, sample)


def same_ids(ids: object) -> dict[str, Any]:
    """Sum up ids so that other ids give another answer."""
    import numpy as np

    array = np.asarray(ids, dtype=np.uint32)
    return {"tokens": len(array), "sha256": sha256(array.tobytes()).hexdigest()[:16]}


def contenders(warmup: int) -> list[Contender]:
    """List everyone, with so many untimed passes before the timed one."""

    def peer(name: str, setup: Setup, package: str, sample: float = 1.0) -> Contender:
        return Contender(name, setup, run, same_ids, package, "tilth", sample, warmup)

    return [
        Contender("tilth", tilth, run, same_ids, package="tilth", warmup=warmup),
        peer("gigatoken", gigatoken, "gigatoken"),
        peer("fastokens", fastokens, "fastokens"),
        peer("tiktoken", tiktoken, "tiktoken"),
        peer("Hugging Face", hugging_face, "tokenizers", sample=0.1),
    ]


BENCHMARK = Benchmark(
    prepare=tokenizer_texts,
    contenders=contenders(warmup=1),
    threads=1,
    environment=ONE_THREAD,
    targets=[Target("gigatoken", at_least=1.0), Target("tiktoken", at_least=15.0)],
)
