"""How fast text is cut into pieces, beside the `regex` package with GPT-2's pattern.

One thread, the same pieces. Two comparisons: the list of pieces that a Python user gets, and the
number of pieces alone, where no Python object is made for each piece and the cost is the search.
`str.split` is the floor of the first: it makes the same list from a text with marked boundaries,
so its time is what Python takes for the strings alone (and its peak holds that setup too).
Targets: at least 10 times as fast as `regex` where pieces are counted; at least 3 times where a
list is made, since `str.split`, which searches for nothing, is itself only 5 to 8 times as fast.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.declaration import Benchmark, Contender, Target
from bench.workloads import english, mixed_scripts, read_text, write_once

PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
MARK = "\x1f"  # occurs in no workload, so that texts marked alike are cut alike
REAL_TEXT = Path(__file__).resolve().parents[2] / "shared" / "data"


def prepare(folder: Path) -> dict[str, Path]:
    """Make the generated texts, and name the real ones that are there."""
    workloads = {
        "English, generated": write_once(folder / "english.txt", lambda: english(20_000_000)),
        "mixed scripts, generated": write_once(
            folder / "mixed_scripts.txt", lambda: mixed_scripts(10_000_000)
        ),
    }
    # Real text, where it stands beside the project: generated text can flatter a cache.
    for name, file in {
        "English, OpenWebText": REAL_TEXT / "openwebtext_sample.txt",
        "mixed scripts, real": REAL_TEXT / "mixed_scripts.txt",
    }.items():
        if file.exists():
            workloads[name] = file
    return workloads


Task = tuple[Callable[[str], Any], str]


def run(task: Task) -> object:
    """Do what is timed."""
    function, text = task
    return function(text)


def compiled_pattern() -> Any:  # noqa: ANN401, regex has no types
    """Compile the pattern, outside what is timed."""
    import regex  # type: ignore[import-untyped]

    return regex.compile(PATTERN)


def tilth_split(file: Path, sample: float) -> Task:
    """Split into a list, natively."""
    from tilth.tokenizer import split

    return split, read_text(file, sample)


def regex_findall(file: Path, sample: float) -> Task:
    """Split into a list, by the pattern."""
    return compiled_pattern().findall, read_text(file, sample)


def tilth_count(file: Path, sample: float) -> Task:
    """Count the pieces, natively."""
    from tilth.tokenizer._core import count_pieces

    return count_pieces, read_text(file, sample)


def regex_count(file: Path, sample: float) -> Task:
    """Count the pieces, by the pattern."""
    pattern = compiled_pattern()
    return lambda text: sum(1 for _ in pattern.finditer(text)), read_text(file, sample)


def marked_split(file: Path, sample: float) -> Task:
    """Make the same list from a text in which every boundary is marked: nothing to search for."""
    pieces = compiled_pattern().findall(read_text(file, sample))
    return lambda text: text.split(MARK), MARK.join(pieces)


def same_pieces(pieces: list[str]) -> dict[str, Any]:
    """Sum up a list so that another list gives another answer."""
    digest = hashlib.sha256(MARK.join(pieces).encode()).hexdigest()
    return {"pieces": len(pieces), "sha256": digest[:16]}


BENCHMARK = Benchmark(
    prepare=prepare,
    threads=1,
    contenders=[
        Contender("tilth split", tilth_split, run, same_pieces, package="tilth"),
        Contender(
            "regex findall",
            regex_findall,
            run,
            same_pieces,
            package="regex",
            against="tilth split",
        ),
        Contender("str.split", marked_split, run, same_pieces, against="tilth split"),
        Contender("tilth count", tilth_count, run, int, package="tilth"),
        Contender("regex count", regex_count, run, int, package="regex", against="tilth count"),
    ],
    targets=[
        Target("regex findall", at_least=3.0),
        Target("regex count", at_least=10.0),
    ],
)
