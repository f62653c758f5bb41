"""Speed of encoding text that was encoded before, compared with other tokenizers.

One thread; `<|endoftext|>` in the text is the special token. Web text, stories, mixed scripts,
source code and HTML, each with the vocabularies of GPT-2, cl100k and o200k (`vocabularies.py`).
Each contender gets the type of input with which it is fastest and returns its cheapest result: an
array of ids, except Hugging Face, which has lists only. (A str keeps its UTF-8 after the first
pass; bytes are checked in each.) Hugging Face and tiktoken encode the first tenth of the text. Most
tokenizers cache pieces, as tilth does: each encodes the same text once before, untimed.
`encoding_fresh` measures the first pass.
Target: at least 1.3 times as fast as the fastest peer with the same ids.
"""

# Type checking does not need the peers.
# mypy: disable-error-code="import-not-found, import-untyped"

import json
import os
from base64 import b64decode
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bench.declaration import Benchmark, Contender, Target
from bench.vocabularies import VOCABULARIES, tokenizer_texts
from bench.workloads import call, fingerprint, read_text

Task = tuple[Callable[[Any], Any], Any]
Setup = Callable[[Path, float], Task]
PEERS = ("gigatoken", "fastokens", "tokie", "tiktoken", "Hugging Face")
# For Hugging Face and fastokens; `threads` sets Rayon's variable.
ONE_THREAD = {"TOKENIZERS_PARALLELISM": "false", "FASTOKENS_BPE_THREADS": "1"}


def load_numpy() -> None:
    """Import numpy before the timed run: some peers import it in their first call (0.1 s)."""
    import numpy  # noqa: F401


def text_of(file: Path, sample: float, kind: str) -> str | bytes:
    """Read a text as str or as bytes."""
    text = read_text(file, sample)
    return text if kind == "str" else text.encode()


def tilth(file: Path, sample: float, kind: str = "str") -> Task:
    """Encode with tilth into an array."""
    from tilth.tokenizer import Tokenizer

    load_numpy()
    tokenizer = Tokenizer.load(file.parent / "tilth.json")
    return tokenizer.encode_array, text_of(file, sample, kind)


def gigatoken(file: Path, sample: float, kind: str = "str") -> Task:
    """Encode with gigatoken into an array, its fastest way to encode one text."""
    from gigatoken import Tokenizer

    load_numpy()
    tokenizer = Tokenizer(file.parent / "tokenizer.json")
    return tokenizer.encode, text_of(file, sample, kind)


def fastokens(file: Path, sample: float) -> Task:
    """Encode with fastokens into a buffer."""
    import numpy as np
    from fastokens import Tokenizer

    tokenizer = Tokenizer.from_file(str(file.parent / "fastokens.json"))

    def encode(text: str) -> object:
        ids, _ = tokenizer.encode_batch_flat([text])
        return np.frombuffer(ids, dtype=np.uint32)

    return encode, read_text(file, sample)


def tokie(file: Path, sample: float) -> Task:
    """Encode with tokie into an array, on one core.

    It starts a thread for each core, and then fails on some texts that are not ASCII.
    """
    from tokie import Tokenizer

    load_numpy()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    tokenizer = Tokenizer.from_json(str(file.parent / "tokenizer.json"))

    def encode(text: str) -> object:
        return tokenizer.encode_batch_flat([text], False)[0]  # no special tokens are added

    return encode, read_text(file, sample)


def tiktoken_encoding(folder: Path) -> Any:  # noqa: ANN401, tiktoken is not a dependency
    """Create tiktoken's encoding from the ranks, with its own pattern."""
    from tiktoken import Encoding
    from tiktoken.load import load_tiktoken_bpe
    from tiktoken_ext import openai_public

    ranks = folder / "ranks.tiktoken"
    if folder.name != "gpt2":
        # Read the ranks as it reads a file in its cache, without a network.
        def load_ranks(_address: str, expected_hash: str) -> dict[bytes, int]:
            found: dict[bytes, int] = load_tiktoken_bpe(str(ranks), expected_hash)
            return found

        os.environ["TIKTOKEN_CACHE_DIR"] = str(folder / "tiktoken")
        openai_public.load_tiktoken_bpe = load_ranks
        return Encoding(**getattr(openai_public, f"{folder.name}_base")())
    lines = ranks.read_bytes().splitlines()
    (special,) = json.loads((folder / "tokenizer.json").read_bytes())["added_tokens"]
    return Encoding(
        "benchmark",
        pat_str=openai_public.r50k_pat_str,
        mergeable_ranks={b64decode(token): int(rank) for token, rank in map(bytes.split, lines)},
        special_tokens={special["content"]: special["id"]},
    )


def tiktoken(file: Path, sample: float) -> Task:
    """Encode with tiktoken into an array."""
    load_numpy()
    encoding = tiktoken_encoding(file.parent)
    return partial(encoding.encode_to_numpy, allowed_special="all"), read_text(file, sample)


def hugging_face(file: Path, sample: float) -> Task:
    """Encode with Hugging Face tokenizers, without offsets."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(file.parent / "tokenizer.json"))
    return lambda text: tokenizer.encode_batch_fast([text])[0].ids, read_text(file, sample)


def same_ids(ids: object) -> dict[str, Any]:
    """Return the number of ids and a checksum."""
    import numpy as np

    array = np.asarray(ids, dtype=np.uint32)
    return {"tokens": len(array), "sha256": fingerprint(array.tobytes())}


def contenders(warmup: int, kind: str) -> list[Contender]:
    """Return all contenders, with `warmup` untimed passes before the timed one.

    `kind` is the type of input of tilth and gigatoken, which take str and bytes.
    """

    def peer(name: str, setup: Setup, package: str, note: str, sample: float = 1.0) -> Contender:
        return Contender(
            name, setup, call, same_ids, package, "tilth", sample, warmup, note=f"input: {note}"
        )

    return [
        Contender(
            "tilth",
            partial(tilth, kind=kind),
            call,
            same_ids,
            package="tilth",
            warmup=warmup,
            note=f"input: {kind}",
        ),
        peer("gigatoken", partial(gigatoken, kind=kind), "gigatoken", kind),
        peer("fastokens", fastokens, "fastokens", "list of one str"),
        peer("tokie", tokie, "tokie", "list of one str"),
        peer("tiktoken", tiktoken, "tiktoken", "str", sample=0.1),
        peer("Hugging Face", hugging_face, "tokenizers", "list of one str", sample=0.1),
    ]


BENCHMARK = Benchmark(
    prepare=partial(tokenizer_texts, vocabularies=VOCABULARIES),
    contenders=contenders(warmup=1, kind="str"),
    threads=1,
    environment=ONE_THREAD,
    targets=[Target(PEERS, at_least=1.3)],
)
