"""Speed of splitting text into pieces, compared with the `regex` package and GPT-2's pattern.

One thread, equal pieces. Two comparisons: the list of pieces that a Python user gets, and the count
of pieces alone, which creates no Python objects. `str.split` is the lower bound of the first: it
makes the same list from a text with marked boundaries. Its time is that of creating the strings;
its peak memory includes that setup.
Targets: at least 10 times as fast as `regex` for counting; at least 3 times for lists.
(`str.split`, which searches for nothing, is only 5 to 8 times as fast as `regex`.)
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.declaration import Benchmark, Contender, Target
from bench.workloads import (
    PATTERN,
    REAL_TEXT,
    call,
    english,
    fingerprint,
    mixed_scripts,
    read_text,
    write_once,
)

MARK = "\x1f"  # occurs in no workload
Task = tuple[Callable[[str], Any], str]


def prepare(folder: Path) -> dict[str, Path]:
    """Generate texts, and add the real ones: generated text can favour a cache."""
    workloads = {
        "English, generated": write_once(folder / "english.txt", lambda: english(20_000_000)),
        "mixed scripts, generated": write_once(
            folder / "mixed_scripts.txt", lambda: mixed_scripts(10_000_000)
        ),
    }
    real = {"English, OpenWebText": "openwebtext_sample.txt"}
    real |= {"mixed scripts, real": "mixed_scripts.txt"}
    files = {name: REAL_TEXT / file for name, file in real.items()}
    return workloads | {name: file for name, file in files.items() if file.exists()}


def compiled_pattern() -> Any:  # noqa: ANN401, regex has no types
    """Compile the pattern, untimed."""
    import regex  # type: ignore[import-untyped]

    return regex.compile(PATTERN)


def tilth_split(file: Path, sample: float) -> Task:
    """Split into a list with tilth."""
    from tilth.tokenizer import split

    return split, read_text(file, sample)


def regex_findall(file: Path, sample: float) -> Task:
    """Split into a list with `regex`."""
    return compiled_pattern().findall, read_text(file, sample)


def tilth_count(file: Path, sample: float) -> Task:
    """Count pieces with tilth."""
    from tilth.tokenizer._core import count_pieces

    return lambda text: count_pieces(text, ["gpt2"]), read_text(file, sample)


def regex_count(file: Path, sample: float) -> Task:
    """Count pieces with `regex`."""
    pattern = compiled_pattern()
    return lambda text: sum(1 for _ in pattern.finditer(text)), read_text(file, sample)


def marked_split(file: Path, sample: float) -> Task:
    """Split at marked boundaries into the same list, without a search."""
    pieces = compiled_pattern().findall(read_text(file, sample))
    return lambda text: text.split(MARK), MARK.join(pieces)


def same_pieces(pieces: list[str]) -> dict[str, Any]:
    """Return the number of pieces and a checksum."""
    return {"pieces": len(pieces), "sha256": fingerprint(MARK.join(pieces).encode())}


BENCHMARK = Benchmark(
    prepare=prepare,
    threads=1,
    contenders=[
        Contender("tilth split", tilth_split, call, same_pieces, package="tilth"),
        Contender(
            "regex findall",
            regex_findall,
            call,
            same_pieces,
            package="regex",
            against="tilth split",
        ),
        Contender("str.split", marked_split, call, same_pieces, against="tilth split"),
        Contender("tilth count", tilth_count, call, int, package="tilth"),
        Contender("regex count", regex_count, call, int, package="regex", against="tilth count"),
    ],
    targets=[
        Target("regex findall", at_least=3.0),
        Target("regex count", at_least=10.0),
    ],
)
