"""Draw the flame graphs of docs/bpe.md: the steps of training and encoding, sampled by CPU time.

A timer of CPU time interrupts the program every millisecond; a handler notes the stack. The width
of a box is its share of the samples. Run it again after a change of `tokenizer/ladder.py`:

    .venv/bin/python scripts/draw_profiles.py
"""

import html
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType

from tilth.corpus.stories import stories
from tilth.tokenizer import Tokenizer, count_pieces, split, train_tokenizer
from tilth.tokenizer.ladder import (
    cached,
    encode_by_filter,
    encode_by_heap,
    encode_by_merges,
    learn_merges_by_heap,
    learn_merges_incrementally,
)
from tilth.tokenizer.reference import encode_piece, learn_merges

OUT = Path(__file__).parents[1] / "docs" / "pictures"
TEXT_CHARACTERS, MERGES = 200_000, 200
NATIVE_CALLS = 100  # one is shorter than a tick of the clock
VOCAB_SIZE = 4_000
INTERVAL_SECONDS = 0.001
WIDTH, ROW, GAP = 900, 18, 26
COLOURS = ("#e9c46a", "#f4a261", "#e76f51", "#8ab6d6", "#9ec1a3")
Stack = tuple[str, ...]


def sampled(function: Callable[[], object]) -> tuple[Counter[Stack], float]:
    """Return the stacks of a call below this function, and its CPU seconds."""
    found: Counter[Stack] = Counter()

    def note(_signal: int, frame: FrameType | None) -> None:
        stack: list[str] = []
        while frame is not None and frame.f_code.co_name != "sampled":
            stack.append(frame.f_code.co_name)
            frame = frame.f_back
        if stack:
            found[tuple(reversed(stack))] += 1

    before = signal.signal(signal.SIGPROF, note)
    start = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, INTERVAL_SECONDS, INTERVAL_SECONDS)
    try:
        function()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    return found, time.process_time() - start


def boxes(stacks: Counter[Stack], depth: int = 0, left: float = 0.0) -> list[tuple[float, ...]]:
    """Return (left, width, depth, name) of each box, in samples."""
    drawn: list[tuple[float, ...]] = []
    children: dict[str, Counter[Stack]] = {}
    for stack, number in stacks.items():
        if len(stack) > depth:
            children.setdefault(stack[depth], Counter())[stack] += number
    for name, own in sorted(children.items()):
        width = sum(own.values())
        drawn.append((left, width, depth, name))  # type: ignore[arg-type]
        drawn += boxes(own, depth + 1, left)
        left += width
    return drawn


def draw(parts: list[tuple[str, Counter[Stack]]]) -> str:
    """Return one SVG with a flame graph per part, each as wide as the picture."""
    shapes, top = [], 0
    for title, stacks in parts:
        total = sum(stacks.values())
        found = boxes(stacks)
        shapes.append(f'<text x="4" y="{top + 18}" font-weight="bold">{html.escape(title)}</text>')
        for left, width, depth, name in found:
            x, w = WIDTH * left / total, WIDTH * width / total
            y = top + GAP + int(depth) * ROW
            share = f"{width / total:.0%}"
            colour = COLOURS[sum(str(name).encode()) % len(COLOURS)]
            label = html.escape(f"{name} {share}" if w > 8 * len(str(name)) + 40 else "")
            shapes.append(
                f'<rect x="{x:.1f}" y="{y}" width="{max(w - 0.6, 0.3):.1f}" height="{ROW - 1}" '
                f'fill="{colour}"><title>{html.escape(str(name))} {share}</title></rect>'
                f'<text x="{x + 4:.1f}" y="{y + 13}">{label}</text>'
            )
        top += GAP + (1 + max(int(box[2]) for box in found)) * ROW + 10
    style = "text{font:12px system-ui,sans-serif;fill:#1b1f24}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" width="{WIDTH}">'
        f'<style>{style}</style><rect width="{WIDTH}" height="{top}" fill="#ffffff"/>'
        f"{''.join(shapes)}</svg>\n"
    )


def generated(characters: int, begin: int = 0) -> list[str]:
    """Return stories of about `characters`, after the first `begin` of them."""
    texts: list[str] = []
    for number, story in enumerate(stories()):
        if number >= begin:
            texts.append(story)
        if sum(map(len, texts)) >= characters:
            break
    return texts


def draw_training(texts: list[str]) -> None:
    """Time the steps of training, print their CPU seconds, and draw those in Python."""
    counted = count_pieces(texts=texts)
    counts = dict(counted.items())
    parts = []
    for name, learn in (
        ("Recount all pairs", learn_merges),
        ("Incremental counts", learn_merges_incrementally),
        ("Heap with lazy deletion", learn_merges_by_heap),
    ):
        stacks, seconds = sampled(partial(learn, counts, MERGES))
        parts.append((f"{name}: {seconds:.3f} s", stacks))
        print(f"{name}: {seconds:.3f} s of CPU time")
    start = time.process_time()
    for _ in range(NATIVE_CALLS):
        train_tokenizer(counts=counted, vocab_size=256 + MERGES)
    seconds = (time.process_time() - start) / NATIVE_CALLS
    print(f"Native core: {seconds:.4f} s of CPU time")
    print(f"{len(counts):,} distinct pieces, {MERGES} merges, Python {sys.version.split()[0]}")
    (OUT / "bpe_profiles.svg").write_text(draw(parts), "utf-8")


def draw_encoding(texts: list[str]) -> None:
    """Time the steps of encoding on other stories, print their speeds, and draw those in Python."""
    tokenizer = train_tokenizer(texts=texts, vocab_size=VOCAB_SIZE)
    text = "\n".join(generated(TEXT_CHARACTERS, begin=len(texts)))
    pieces = [piece.encode() for piece in split(text, tokenizer.pattern)]
    merges = list(tokenizer.merges)
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    parts = []
    steps: tuple[tuple[str, int, Callable[[bytes], object]], ...] = (
        ("Loop over all merges", 1_000, lambda piece: encode_by_merges(piece, merges)),
        ("Skip merges by a set of pairs", 10_000, lambda piece: encode_by_filter(piece, merges)),
        ("Look up the ranks of its pairs", len(pieces), lambda piece: encode_piece(piece, ranks)),
        ("Heap of ranks", len(pieces), lambda piece: encode_by_heap(piece, ranks)),
        ("Heap and cache", len(pieces), cached(lambda piece: encode_by_heap(piece, ranks))),
    )
    for name, number, encode in steps:
        some = pieces[:number]
        stacks, seconds = sampled(partial(list, map(encode, some)))
        rate = sum(map(len, some)) / seconds
        parts.append((f"{name}: {rate:,.0f} bytes per second", stacks))
        print(f"{name}: {rate:,.0f} bytes per second of CPU time")
    fresh = [Tokenizer.from_vocabulary(tokenizer.vocabulary) for _ in range(NATIVE_CALLS)]
    start = time.process_time()
    for each in fresh:
        each.encode_array(text)
    rate = NATIVE_CALLS * len(text.encode()) / (time.process_time() - start)
    print(f"Native core: {rate:,.0f} bytes per second of CPU time")
    (OUT / "encoding_profiles.svg").write_text(draw(parts), "utf-8")


def main() -> None:
    """Draw both ladders."""
    draw_training(generated(TEXT_CHARACTERS))
    draw_encoding(generated(10 * TEXT_CHARACTERS))


if __name__ == "__main__":
    main()
