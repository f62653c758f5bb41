"""Growth with the size of the corpus: speed and memory of encoding, tokenizing and training.

    python -m bench.growth --sizes 10MB 100MB 1GB 10GB --train 12GB

Generated text (26 MB of prose and mixed scripts, repeated, one word in 200 changed: about 6 million
distinct pieces in 12 GB), GPT-2's vocabulary or one trained by tilth. `encode` encodes blocks of 16
MB with one thread; reading is not timed. `tokenize` writes a data folder with two threads.
`train` learns 32,000 tokens with two threads. Each run is a new process; its vocabulary is loaded
before.

The goal: bytes/s within 10% of each other, and memory that does not grow. Each result is a file in
`--out`, and existing ones are not repeated, so an interrupted campaign continues. The table is
printed and written to `growth.md`. A corpus is deleted after its runs; 12 GB take 30 GB of disk.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bench.harness import PROJECT, cache_folder, machine
from bench.vocabularies import tokenizer_texts
from bench.worker import peak_bytes
from bench.workloads import (
    SPECIAL_TOKEN,
    VOCAB_SIZE,
    english,
    make_once,
    mixed_scripts,
    repetitions,
)
from tilth.files import write_text_atomically
from tilth.formatting import parse_bytes

BLOCK_BYTES = 16 << 20
WORDS_PER_CHANGE = 200
THREADS = 2
DISK_PER_BYTE = 2.5  # the corpus, its ids in 16 bits and a margin
WITHIN = 0.1
Result = dict[str, Any]


def write_corpus(file: Path, size_bytes: int) -> None:
    """Write generated documents, each followed by the separator."""
    texts, written = [english(20_000_000), mixed_scripts(6_000_000)], 0
    with file.open("wb") as out:
        for repetition in repetitions(texts, seed=6, words_per_change=WORDS_PER_CHANGE):
            for document in repetition:
                written += out.write((document + SPECIAL_TOKEN).encode())
                if written >= size_bytes:
                    return


def blocks(file: Path) -> Iterator[bytes]:
    """Yield the documents of a file in blocks that end with a separator."""
    separator, rest = SPECIAL_TOKEN.encode(), b""
    with file.open("rb") as corpus:
        while part := corpus.read(BLOCK_BYTES):
            whole, found, rest = (rest + part).rpartition(separator)
            yield whole + found
    yield rest


def encode(file: Path) -> float:
    """Return the seconds of encoding."""
    from tilth.tokenizer import Tokenizer

    tokenizer, seconds = Tokenizer.load(file.parent / "tilth.json"), 0.0
    for block in blocks(file):
        started = time.perf_counter()
        tokenizer.encode_array(block)
        seconds += time.perf_counter() - started
    return seconds


def tokenize(file: Path) -> float:
    """Return the seconds of writing a data folder."""
    from tilth.data import tokenize
    from tilth.tokenizer import Tokenizer

    tokenizer, out = Tokenizer.load(file.parent / "tilth.json"), file.parent / "data"
    shutil.rmtree(out, ignore_errors=True)
    started = time.perf_counter()
    tokenize(file, tokenizer, out, threads=THREADS)
    seconds = time.perf_counter() - started
    shutil.rmtree(out)
    return seconds


def train(file: Path) -> float:
    """Return the seconds of training a tokenizer."""
    from tilth.tokenizer import train_tokenizer

    started = time.perf_counter()
    train_tokenizer(file, VOCAB_SIZE, [SPECIAL_TOKEN], threads=THREADS)
    return time.perf_counter() - started


TASKS: dict[str, Callable[[Path], float]] = {"encode": encode, "tokenize": tokenize, "train": train}


def run_task(task: str, file: Path, result: Path) -> None:
    """Run one task in this process and write its result."""
    seconds = TASKS[task](file)
    size_bytes = file.stat().st_size
    measured = {
        "task": task,
        "bytes": size_bytes,
        "seconds": seconds,
        "bytes_per_second": size_bytes / seconds,
        "peak_bytes": peak_bytes(),
        "machine": machine(),
    }
    write_text_atomically(result, json.dumps(measured, indent=1), overwrite=True)


def run_missing(sizes: dict[int, list[str]], out: Path, folder: Path, keep: bool) -> None:
    """Run the tasks of each size that have no result yet."""
    for size_bytes, tasks in sorted(sizes.items()):
        missing = [task for task in tasks if not (out / f"{task}-{size_bytes}.json").exists()]
        if not missing:
            continue
        needed, free = DISK_PER_BYTE * size_bytes, shutil.disk_usage(folder).free
        if needed > free:
            raise SystemExit(
                f"{folder} has {free / 1e9:.0f} GB free, and {size_bytes / 1e9:g} GB of text need "
                f"{needed / 1e9:.0f} GB; free some, or leave the size out."
            )
        corpus = folder / f"{size_bytes}.txt"
        print(f"writing {size_bytes:,} bytes", file=sys.stderr, flush=True)
        make_once(corpus, partial(write_corpus, size_bytes=size_bytes))
        for task in missing:
            print(f"{task} {size_bytes:,} bytes", file=sys.stderr, flush=True)
            result = out / f"{task}-{size_bytes}.json"
            words = ["--run", task, str(corpus), str(result.resolve())]
            command = [sys.executable, "-m", "bench.growth", *words]
            subprocess.run(command, cwd=PROJECT, check=True)
        if not keep:
            corpus.unlink()


def table(results: list[Result]) -> str:
    """Return the results as Markdown, and whether speed and memory stay the same."""
    lines = ["| task | text | time | speed | peak memory |", "|---|---|---|---|---|"]
    for each in results:
        lines.append(
            f"| {each['task']} | {each['bytes'] / 1e6:,.0f} MB | {each['seconds']:,.2f} s "
            f"| {each['bytes_per_second'] / 1e6:,.0f} MB/s | {each['peak_bytes'] / 1e6:,.0f} MB |"
        )
    for task in ("encode", "tokenize"):
        found = [each for each in results if each["task"] == task]
        if len(found) > 1:
            speeds = [each["bytes_per_second"] for each in found]
            peaks = [each["peak_bytes"] for each in found]
            verdict = "met" if min(speeds) >= (1 - WITHIN) * max(speeds) else "MISSED"
            lines += [
                "",
                f"{task}: the slowest has {min(speeds) / max(speeds):.2f} of the speed of the "
                f"fastest (goal {1 - WITHIN:g}: {verdict}); the largest peak is "
                f"{max(peaks) / min(peaks):.2f} times the smallest.",
            ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.growth", description=str(__doc__).splitlines()[0]
    )
    sizes = ["10MB", "100MB", "1GB", "10GB"]
    parser.add_argument("--sizes", nargs="*", default=sizes, help="texts to encode and tokenize")
    parser.add_argument("--train", nargs="*", default=["12GB"], help="texts to train on")
    parser.add_argument("--out", type=Path, default=PROJECT / "bench" / "results" / "growth")
    parser.add_argument("--keep", action="store_true", help="keep the texts")
    parser.add_argument(
        "--run", nargs=3, metavar=("TASK", "FILE", "RESULT"), help=argparse.SUPPRESS
    )
    options = parser.parse_args()
    if options.run:
        task, file, result = options.run
        run_task(task, Path(file), Path(result))
        return 0
    work: dict[int, list[str]] = {}
    for size in options.sizes:
        work.setdefault(parse_bytes(size), []).extend(["encode", "tokenize"])
    for size in options.train:
        work.setdefault(parse_bytes(size), []).append("train")
    options.out.mkdir(parents=True, exist_ok=True)
    folder = cache_folder(Path(__file__))
    tokenizer_texts(folder)
    run_missing(work, options.out, folder / "gpt2", options.keep)
    results = [json.loads(file.read_bytes()) for file in options.out.glob("*-*.json")]
    text = table(sorted(results, key=lambda each: (each["task"], each["bytes"])))
    write_text_atomically(options.out / "growth.md", text, overwrite=True)
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
