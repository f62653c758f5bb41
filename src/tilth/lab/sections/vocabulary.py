"""Section 2: training a vocabulary on each corpus: time and memory by phase, and the ladder."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from tilth.config.model import END_TOKEN
from tilth.config.threads import usable_cores
from tilth.formatting import format_bytes, join_words
from tilth.lab.sections.corpora import write_text
from tilth.lab.sections.section import Made, Setting, own_command
from tilth.report.lab_file import Chart, Lab, Line, Table
from tilth.tokenizer import count_pieces, train_tokenizer
from tilth.tokenizer.ladder import learn_merges_by_heap, learn_merges_incrementally
from tilth.tokenizer.measuring import Trained, train_measured
from tilth.tokenizer.reference import Pair, learn_merges

VOCAB_SIZES = (10_000, 32_000)  # of the stories and of the other text
SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1)  # of the text, for the growth
LADDER_BYTES, LADDER_MERGES = 200_000, 200
RUNG_SECONDS = 0.1  # of each step, at least: a clock of CPU time may tick every 10 ms


def _measured(path: Path, vocab_size: int, threads: int) -> Trained:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(train_measured, path, vocab_size, (END_TOKEN,), threads).result()


# --- the part -------------------------------------------------------------------------------------


def made(setting: Setting) -> Made:
    """Train the vocabularies by phase and by size of the text, and climb the ladder."""
    folder = setting.folder / "texts"
    folder.mkdir(parents=True, exist_ok=True)
    cores = usable_cores()
    phases, longest, growth = [], [], []
    lines: list[Line] = []
    wholes: list[Trained] = []
    for (name, data), vocab_size in zip(setting.texts, VOCAB_SIZES, strict=True):
        path = folder / f"{name}.txt"
        size = write_text(data, path, setting.max_bytes)
        setting.tell(f"Training {vocab_size:,} tokens on {name}, {size / 1e6:.1f} MB.")
        grown = []
        for share in SHARES[:-1]:
            part = folder / f"{name}-part.txt"
            write_text(data, part, round(size * share))
            grown.append(_measured(part, vocab_size, 1))
            part.unlink()
        one = _measured(path, vocab_size, 1)
        wholes.append(one)
        grown.append(one)
        phases += _phase_rows(name, "1", one)
        if cores > 1:
            phases += _phase_rows(name, str(cores), _measured(path, vocab_size, cores))
        kinds = Counter(map(_kind, one.longest))
        said = join_words([f"{count} of {kind}" for kind, count in kinds.items()])
        longest.append((name, one.tokens, ", ".join(one.longest), said))
        growth += [
            (
                *(name, each.text_bytes, each.pieces, each.tokens),
                *(f"{each.count_seconds:.3f}", f"{each.merge_seconds:.3f}"),
                format_bytes(each.memory_bytes),
            )
            for each in grown
        ]
        for phase in ("count", "merge"):
            points = tuple((e.text_bytes, _positive(getattr(e, f"{phase}_seconds"))) for e in grown)
            lines.append(Line(f"{name}, {phase}", points))
    rungs = _ladder(setting, folder / f"{setting.names[0]}.txt")
    clauses = [
        f"{name}: {one.seconds:.2f} s for {one.tokens:,} tokens from "
        f"{one.text_bytes / 1e6:.1f} MB, {one.count_seconds / one.seconds:.0%} of it counting"
        for name, one in zip(setting.names, wholes, strict=True)
    ]
    fastest, slowest = rungs[-1], rungs[0]
    answer = (
        f"One thread needs for {'; for '.join(clauses)}. For {slowest[1]} merges, the native core "
        f"is {slowest[2] / _positive(fastest[2]):,.0f} times as fast as recounting all pairs."
    )
    columns = ("text", "threads", "phase", "seconds", "share", "memory")
    tables = (
        Table("Time and memory by phase", columns, tuple(phases)),
        Table("Longest tokens", ("text", "vocabulary size", "tokens", "kinds"), tuple(longest)),
        Table(
            "Growth with the text, one thread",
            (
                *("text", "bytes", "distinct pieces", "vocabulary size"),
                *("seconds counting", "seconds merging", "memory"),
            ),
            tuple(growth),
        ),
        Table(
            "The ladder: the same merges, one idea at a time",
            ("step", "merges", "CPU seconds", "times as fast as the first"),
            tuple(
                (name, merges, f"{seconds:.4f}", f"{slowest[2] / _positive(seconds):,.1f}")
                for name, merges, seconds in rungs
            ),
        ),
    )
    lab = Lab(
        "vocabulary",
        "",
        answer,
        own_command(setting, "vocabulary"),
        tables=tables,
        charts=(
            Chart(
                "Seconds by size of the text",
                "bytes of text",
                "seconds",
                tuple(lines),
                x_scale="log",
                y_scale="log",
                text="One thread. Counting grows with the text, merging with its distinct pieces.",
            ),
        ),
    )
    stories, web = wholes
    where = join_words(
        [
            f"{name}: {'counting' if one.count_seconds > one.merge_seconds else 'merging'}"
            for name, one in zip(setting.names, wholes, strict=True)
        ]
    )
    here = {
        "bpe_stories": _figure(stories),
        "bpe_web": _figure(web),
        "where_time_goes": where,
        "longest_stories": stories.longest[0],
        "longest_web": web.longest[0],
    }
    return Made.of(
        *(lab, "vocabulary", here),
        megabytes=setting.max_bytes / 1e6,
        ladder_merges=LADDER_MERGES,
        ladder_bytes=LADDER_BYTES,
    )


def _kind(shown: str) -> str:
    """Return what a token is made of, as `inspection.visible` shows it.

    >>> _kind("␣accomplishment"), _kind("-----"), _kind("ÃÂÃÂ"), _kind("webkitTransition")
    ('one word', 'one character repeated', 'letters outside ASCII', 'one word')
    """
    bare = shown.strip("␣")
    if len(set(bare)) <= 1:
        return "one character repeated"
    if not bare.isascii():
        return "letters outside ASCII"
    return "one word" if bare.isalpha() else "other characters"


def _figure(one: Trained) -> str:
    return (
        f"{one.seconds:.2f} s, {format_bytes(one.memory_bytes)} "
        f"({one.tokens:,} tokens from {one.text_bytes / 1e6:.1f} MB, one thread)"
    )


def _phase_rows(name: str, threads: str, one: Trained) -> list[tuple[str, ...]]:
    split = max(0.0, one.count_seconds - one.read_seconds)
    rows = (
        ("reading alone", one.read_seconds, ""),
        ("splitting and counting", split, format_bytes(one.count_bytes)),
        ("merging", one.merge_seconds, format_bytes(one.merge_bytes)),
    )
    return [
        (name, threads, phase, f"{seconds:.3f}", f"{seconds / one.seconds:.0%}", memory)
        for phase, seconds, memory in rows
    ]


def _positive(seconds: float) -> float:
    return max(seconds, 1e-6)


def _ladder(setting: Setting, path: Path) -> list[tuple[str, int, float]]:
    """Return the steps of the ladder: their names, merges and CPU seconds."""
    setting.tell("Climbing the ladder of training.")
    with path.open("rb") as file:
        text = file.read(min(LADDER_BYTES, setting.max_bytes)).decode("utf-8", "ignore")
    counted = count_pieces(texts=[text], special_tokens=[END_TOKEN])
    counts = dict(counted.items())
    learn: Sequence[tuple[str, Callable[[], Sequence[Pair]]]] = (
        ("recount all pairs", partial(learn_merges, counts, LADDER_MERGES)),
        ("incremental counts", partial(learn_merges_incrementally, counts, LADDER_MERGES)),
        ("heap with lazy deletion", partial(learn_merges_by_heap, counts, LADDER_MERGES)),
        (
            "native core",
            lambda: train_tokenizer(counts=counted, vocab_size=257 + LADDER_MERGES).merges,
        ),
    )
    rungs = []
    expected: list[Pair] | None = None
    for name, function in learn:
        calls, start = 0, time.process_time()
        while not calls or time.process_time() - start < RUNG_SECONDS:
            merges = list(function())
            calls += 1
        rungs.append((name, len(merges), (time.process_time() - start) / calls))
        if expected is not None and merges != expected:
            raise RuntimeError(f"{name} learned other merges than the reference.")
        expected = merges
    return rungs
