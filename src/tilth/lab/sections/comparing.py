"""Section 3: the vocabularies of the two corpora, compared."""

from itertools import pairwise

from tilth.lab.sections.section import Made, Setting, own_command
from tilth.lab.texts import documents_of, prefix_of, train_on
from tilth.report.lab_file import Cell, Chart, Lab, Line, Table
from tilth.tokenizer import Tokenizer
from tilth.tokenizer.inspection import (
    bytes_per_token,
    share_of_merges,
    share_of_non_ascii,
    shared_merges,
)

SMALL, LARGE = 10_000, 32_000
SHARES = (1 / 16, 1 / 4, 1)  # of the text that a vocabulary is trained on
EQUAL_SIZES = (1_000, 2_000, 4_000, 10_000, 32_000)


def made(setting: Setting) -> Made:
    """Train vocabularies on shares of each text, and compare them."""
    trained: dict[str, Tokenizer] = {}
    by_text: list[tuple[Cell, ...]] = []
    lines, gains = [], []
    for name, data in setting.texts:
        setting.tell(f"Training {LARGE:,} tokens on {name}.")
        trained[name] = train_on(data, LARGE, setting.max_bytes)
        held_out = "\n".join(documents_of(data, "valid", setting.max_bytes))
        most = min(setting.max_bytes, data.text_bytes("train"))
        sizes = [max(1, round(most * share)) for share in SHARES]
        tokenizers = [train_on(data, SMALL, size) for size in sizes]
        smallest = min(each.vocab_size for each in tokenizers)
        ratios = []
        for size, tokenizer in zip(sizes, tokenizers, strict=True):
            equal = bytes_per_token(prefix_of(tokenizer, smallest), held_out)
            ratios.append((size, equal))
            own = bytes_per_token(tokenizer, held_out)
            by_text.append((name, size, tokenizer.vocab_size, own, smallest, equal))
        lines.append(Line(f"{name}, {smallest:,} tokens", tuple(ratios)))
        gains.append((name, ratios))
    stories, other = setting.names
    shared = _shared_rows(trained[stories], trained[other])
    small, large = prefix_of(trained[stories], SMALL), trained[other]
    share = share_of_merges(small, large)
    compresses = [
        f"on {name}, {ratios[-1][1]:.3f} instead of {ratios[0][1]:.3f} bytes per token from "
        f"{ratios[-1][0] / ratios[0][0]:.0f} times the text, "
        f"{_trend([ratio for _, ratio in ratios])}"
        for name, ratios in gains
    ]
    answer = (
        f"{share:.0%} of the {len(small.merges):,} merges of {stories} are among the "
        f"{len(large.merges):,} of {other}. At equal vocabulary sizes, more training text: "
        f"{'; '.join(compresses)}."
    )
    tables = (
        Table(
            "Shared merges",
            (f"merges of {stories}", f"merges of {other}", "shared", "share of the fewer"),
            tuple(shared),
        ),
        Table(
            "Tokens with a byte outside ASCII, among those of two bytes or more",
            ("text", "vocabulary size", "share"),
            tuple(
                (name, tokenizer.vocab_size, f"{share_of_non_ascii(tokenizer):.2%}")
                for name, tokenizer in trained.items()
            ),
        ),
        Table(
            "Does more text give a better vocabulary? Bytes per token of held-out documents",
            (
                *("text", "bytes trained on", "vocabulary size", "bytes per token"),
                *("equal vocabulary size", "bytes per token at equal size"),
            ),
            tuple(by_text),
        ),
    )
    chart = Chart(
        "Bytes per token by size of the training text",
        "bytes trained on",
        "bytes per token",
        tuple(lines),
        x_scale="log",
        text="At equal vocabulary sizes, on held-out documents.",
    )
    command = own_command(setting, "comparing")
    lab = Lab("comparing", "", answer, command, tables=tables, charts=(chart,))
    here = f"{share:.0%} ({len(small.merges):,} against {len(large.merges):,} merges)"
    return Made.of(lab, "comparing", {"shared_merges": here}, large=LARGE)


def _shared_rows(one: Tokenizer, other: Tokenizer) -> list[tuple[Cell, ...]]:
    most = min(one.vocab_size, other.vocab_size)
    sizes = [size for size in EQUAL_SIZES if size < most]
    pairs = [(prefix_of(one, size), prefix_of(other, size)) for size in (*sizes, most)]
    pairs.append((prefix_of(one, SMALL), other))
    rows = [
        (len(a.merges), len(b.merges), shared_merges(a, b), f"{share_of_merges(a, b):.1%}")
        for a, b in pairs
    ]
    return list(dict.fromkeys(rows))


def _trend(ratios: list[float]) -> str:
    """Say whether bytes per token grow with the text.

    >>> _trend([4.0, 4.1]), _trend([4.0, 3.9]), _trend([4.0])
    ('better each time', 'not better each time', 'one size only')
    """
    if len(ratios) < 2:
        return "one size only"
    grows = all(low < high for low, high in pairwise(ratios))
    return "better each time" if grows else "not better each time"
