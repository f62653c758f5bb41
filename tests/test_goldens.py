"""Results that do not depend on the processor equal those of the first edition, byte by byte.

Commit d627945 wrote `tests/goldens/*.json`. `python tests/test_goldens.py` regenerates them with
the installed tilth. A changed golden needs a reason in CHANGELOG.md.
"""

import contextlib
import gzip
import hashlib
import io
import json
import tempfile
from pathlib import Path

import numpy as np
import pytest

import tilth as tilth_package
from tilth.cli.app import app

GOLDENS = Path(__file__).with_name("goldens")

TEXT = (
    "Grüße aus Köln — naïve café, 12,345 and 6.78e-9; it's we'll I'd THEY'RE.\n\n"
    "日本語のテキスト。 Русский текст, ελληνικά, العربية, हिन्दी.\t\ttabs\r\n   blanks  \n"
    "👩‍👩‍👧 emoji, \u00a0no-break, def f(x):\n    return x**2  # code\n"
)
ACCOUNTS = (
    "gpt2-small",
    "gpt2-medium --batch-size 16 --num-microbatches 4",
    "gpt2-large --recompute --steps 400000 --batch-size 1024",
    "gpt2-xl --memory 80GB",
    "gpt2-xl --context-length 16384 --shares",
    "tinyllama-1.1b --dtype bfloat16",
    "llama-2-7b --hardware a100 --steps 1000 --price 1.5",
    "llama-2-13b --hardware h100 --hours 100 --dtype bfloat16",
    "llama-2-70b --memory 640GiB --optimizer muon",
    "llama-3-8b --optimizer sgd",
    "llama-3-70b --hardware h100 --mfu 0.4 --dtype bfloat16",
    "tiny",
    "small --batch-size 32 --optimizer adamw",
    "tinystories --hardware rtx4090 --dtype bfloat16",
    "tinystories-cpu --vocab-size 5000",
    "openwebtext --num-microbatches 8",
    "leaderboard --steps 20000 --num-layers 8 --d-model 512",
    "gpt2-small --tie-embeddings --qk-norm --num-kv-heads 4",
    "gpt2-small --ffn silu --norm post --position none --d-ff 3000",
    "gpt2-medium --norm none --rope-theta 500000 --num-layers 6 --shares",
)


def tilth(*words):
    """Run a command line in this process; return its stdout."""
    stdout = io.StringIO()
    with contextlib.redirect_stdout(stdout):
        app([*map(str, words)])
    return stdout.getvalue()


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def stories():
    found = {}
    for seed, size in ((0, 100_000), (1, 50_000), (2, 50_000), (2**32, 20_000)):
        tilth("corpus", "stories", "--out", f"{seed}.txt", "--size", size, "--seed", seed)
        found[f"seed {seed}, {size} bytes"] = sha256(Path(f"{seed}.txt").read_bytes())
    return found


def write_corpus():
    """Write a fixed corpus: text, compressed text and JSON lines, in many scripts."""
    Path("corpus").mkdir()
    # Not the generated stories, which have separate goldens.
    words = [f"{'bcdfgh'[n % 6]}{'aeiou'[n % 5]}{'lmnrst'[n % 7 % 6]}" for n in range(0, 9000, 7)]
    lines = [" ".join(words[n : n + 12]) for n in range(0, len(words), 5)]
    Path("corpus/plain.txt").write_text("<|endoftext|>".join(lines), "utf-8")
    many = "<|endoftext|>".join(f"{n} {TEXT}" for n in range(40))
    Path("corpus/scripts.txt.gz").write_bytes(gzip.compress(many.encode(), mtime=0))
    records = [json.dumps({"id": n, "text": f"{TEXT[n:]} {n}"}) for n in range(100)]
    Path("corpus/records.jsonl").write_text("\n".join(records), "utf-8")


def tokenizers():
    write_corpus()
    found = {}
    end = ("--special", "<|endoftext|>")
    for pattern, size in (("gpt2", 550), ("cl100k", 450)):
        name = f"{pattern}.json"
        words = ("--vocab-size", size, "--pattern", pattern, *end)
        tilth("tokenizer", "train", "corpus", "--out", name, *words)
        found[name] = sha256(Path(name).read_bytes())
        inspected = json.loads(tilth("tokenizer", "inspect", name, "--text", TEXT, "--json"))
        found[f"{name}, inspected"] = inspected
    tilth("tokenizer", "convert", "gpt2.json", "--out", "gpt2")
    tilth("tokenizer", "convert", "gpt2.json", "--out", "gpt2.tiktoken")
    for name in ("gpt2/vocab.json", "gpt2/merges.txt", "gpt2.tiktoken"):
        found[name] = sha256(Path(name).read_bytes())
    return found


def data_folder():
    write_corpus()
    end = ("--special", "<|endoftext|>", "--special", "</s>")
    tilth("tokenizer", "train", "corpus", "--out", "own.json", "--vocab-size", 520, *end)
    found = {}
    for name, words in {
        "share": ("--valid", 0.2, "--threads", 1),
        "other end token": ("--valid", 0.5, "--end-token", "</s>"),
        "two corpora": ("--valid-corpus", "corpus/plain.txt"),
    }.items():
        out = Path(name)
        tilth("tokenize", "corpus", "--tokenizer", "own.json", "--out", out, *words)
        manifest = json.loads((out / "manifest.json").read_text())
        del manifest["checksum"]  # it covers the paths
        for source in manifest["sources"]:
            source["path"] = Path(source["path"]).name
        files = sorted(path for path in out.iterdir() if path.name != "manifest.json")
        checksums = {path.name: sha256(path.read_bytes()) for path in files}
        found[name] = {"files": checksums, "manifest": manifest}
    return found


def batches():
    ids = np.arange(20_011, dtype=np.uint16)
    found = {}
    for order in ("epoch", "random"):
        for seed in (0, 2**64 - 1):
            digest = hashlib.sha256()
            for x, y in tilth_package.Batches(ids, 6, 33, seed, order).read(0, 1000):
                digest.update(x.numpy().astype("<i8").tobytes())
                digest.update(y.numpy().astype("<i8").tobytes())
            found[f"{order}, seed {seed}"] = digest.hexdigest()
    return found


def accounts():
    return {words: json.loads(tilth("account", *words.split(), "--json")) for words in ACCOUNTS}


MADE = {each.__name__: each for each in (stories, tokenizers, data_folder, batches, accounts)}


def made(name):
    """Return the results of this edition as JSON values, computed in an empty folder."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        return json.loads(json.dumps(MADE[name]()))


def changed(golden, found, where=""):
    """Yield the differences; added keys do not count."""
    if isinstance(golden, dict) and isinstance(found, dict):
        for key, value in golden.items():
            if key not in found:
                yield f"{where}/{key} is missing"
            else:
                yield from changed(value, found[key], f"{where}/{key}")
    elif isinstance(golden, list) and isinstance(found, list) and len(golden) == len(found):
        for number, (left, right) in enumerate(zip(golden, found, strict=True)):
            yield from changed(left, right, f"{where}/{number}")
    elif golden != found or type(golden) is not type(found):
        yield f"{where} is {found!r}, not {golden!r}"


@pytest.mark.parametrize("name", MADE)
def test_results_equal_the_first_edition(name):
    golden = json.loads((GOLDENS / f"{name}.json").read_text())
    assert not list(changed(golden, made(name)))


def test_changes_are_found_and_additions_ignored():
    golden = {"a": [1, {"b": 2}], "c": None}
    assert not list(changed(golden, {"a": [1, {"b": 2, "new": 3}], "c": None, "d": 4}))
    for other in ({"a": [1, {"b": 3}], "c": None}, {"a": [1], "c": None}, {"a": [1, {"b": 2}]}):
        assert list(changed(golden, other))


if __name__ == "__main__":
    GOLDENS.mkdir(exist_ok=True)
    for name in MADE:
        lines = [
            f"{json.dumps(key)}: {json.dumps(value)}" for key, value in made(name).items()
        ]  # one line each, for readable diffs
        (GOLDENS / f"{name}.json").write_text("{" + ",\n".join(lines) + "}\n", "utf-8")
        print(f"Wrote {GOLDENS / name}.json, by {tilth_package.__file__}")
