"""`tokenizers`: how far the tokenizers of data folders compress their own text and the others'.

The result is a `Lab` without trials: bytes per token of each tokenizer on each text, shared merges,
speed, and the gain of a larger vocabulary. All is counted on documents of the validation split,
without end tokens.

>>> import tempfile
>>> from tilth.data.tokenizing import tokenize
>>> from tilth.tokenizer import train_tokenizer
>>> with tempfile.TemporaryDirectory() as folder:
...     for name, text in (("sea", "the sea, the sea"), ("sky", "a blue sky, a blue sky")):
...         tokenizer = train_tokenizer(None, 262, ["<|endoftext|>"], texts=[text])
...         file = Path(folder, f"{name}.txt")
...         written = file.write_text(text)
...         data = tokenize(file, tokenizer, file.with_suffix(""), valid_corpus=file)
...     lab = compare_tokenizers([f"{folder}/sea", f"{folder}/sky"], sizes=[260])
>>> print(lab.answer.partition(" (")[0])
With the tokenizer of sky, sea needs 166.7% more tokens than with its own
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise, permutations, product
from pathlib import Path

import numpy as np

from tilth.config.threads import usable_cores
from tilth.data.token_files import Data, open_data
from tilth.files import FileError, StrPath
from tilth.formatting import join_words
from tilth.lab.texts import MOST_BYTES, documents_of, prefix_of, train_on
from tilth.report.lab_file import Cell, Chart, Lab, Line, Table
from tilth.schema import Range, check_int
from tilth.tokenizer import Tokenizer
from tilth.tokenizer.inspection import (
    Speed,
    encoding_speed,
    longest_tokens,
    share_of_merges,
    shared_merges,
    visible,
)
from tilth.tokenizer.patterns import describe

SIZES = (500, 1000, 2000, 4000, 8000, 16_000)
SAMPLED_DOCUMENTS = 10
LONGEST_TOKENS = 10
TIMED_BYTES, TIMED_PASSES = 20_000_000, 3

Counts = np.ndarray[tuple[int], np.dtype[np.int64]]
Pair = tuple[str, str]
"""The name of a text, and that of the text whose tokenizer encodes it."""


@dataclass(frozen=True)
class _Corpus:
    """A text and its tokenizer; `documents` of the validation split, and `sizes` in bytes."""

    name: str
    data: Data
    tokenizer: Tokenizer
    documents: list[bytes]
    sizes: Counts


@dataclass(frozen=True)
class _Measured:
    """The bytes and the tokens of each document of a text, by some tokenizer."""

    sizes: Counts
    tokens: Counts

    @property
    def bytes_per_token(self) -> float:
        """Of all documents together."""
        return float(self.sizes.sum() / self.tokens.sum())

    def spread(self, percent: float) -> str:
        """Return the range of the middle `percent` of the documents."""
        edges = ((100 - percent) / 2, (100 + percent) / 2)
        low, high = np.percentile(self.sizes / self.tokens, edges)
        return f"{low:.2f} to {high:.2f}"


@dataclass(frozen=True)
class _Comparison:
    """All measurements: each text by each tokenizer, speeds, and bytes per token by size."""

    corpora: Sequence[_Corpus]
    measured: Mapping[Pair, _Measured]
    speeds: Mapping[str, Speed]
    by_size: Mapping[int, Mapping[Pair, float]]

    @property
    def names(self) -> list[str]:
        """The names of the texts."""
        return [corpus.name for corpus in self.corpora]

    def penalty(self, pair: Pair) -> float:
        """Return the share of additional tokens of a text by another tokenizer than its own."""
        text, _ = pair
        return float(self.measured[pair].tokens.sum() / self.measured[text, text].tokens.sum()) - 1


def compare_tokenizers(
    folders: Sequence[StrPath],
    *,
    sizes: Sequence[int] = SIZES,
    max_bytes: int = MOST_BYTES,
    seed: int = 0,
    tell: Callable[[str], None] = lambda _line: None,
) -> Lab:
    """Encode the text of each data folder with the tokenizer of each, and train some of any size.

    Of each split, the first `max_bytes` are read. `seed` chooses the sampled documents; `tell` is
    called with a line when a stage begins.
    """
    names = _names(folders)
    if not sizes or min(sizes) < 257:
        raise ValueError(
            f"The vocabulary sizes are {list(sizes)}; give one or more, each at least 257 (256 "
            "bytes and the end token)."
        )
    check_int("max_bytes", max_bytes)
    check_int("seed", seed, Range(at_least=0))
    corpora = []
    for name, folder in zip(names, folders, strict=True):
        tell(f"Reading the validation text of {name}.")
        corpora.append(_open(name, folder, max_bytes))

    tell("Encoding each text with each tokenizer.")
    measured = {
        (text.name, by.name): _measure(text, by.tokenizer, by.data.end_token)
        for text, by in product(corpora, corpora)
    }
    tell("Timing the tokenizers.")
    speeds = {corpus.name: _speed(corpus, max_bytes) for corpus in corpora}
    by_size: dict[int, dict[Pair, float]] = {}
    for by in corpora:
        tell(f"Training tokenizers of up to {max(sizes):,} tokens on {by.name}.")
        for size, tokenizer in _tokenizers(by, sizes, max_bytes).items():
            for text in corpora:
                found = _measure(text, tokenizer, by.data.end_token)
                by_size.setdefault(size, {})[text.name, by.name] = found.bytes_per_token

    compared = _Comparison(corpora, measured, speeds, dict(sorted(by_size.items())))
    return Lab(
        name="tokenizers",
        asks=f"How well do the tokenizers of {join_words(names)} compress each other's text?",
        answer=_answer(compared),
        tables=(
            _table_of_texts(corpora, max_bytes),
            *_tables_of_bytes_per_token(compared, np.random.default_rng(seed)),
            _table_of_longest(corpora),
            _table_of_shared(corpora),
            _table_of_speeds(speeds),
            _table_of_sizes(compared),
        ),
        notes=tuple(_notes(compared, max(sizes))),
        charts=(_chart_of_sizes(compared),),
    )


# --- the measurements -----------------------------------------------------------------------------


def _names(folders: Sequence[StrPath]) -> list[str]:
    """Return the names of the texts: of their folders, or the whole paths if two are equal."""
    paths = [Path(folder).resolve() for folder in folders]
    if len(set(paths)) < 2 or len(set(paths)) < len(paths):
        raise ValueError("A comparison needs two data folders or more, each once.")
    names = [path.name for path in paths]
    return names if len(set(names)) == len(names) else [str(folder) for folder in folders]


def _open(name: str, folder: StrPath, max_bytes: int) -> _Corpus:
    data = open_data(folder)
    documents = [document.encode() for document in documents_of(data, "valid", max_bytes)]
    for split, num_documents in (("train", data.num_documents("train")), ("valid", len(documents))):
        if not num_documents:
            hint = "tokenize more text, or set another share of it aside with --valid"
            raise FileError(folder, f"has no documents in its {split} split", hint)
    sizes = np.array([len(document) for document in documents], np.int64)
    return _Corpus(name, data, data.tokenizer(), documents, sizes)


def _measure(text: _Corpus, tokenizer: Tokenizer, end_token: str) -> _Measured:
    _, ends = tokenizer.encode_documents(text.documents, end_token, threads=usable_cores())
    return _Measured(text.sizes, np.diff(ends, prepend=np.uint64(0)).astype(np.int64) - 1)


def _speed(corpus: _Corpus, max_bytes: int) -> Speed:
    """Return the speed of one thread on the train split, as the best of a few passes."""
    documents = documents_of(corpus.data, "train", min(TIMED_BYTES, max_bytes))
    text = "\n".join(documents).encode()
    return encoding_speed(corpus.tokenizer, text, allow_special=False, passes=TIMED_PASSES)


def _tokenizers(corpus: _Corpus, sizes: Sequence[int], max_bytes: int) -> dict[int, Tokenizer]:
    """Return a tokenizer of each size, trained on the train split, as far as its pairs allow."""
    largest = train_on(corpus.data, max(sizes), max_bytes)
    reached = sorted({min(size, largest.vocab_size) for size in sizes})
    return {size: prefix_of(largest, size) for size in reached}


# --- the tables and the chart ---------------------------------------------------------------------


def _table_of_texts(corpora: Sequence[_Corpus], max_bytes: int) -> Table:
    columns: dict[str, Callable[[_Corpus], Cell]] = {
        "text": lambda corpus: corpus.name,
        "training bytes": lambda corpus: min(corpus.data.text_bytes("train"), max_bytes),
        "validation documents": lambda corpus: len(corpus.documents),
        "validation bytes": lambda corpus: int(corpus.sizes.sum()),
        "vocabulary size": lambda corpus: len(corpus.tokenizer.vocab),
        "pattern": lambda corpus: describe(corpus.tokenizer.pattern),
    }
    return Table.by("Texts", corpora, columns)


def _tables_of_bytes_per_token(
    compared: _Comparison, random: np.random.Generator
) -> tuple[Table, Table]:
    """Return a table of all documents and of sampled ones, and one of each sampled document."""
    summary, single = [], []
    for text in compared.corpora:
        most = min(SAMPLED_DOCUMENTS, len(text.documents))
        sampled = np.sort(random.choice(len(text.documents), most, replace=False))
        ratios = []
        for by in compared.names:
            pair = (text.name, by)
            whole = compared.measured[pair]
            part = _Measured(whole.sizes[sampled], whole.tokens[sampled])
            ratios.append((part.sizes / part.tokens).tolist())
            more = None if text.name == by else f"{compared.penalty(pair):+.1%}"
            numbers = (whole.bytes_per_token, whole.spread(90), part.bytes_per_token)
            summary.append((*pair, *numbers, part.spread(100), more))
        for place, *row in zip(sampled.tolist(), *ratios, strict=True):
            single.append((text.name, place + 1, int(text.sizes[place]), *row))
    columns = (
        *("text", "tokenizer of", "bytes per token", "nine in ten documents"),
        *("sampled documents", "range of the sampled", "additional tokens"),
    )
    sampled_columns = (
        "text",
        "document",
        "bytes",
        *(f"tokenizer of {name}" for name in compared.names),
    )
    return (
        Table("Bytes per token of each tokenizer on each text", columns, tuple(summary)),
        Table("Bytes per token of sampled documents", sampled_columns, tuple(single)),
    )


def _table_of_longest(corpora: Sequence[_Corpus]) -> Table:
    found = [longest_tokens(corpus.tokenizer, LONGEST_TOKENS) for corpus in corpora]
    rows = tuple(
        tuple(f"{visible(token)} ({len(token)})" for _, token in row)
        for row in zip(*found, strict=False)
    )
    columns = tuple(corpus.name for corpus in corpora)
    return Table("Longest tokens, with their bytes", columns, rows)


def _table_of_shared(corpora: Sequence[_Corpus]) -> Table:
    rows = []
    for one, other in combinations(corpora, 2):
        merges = shared_merges(one.tokenizer, other.tokenizer)
        learnt, others = _learnt_tokens(one.tokenizer), _learnt_tokens(other.tokenizer)
        tokens = len(learnt & others)
        share = tokens / max(1, min(len(learnt), len(others)))
        merges_share = share_of_merges(one.tokenizer, other.tokenizer)
        names = f"{one.name} and {other.name}"
        rows.append((names, merges, f"{merges_share:.1%}", tokens, f"{share:.1%}"))
    columns = ("tokenizers of", "shared merges", "% of merges", "shared tokens", "% of tokens")
    return Table("Shared merges and tokens, without single bytes", columns, tuple(rows))


def _learnt_tokens(tokenizer: Tokenizer) -> set[bytes]:
    """Return all tokens except single bytes and special tokens."""
    special = set(tokenizer.special_tokens.values())
    return {t for token_id, t in tokenizer.vocab.items() if len(t) > 1 and token_id not in special}


def _table_of_speeds(speeds: Mapping[str, Speed]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name, speed in speeds.items():
        rates = (f"{speed.bytes_per_second / 1e6:.1f}", f"{speed.tokens_per_second / 1e6:.2f}")
        rows.append((name, *rates, f"{speed.hours_for_the_pile:.1f}"))
    columns = ("text and tokenizer", "MB/s", "million tokens/s", "hours for the Pile, 825 GB")
    return Table("Encoding speed on new text, one thread", columns, tuple(rows))


def _table_of_sizes(compared: _Comparison) -> Table:
    pairs = list(product(compared.names, compared.names))
    rows = tuple((size, *map(found.get, pairs)) for size, found in compared.by_size.items())
    columns = ("vocabulary size", *map(_said, pairs))
    return Table("Bytes per token by vocabulary size", columns, rows)


def _chart_of_sizes(compared: _Comparison) -> Chart:
    lines = []
    for pair in product(compared.names, compared.names):
        points = ((size, found[pair]) for size, found in compared.by_size.items() if pair in found)
        lines.append(Line(_said(pair), tuple(points)))
    return Chart(
        "Gain of a larger vocabulary",
        "vocabulary size",
        "bytes per token",
        tuple(lines),
        x_scale="log",
        text="Bytes of validation text per token: more bytes mean shorter sequences. Each "
        "tokenizer was trained on the train split of the text in its name.",
    )


def _said(pair: Pair) -> str:
    text, by = pair
    return f"{text}, own tokenizer" if text == by else f"{text}, tokenizer of {by}"


# --- the sentences --------------------------------------------------------------------------------


def _answer(compared: _Comparison) -> str:
    corpora, measured = compared.corpora, compared.measured
    pairs = sorted(permutations(compared.names, 2), key=lambda pair: -compared.penalty(pair))
    clauses = []
    for text, by in (pairs[0], pairs[-1]):  # of two texts, these are all
        penalty = compared.penalty((text, by))
        own, foreign = measured[text, text].bytes_per_token, measured[text, by].bytes_per_token
        clauses.append(
            f"with the tokenizer of {by}, {text} needs {abs(penalty):.1%} "
            f"{'fewer' if penalty < 0 else 'more'} tokens than with its own "
            f"({foreign:.2f} bytes per token instead of {own:.2f})"
        )
    if len(corpora) > 2:
        clauses = [f"largest difference: {clauses[0]}", f"smallest: {clauses[1]}"]
    shares = [
        share_of_merges(one.tokenizer, other.tokenizer) for one, other in combinations(corpora, 2)
    ]
    share = " to ".join(dict.fromkeys(f"{share:.0%}" for share in (min(shares), max(shares))))
    sharing = "the two" if len(corpora) == 2 else "any two"
    sentence = f"{'; '.join(clauses)}; {sharing} tokenizers share {share} of their merges."
    return sentence[0].upper() + sentence[1:]


def _notes(compared: _Comparison, largest: int) -> list[str]:
    """Return notes on the numbers; `largest` is the largest requested vocabulary size."""
    corpora, names = compared.corpora, compared.names
    notes = [
        "Bytes per token are the bytes of a text divided by its tokens. More bytes per token mean "
        "shorter sequences and fewer steps per epoch, but not a better model: compare models by "
        "bits per byte.",
    ]
    vocab_sizes = [f"{len(corpus.tokenizer.vocab):,}" for corpus in corpora]
    if len(set(vocab_sizes)) > 1:
        notes.append(
            f"The vocabulary sizes are {join_words(vocab_sizes)}, and a larger vocabulary "
            "compresses better; the table by vocabulary size compares equal sizes."
        )
    patterns = [describe(corpus.tokenizer.pattern) for corpus in corpora]
    if len(set(patterns)) > 1:
        notes.append(
            f"The tokenizers split text with different patterns ({join_words(patterns)}), which "
            "affects every difference."
        )
    is_each = all(compared.penalty(pair) > 0 for pair in permutations(names, 2))
    every = "Every" if is_each else "Not every"
    notes.append(f"{every} text has the fewest tokens with its own tokenizer.")
    longest = [visible(longest_tokens(corpus.tokenizer, 1)[0][1]) for corpus in corpora]
    shown = [f"{token} ({name})" for name, token in zip(names, longest, strict=True)]
    notes.append(f"The longest tokens are {join_words(shown)}.")
    hours = [f"{speed.hours_for_the_pile:.1f}" for speed in compared.speeds.values()]
    notes.append(f"One thread of this machine would encode 825 GB in {join_words(hours)} hours.")
    for name in names:
        pairs = ((size, found.get((name, name))) for size, found in compared.by_size.items())
        own = {size: ratio for size, ratio in pairs if ratio is not None}
        steps = list(pairwise(own))
        gains = [
            f"{own[high] / own[low] - 1:.1%} from {low:,} to {high:,} tokens"
            for low, high in dict.fromkeys(steps[:1] + steps[-1:])
        ]
        if gains:
            notes.append(f"On {name}, bytes per token grow by {join_words(gains)}.")
        if max(own) < largest:
            notes.append(
                f"The train text of {name} has merges for {max(own):,} tokens, not {largest:,}."
            )
    return notes
