"""Section 4: tokenizer experiments: compression, throughput, and sizes on disk."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice

from tilth.formatting import format_bytes
from tilth.lab.questions.tokenizers import compare_tokenizers
from tilth.lab.sections.section import Made, Setting, own_command
from tilth.lab.texts import documents_of
from tilth.report.lab_file import Cell, Lab, Table
from tilth.tokenizer import Tokenizer, split
from tilth.tokenizer.ladder import cached, encode_by_filter, encode_by_heap, encode_by_merges
from tilth.tokenizer.reference import encode_piece

VOCAB_SIZES = (256, 10_000, 32_000, 50_257, 65_536, 100_000, 200_000)
DTYPES = {"uint8": 1, "uint16": 2, "uint32": 4, "int64": 8}
PILE_BYTES = 825e9
RUNG_SECONDS = 0.5  # of CPU time for each step of the ladder
LADDER_BYTES = 200_000
FEWEST_PIECES = 3


def compared(setting: Setting) -> Made:
    """Compare the tokenizers of the two corpora."""
    folders = [data.folder for data in setting.corpora]
    seed = setting.options["seed"]
    lab = compare_tokenizers(folders, max_bytes=setting.max_bytes, seed=seed, tell=setting.tell)
    words = ["tilth", "lab", "tokenizers"]
    for folder in folders:
        words += ["--data", str(folder)]
    words += ["--max-bytes", str(setting.max_bytes), "--seed", str(seed)]
    sampled = {
        (row[0], row[1]): row[4] for row in _table(lab, "Bytes per token of each tokenizer").rows
    }
    stories, other = (data.folder.resolve().name for data in setting.corpora)
    speed = _table(lab, "Encoding speed").rows[0]
    here = {
        "bytes_per_token_stories": f"{sampled[stories, stories]:.2f}",
        "bytes_per_token_web": f"{sampled[other, other]:.2f}",
        "bytes_per_token_foreign": f"{sampled[other, stories]:.2f}",
        "encoding_speed": f"{speed[1]} MB/s",
        "pile_hours": str(speed[3]),
    }
    return Made.of(replace(lab, command=tuple(words)), "tokenizers", here)


def _table(lab: Lab, title: str) -> Table:
    return next(table for table in lab.tables if table.title.startswith(title))


def stored(setting: Setting) -> Made:
    """Compare sizes on disk, and climb the ladder of encoding."""
    rows: list[tuple[Cell, ...]] = []
    for name, data in setting.texts:
        tokens, size = len(data.train), data.text_bytes("train")
        stored = data.manifest.ids_bytes("train")
        rows.append(
            (
                *(name, data.vocab_size, size, tokens, str(data.train.dtype)),
                *(stored, f"{stored / size:.2f}"),
                *(format_bytes(tokens * width) for width in (2, 4, 8)),
            )
        )
    dtypes = tuple(
        (
            size,
            next(name for name, width in DTYPES.items() if size <= 256**width),
            *(2 if size <= 256**2 else 4, "yes" if size <= 256**2 else "no"),
        )
        for size in VOCAB_SIZES
    )
    rungs = _ladder(setting)
    slowest, fastest = rungs[0][2], rungs[-1][2]
    ratio = f"{rows[0][6]} and {rows[1][6]}"
    answer = (
        f"uint16 holds ids up to 65,535, enough for vocabularies of 10,000 and 32,000 tokens: the "
        f"token files take {ratio} times the bytes of the texts, and twice that in uint32. The "
        f"native encoder is {fastest / slowest:,.0f} times as fast as a loop over all merges."
    )
    tables = (
        Table(
            "Sizes on disk of the train splits",
            (
                *("text", "vocabulary size", "bytes of text", "tokens", "dtype", "bytes on disk"),
                *("times the text", "in uint16", "in uint32", "in int64"),
            ),
            tuple(rows),
        ),
        Table(
            "The smallest dtype by vocabulary size",
            ("vocabulary size", "smallest dtype", "bytes per id in tilth", "fits uint16"),
            dtypes,
        ),
        Table(
            "The ladder: the same tokens, one idea at a time",
            ("step", "bytes encoded", "bytes per CPU second", "hours for 825e9 bytes"),
            tuple(
                (name, size, round(rate), f"{PILE_BYTES / rate / 3600:,.1f}")
                for name, size, rate in rungs
            ),
        ),
    )
    lab = Lab("storing", "", answer, own_command(setting, "tokenizing"), tables=tables)
    return Made.of(lab, "storing", rung_seconds=RUNG_SECONDS)


def _ladder(setting: Setting) -> list[tuple[str, int, float]]:
    """Return the steps of the ladder: name, bytes encoded, and bytes per CPU second."""
    setting.tell("Climbing the ladder of encoding.")
    data = setting.corpora[0]
    tokenizer = data.tokenizer()
    size = min(LADDER_BYTES, setting.max_bytes)
    text = "\n".join(documents_of(data, "train", size))
    pieces = [piece.encode() for piece in split(text, tokenizer.pattern)]
    merges = list(tokenizer.merges)
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    steps: Sequence[tuple[str, Callable[[bytes], list[bytes]]]] = (
        ("loop over all merges", lambda piece: encode_by_merges(piece, merges)),
        ("skip merges by a set of pairs", lambda piece: encode_by_filter(piece, merges)),
        ("look up the ranks of its pairs", lambda piece: encode_piece(piece, ranks)),
        ("heap of ranks", lambda piece: encode_by_heap(piece, ranks)),
        ("heap and cache", cached(lambda piece: encode_by_heap(piece, ranks))),
    )
    rungs = []
    for name, encode in steps:
        done, start = 0, time.process_time()
        for number, piece in enumerate(pieces):
            encode(piece)
            done += len(piece)
            if number >= FEWEST_PIECES and time.process_time() - start > RUNG_SECONDS:
                break
        rungs.append((name, done, done / max(time.process_time() - start, 1e-6)))
    raw, passes, seconds = text.encode(), 0, 0.0
    while not passes or seconds < RUNG_SECONDS:
        fresh = Tokenizer.from_vocabulary(tokenizer.vocabulary)  # an encoder caches pieces
        start = time.process_time()
        fresh.encode_array(raw, allow_special=False)
        seconds += time.process_time() - start
        passes += 1
    rate = passes * len(raw) / max(seconds, 1e-6)
    rungs.append(("native core", len(raw), rate))
    for piece in islice(pieces, 100):
        if len({tuple(encode(piece)) for _, encode in steps}) != 1:
            raise RuntimeError(f"the steps of the ladder encode {piece!r} differently.")
    return rungs
