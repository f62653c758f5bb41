"""Speed of encoding text that was encoded before, compared with other tokenizers.

One thread, GPT-2's vocabulary (or one trained by tilth, if that is missing); `<|endoftext|>` in the
text is the special token. Each contender returns its cheapest result: an array of ids, except
Hugging Face, which has lists only (and encodes the first tenth of the text). Most tokenizers cache
pieces, as tilth does: each encodes the same text once before, untimed. `encoding_fresh` measures
the first pass.
Targets: at least as fast as gigatoken; at least 15 times as fast as tiktoken.
"""

# Type checking does not need the peers.
# mypy: disable-error-code="import-not-found, import-untyped"

import json
from base64 import b64decode
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bench.declaration import Benchmark, Contender, Target
from bench.workloads import call, fingerprint, read_text, tokenizer_texts

Task = tuple[Callable[[str], Any], str]
Setup = Callable[[Path, float], Task]
# For Hugging Face and fastokens; `threads` sets Rayon's variable.
ONE_THREAD = {"TOKENIZERS_PARALLELISM": "false", "FASTOKENS_BPE_THREADS": "1"}


def load_numpy() -> None:
    """Import numpy before the timed run: some peers import it in their first call (0.1 s)."""
    import numpy  # noqa: F401


def tilth(file: Path, sample: float) -> Task:
    """Encode with tilth into an array."""
    from tilth.tokenizer import Tokenizer

    load_numpy()
    tokenizer = Tokenizer.load(file.parent / "tokenizer.json")
    return tokenizer.encode_array, read_text(file, sample)


def gigatoken(file: Path, sample: float) -> Task:
    """Encode with gigatoken into an array, its fastest way to encode one text."""
    from gigatoken import Tokenizer

    load_numpy()
    tokenizer = Tokenizer(file.parent / "tokenizer.json")
    return tokenizer.encode, read_text(file, sample)


def fastokens(file: Path, sample: float) -> Task:
    """Encode with fastokens into a buffer."""
    import numpy as np
    from fastokens import Tokenizer

    tokenizer = Tokenizer.from_file(str(file.parent / "tokenizer.json"))

    def encode(text: str) -> object:
        ids, _ = tokenizer.encode_batch_flat([text])
        return np.frombuffer(ids, dtype=np.uint32)

    return encode, read_text(file, sample)


def tiktoken_encoding(folder: Path) -> Any:  # noqa: ANN401, tiktoken is not a dependency
    """Create tiktoken's encoding from the ranks, with its pattern for GPT-2."""
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


def contenders(warmup: int) -> list[Contender]:
    """Return all contenders, with `warmup` untimed passes before the timed one."""

    def peer(name: str, setup: Setup, package: str, sample: float = 1.0) -> Contender:
        return Contender(name, setup, call, same_ids, package, "tilth", sample, warmup)

    return [
        Contender("tilth", tilth, call, same_ids, package="tilth", warmup=warmup),
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
