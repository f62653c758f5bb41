"""Reads mutated corpora in this process: `python fuzzing.py SEED FIRST BEHIND FOLDER`.

Case N of a seed is always the same file. The process ends with code 1 and a traceback at the first
case that raises anything but a sentence (ValueError, OSError) or takes longer than the time limit;
the case that was under way is in FOLDER.
"""

import gzip
import io
import json
import resource
import signal
import sys
from pathlib import Path
from random import Random

import pyarrow
import zstandard
from pyarrow import parquet

from tilth.corpus import Corpus

MEMORY_BYTES = 4 << 30
CASE_SECONDS = 30
TEXTS = ["One day.", "", "Ёжик идёт в сад.", "One day.", "x" * 300, "\n", None, "The end."] * 3
INTERESTING = [0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF]


def parquet_bytes(kind=None, texts=TEXTS, **options):
    column = pyarrow.array(texts, kind or pyarrow.string())
    if options.pop("as_dictionary", False):
        column = column.dictionary_encode()
    file = io.BytesIO()
    table = pyarrow.table({"n": list(range(len(texts))), "text": column})
    parquet.write_table(table, file, **options)
    return file.getvalue()


def bases():
    """Whole files, by the ending of their name."""
    documents = [text for text in TEXTS if text is not None]
    text = "<|endoftext|>".join(documents).encode()
    lines = "\n".join(json.dumps({"n": 1.5, "text": text, "more": [{}]}) for text in TEXTS).encode()
    zstd = zstandard.ZstdCompressor(write_checksum=True).compress
    long = text * 40
    no_dictionary = {"use_dictionary": False, "compression": "zstd"}
    return [
        (".txt", text),
        (".txt.gz", gzip.compress(text[:99]) + gzip.compress(text[99:])),
        (".txt.gz", gzip.compress(long)),
        (".txt.zst", zstd(text[:99]) + zstandard.ZstdCompressor().compress(text[99:])),
        (".txt.zst", zstd(long)),
        (".jsonl", lines),
        (".jsonl.gz", gzip.compress(lines)),
        (".jsonl.zst", zstd(lines)),
        *(
            (".parquet", data)
            for data in (
                parquet_bytes(),
                parquet_bytes(row_group_size=5, compression="none", write_page_checksum=True),
                parquet_bytes(as_dictionary=True, row_group_size=9),
                parquet_bytes(data_page_version="2.0", compression="gzip", store_schema=False),
                parquet_bytes(pyarrow.string_view(), **no_dictionary),
                parquet_bytes(column_encoding={"text": "DELTA_BYTE_ARRAY"}, **no_dictionary),
                parquet_bytes(column_encoding={"text": "DELTA_LENGTH_BYTE_ARRAY"}, **no_dictionary),
                parquet_bytes(texts=["same"] * 5000, data_page_size=100, compression="none"),
                parquet_bytes(texts=[]),
            )
        ),
    ]


def mutated(data, others, random):
    """The data with one to four changes; those of Parquet often fall on its footer, at the end."""
    data = bytearray(data)
    for _ in range(random.choice([1, 1, 1, 2, 4])):
        first = random.choice([0, 0, len(data) * 2 // 3])
        place = random.randrange(first, max(first + 1, len(data)))
        size = random.choice([1, 2, 4, 8, 50])
        bit = 1 << random.randrange(8)
        match random.randrange(8):
            case 0 | 1:
                data[place : place + 1] = bytes([(data[place : place + 1] or b"\0")[0] ^ bit])
            case 2:
                data[place : place + 1] = bytes([random.choice(INTERESTING)])
            case 3:
                data[place : place + size] = random.randbytes(size)
            case 4:
                del data[place : place + size]
            case 5:
                data[place:place] = data[place : place + size] * random.choice([1, 1, 100])
            case 6:
                del data[place:]
            case 7:
                other = random.choice(others)
                start = random.randrange(len(other))
                data[place : place + size] = other[start : start + size]
    return bytes(data)


def read_case(seed, number, all_bases, folder):
    """Mutate one file, and read it once in each way."""
    random = Random(f"{seed} {number}")
    ending, data = random.choice(all_bases)
    path = Path(folder, f"case{ending}")
    path.write_bytes(mutated(data, [other for _, other in all_bases], random))
    separator = random.choice(["<|endoftext|>", "\n", "aa", " "])
    for on_error in ("stop", "skip"):
        try:
            corpus = Corpus(
                path,
                separator=separator,
                on_error=on_error,
                block_bytes=random.choice([30, 500, 1 << 20]),
            )
            ends = []
            for block in corpus.blocks():
                block.documents()
                ends.append(block.end)
            if ends:
                list(corpus.blocks(random.choice(ends)))
        except (ValueError, OSError) as error:
            if "\n" in str(error).replace(str(path), ""):
                raise RuntimeError("a sentence of several lines") from error
    path.unlink()


def main():
    seed, first, behind, folder = sys.argv[1:]
    # Of the memory that is mapped already, most is the code of libraries.
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends the process, in native code too
    all_bases = bases()
    for number in range(int(first), int(behind)):
        signal.alarm(CASE_SECONDS)
        try:
            read_case(seed, number, all_bases, folder)
        except BaseException:
            print(f"case {number} of seed {seed}", file=sys.stderr)
            raise
        signal.alarm(0)


if __name__ == "__main__":
    main()
