"""Speed and memory of tokenizer training, compared with other trainers.

A vocabulary size of 32,000 with GPT-2's pattern and one special token, from 216 MB of text with 1.1
million distinct pieces. The text is real or generated; its documents are repeated, and one word in
twenty is changed. Every trainer uses its default number of threads. Trainers
break ties differently, so later merges may differ. The answer is the number of merges and the first
250, which contain no tie: they would differ if pieces or special tokens were handled differently.
(Hugging Face reads a file line by line, so no piece spans two lines, and it counts the special
token as text.)
Targets: at least 2 times as fast as gigatoken, 25 times as fast as Hugging Face, in at most 0.6 of
the memory of Hugging Face.
"""

# Type checking does not need the peers.
# mypy: disable-error-code="import-not-found, import-untyped"

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
    fingerprint,
    mixed_scripts,
    read_text,
    with_rare_words,
    write_once,
)

SIZE_BYTES = 200_000_000
SURE = 250  # the first tie is at merge 486 (generated text) or 576 (real text)


def prepare(folder: Path) -> dict[str, Path]:
    """Make the corpus from real or generated text."""
    file = write_once(folder / "corpus.txt", lambda: with_rare_words(source_texts(), SIZE_BYTES))
    return {"real text, varied" if REAL_TEXT.exists() else "generated text, varied": file}


def source_texts() -> list[str]:
    """Return the texts; a text that occurs twice is used twice as often."""
    if not REAL_TEXT.exists():
        return [english(20_000_000), mixed_scripts(6_000_000)]
    web, stories, mixed = (
        read_text(REAL_TEXT / name)
        for name in ("openwebtext_sample.txt", "tinystories_train.txt", "mixed_scripts.txt")
    )
    return [web, web, web, stories, mixed, mixed]


Train = Callable[[], Iterable[bytes]]
"""Train on the file; return the merged tokens in order."""


def run(train: Train) -> Iterable[bytes]:
    """Train."""
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
    """Train with rustbpe on the documents between special tokens, which it does not support."""
    from rustbpe import Tokenizer

    def train() -> Iterable[bytes]:
        tokenizer = Tokenizer()
        documents = iter(read_text(file).split(SPECIAL_TOKEN))
        tokenizer.train_from_iterator(documents, VOCAB_SIZE - 1, pattern=PATTERN)
        return (token for token, _ in tokenizer.get_mergeable_ranks()[256:])

    return train


def hugging_face(file: Path, sample: float) -> Train:
    """Train with Hugging Face tokenizers from a file, as its guide does."""
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
    """Return the number of merges and a checksum of the first ones."""
    learnt = list(tokens)
    return {"merges": len(learnt), f"first {SURE}": fingerprint(b" ".join(learnt[:SURE]))}


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
