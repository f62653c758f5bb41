"""How fast, and in how much memory, a tokenizer is learnt from a file, beside its peers.

A vocabulary of 32,000 with GPT-2's pattern and one special token, from 216 MB of text in which
1.1 million pieces differ: real text, its documents repeated and one word in twenty changed, or
generated text treated alike where there is none. Every trainer takes as many threads as it likes.
Trainers break ties differently, so later merges may differ while all are right. What is compared is
the number of merges and the first 250, among which is no tie: they would differ if pieces were cut
or special tokens handled in another way. (Hugging Face reads a file line by line, so that
no piece of it spans two lines, and counts the special token as text.)
Targets: at least 2 times as fast as gigatoken, 25 times as fast as Hugging Face, in at most 0.6 of
the memory of Hugging Face.
"""

# Peers need not be installed where types are checked.
# mypy: disable-error-code="import-not-found, import-untyped"

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from bench.declaration import Benchmark, Contender, Target
from bench.workloads import (
    PATTERN,
    REAL_TEXT,
    SPECIAL_TOKEN,
    VOCAB_SIZE,
    english,
    mixed_scripts,
    read_text,
    with_rare_words,
    write_once,
)

SIZE_BYTES = 200_000_000
SURE = 250  # the first tie decides the 486th merge (generated text), the 576th (real)


def prepare(folder: Path) -> dict[str, Path]:
    """Make the corpus from what text there is."""
    file = write_once(folder / "corpus.txt", lambda: with_rare_words(source_texts(), SIZE_BYTES))
    return {"real text, varied" if REAL_TEXT.exists() else "generated text, varied": file}


def source_texts() -> list[str]:
    """Read or make the texts; one that stands twice comes twice as often."""
    if not REAL_TEXT.exists():
        return [english(20_000_000), mixed_scripts(6_000_000)]
    web, stories, mixed = (
        read_text(REAL_TEXT / name)
        for name in ("openwebtext_sample.txt", "tinystories_train.txt", "mixed_scripts.txt")
    )
    return [web, web, web, stories, mixed, mixed]


Train = Callable[[], Iterable[bytes]]
"""What is timed: from the file to the tokens that were learnt, in order."""


def run(train: Train) -> Iterable[bytes]:
    """Do what is timed."""
    return train()


def tilth(file: Path, sample: float) -> Train:
    """Train with tilth."""
    from tilth.tokenizer import train_tokenizer

    def train() -> Iterable[bytes]:
        merges = train_tokenizer([file], VOCAB_SIZE, [SPECIAL_TOKEN]).merges
        return (left + right for left, right in merges)

    return train


def gigatoken(file: Path, sample: float) -> Train:
    """Train with gigatoken, whose pattern is always GPT-2's."""
    from gigatoken import train_bpe

    def train() -> Iterable[bytes]:
        _, merges = train_bpe(file, VOCAB_SIZE, [SPECIAL_TOKEN])
        return (left + right for left, right in merges)

    return train


def rustbpe(file: Path, sample: float) -> Train:
    """Train with rustbpe, which knows no special tokens: it is given the documents between them."""
    from rustbpe import Tokenizer

    def train() -> Iterable[bytes]:
        tokenizer = Tokenizer()
        documents = iter(read_text(file).split(SPECIAL_TOKEN))
        tokenizer.train_from_iterator(documents, VOCAB_SIZE - 1, pattern=PATTERN)
        return (token for token, _ in tokenizer.get_mergeable_ranks()[256:])

    return train


def hugging_face(file: Path, sample: float) -> Train:
    """Train with Hugging Face tokenizers, from the file as its guide does."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[SPECIAL_TOKEN],
        initial_alphabet=byte_level.alphabet(),
        show_progress=False,
    )

    def train() -> Iterable[bytes]:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = byte_level
        tokenizer.train([str(file)], trainer)
        ids = tokenizer.get_vocab()
        return [token.encode() for token in sorted(ids, key=ids.__getitem__)[257:]]

    return train


def summed_up(tokens: Iterable[bytes]) -> dict[str, Any]:
    """Count the merges, and sum up the first of them."""
    learnt = list(tokens)
    digest = hashlib.sha256(b" ".join(learnt[:SURE])).hexdigest()
    return {"merges": len(learnt), f"first {SURE}": digest[:16]}


BENCHMARK = Benchmark(
    prepare=prepare,
    contenders=[
        Contender("tilth", tilth, run, summed_up, package="tilth"),
        Contender("gigatoken", gigatoken, run, summed_up, package="gigatoken", against="tilth"),
        Contender("rustbpe", rustbpe, run, summed_up, package="rustbpe", against="tilth"),
        Contender(
            "Hugging Face",
            hugging_face,
            run,
            summed_up,
            package="tokenizers",
            against="tilth",
            incomparable="no piece spans two lines",
        ),
    ],
    targets=[
        Target("gigatoken", at_least=2.0),
        Target("Hugging Face", at_least=25.0),
        Target("Hugging Face", at_least=1 / 0.6, measure="peak_bytes"),
    ],
)
