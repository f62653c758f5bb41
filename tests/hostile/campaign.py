"""A campaign of mutated files and arguments against every verb, or against the readers alone.

    python -m tests.hostile.campaign verbs --seed 1 --first 0 --count 1000

Case number n of a seed is always the same. This process imports everything once, and forks a child
for each batch of cases (see `batches.py`), which run in it under limits of memory, file size and
time. Each failed case prints a line of JSON: a signal, a hang, an exit code other than 0 and 2, an
internal error, a control character on standard error.
"""

import argparse
import contextlib
import gzip
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.first_edition import unpack
from tests.hostile.batches import run_in_batches
from tests.hostile.mutations import make_consistent, mutate_bytes, mutate_file
from tests.hostile.readers import Readers, other_tokenizers

CPU_SECONDS = 15  # of one case, however busy the machine is
HANG_SECONDS = 120
MEMORY_BYTES = 8 << 30
FILE_BYTES = 64 << 20

NUMBERS = ["0", "-1", "1", "3", "1.5", "1e400", "nan", "inf", "-inf", "2**3", "9" * 23, "9" * 400]
NUMBERS += [str(2**31), str(2**63), str(2**64), "", "-0", "0x10", "1_000", "٣", "1e-400"]
WORDS = [
    "",
    "a",
    "../..",
    "/dev/zero",
    "/dev/null",
    "/",
    ".",
    "\x1b[31m",
    "naïve",
    "\udcff",
    "None",
]
WORDS += ["a" * 5000, "{", "[" * 2000, "$(id)", "-", "--", "%s%n", "cuda", "meta", "privateuseone"]

NUMBER_OPTIONS = {
    "account": "--d-model --num-layers --num-heads --vocab-size --context-length --batch-size "
    "--num-microbatches --steps --mfu --hours --price --d-ff --rope-theta --num-kv-heads",
    "account ranks": "--ranks --shards --network --storage --mtbf --restart --checkpoint-every "
    "--seed --steps --batch-size --num-microbatches --mfu --memory",
    "generate": "--max-tokens --temperature --top-k --top-p --min-p --repetition-penalty --seed "
    "--threads --step --samples --alternatives",
    "lab lr": "--size --budget --steps --batch-size --seed --seeds --workers --cpus --gpus --time "
    "--optimizer.lr --machine.threads",
    "lab search": "--trials --size --budget --steps --seed --workers --model.num-layers",
    "lab sgd": "--lr --steps --seed",
    "tokenizer train": "--vocab-size --threads",
    "tokenize": "--threads --valid --shard-tokens",
    "corpus stories": "--seed",
    "evaluate": "--step --max-tokens --limit",
    "export": "--step",
    "train": "--batch-size --seed --size --model.d-model --model.num-layers --optimizer.lr "
    "--machine.threads --watch.save-every --microbatch-size --model.context-length --max-skipped "
    "--model.d-ff --model.head-dim --model.num-heads --model.num-kv-heads --model.norm-eps "
    "--model.rope-theta --model.rope-scaling.factor --model.vocab-size --optimizer.begin-step "
    "--optimizer.decay-steps --optimizer.eps --optimizer.max-grad-norm --optimizer.min-lr "
    "--optimizer.momentum --optimizer.momentum-warmup-steps --optimizer.warmup-steps "
    "--optimizer.weight-decay --optimizer.embedding-lr-factor --parallel.shards "
    "--parallel.memory-gb --watch.evaluate-every --watch.evaluation-tokens --watch.norms-every "
    "--watch.keep-checkpoints --watch.sample-every --watch.sample-tokens",
}
WORD_OPTIONS = {
    "account": "--hardware --memory --optimizer --dtype --norm --ffn --position",
    "account ranks": "--strategy --hardware --dtype",
    "generate": "--prompt --prompt-ids --device --quantize --stop --past-context --prompt-file",
    "lab lr": "--recipe --cluster --address --partition",
    "lab search": "--vary --vary --vary --recipe --cluster",
    "tokenizer train": "--special --pattern --field --separator --from-counts",
    "tokenizer count": "--special --pattern --field --separator",
    "tokenize": "--end-token --separator --field",
    "corpus stories": "--size",
    "corpus info": "--field --separator",
    "evaluate": "--device --data --tasks",
    "train": "--machine.device --machine.dtype --optimizer.name --budget --init --order "
    "--model.norm --model.ffn --model.position --optimizer.schedule --parallel.strategy "
    "--optimizer.muon-coefficients --watch.sample-prompt --watch.sinks",
    "export": "--to --dtype --quantize --push",
    "verify": "",
    "runs": "",
}
ONE_STEP = ("--steps", "1", "--machine.no-compile")
VARIED = ["optimizer.lr", "model.num_layers", "seed", "optimizer.betas", "data", "", "a"]


class Hang(BaseException):
    """Raised by the alarm; not an Exception, so that no verb catches it."""


def _alarm(_number, _frame):
    raise Hang


class Campaign:
    """The cases of one seed, in a scratch folder."""

    def __init__(self, seed, folder):
        self.seed, self.folder = seed, folder
        self.edition = folder / "edition"
        unpack(self.edition)
        self.corpora = folder / "corpora"
        self.corpora.mkdir()
        _make_corpora(self.corpora)
        self.models = folder / "models"
        make_models(self.models)
        self.tokenizers = folder / "tokenizers"
        for number, content in enumerate(other_tokenizers()):
            for name, data in content.items():
                path = self.tokenizers / str(number) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)

    def words_of(self, number):
        """Prepare a case's files and return the words of its command."""
        chance = random.Random(f"{self.seed}:{number}")
        scratch = self.folder / "case"
        shutil.rmtree(scratch, ignore_errors=True)
        kinds = ["data", "run", "run", "lab", "tokenizer", "corpus", "words", "words", "model"]
        kinds += ["config"]
        kind = chance.choice(kinds)
        return getattr(self, f"_{kind}")(chance, scratch)

    def _copy(self, chance, scratch, name):
        source = chance.choice(sorted(self.edition.rglob(name))).parent
        shutil.copytree(source, scratch, symlinks=True)
        files = sorted(path for path in scratch.rglob("*") if path.is_file())
        for path in chance.sample(files, min(len(files), chance.choice([1, 1, 2]))):
            mutate_file(chance, path)
        if chance.random() < 0.8:
            make_consistent(scratch)
        return scratch

    def _data(self, chance, scratch):
        folder = self._copy(chance, scratch, "train.npy")
        tiny = (*ONE_STEP, "--model.d-model", "16", "--model.num-layers", "1", "--batch-size", "1")
        tiny += ("--model.num-heads", "2", "--model.context-length", "8")
        tiny += ("--machine.threads", "1", "--watch.sample-tokens", "1")
        return chance.choice(
            [
                ("verify", folder),
                ("verify", folder, "--json"),
                ("train", "tiny", "--data", folder, "--out", self.folder / "case" / "out", *tiny),
            ]
        )

    def _run(self, chance, scratch):
        run = self._copy(chance, scratch, "config.toml")
        few = ("--prompt", "Once", "--max-tokens", "2")
        return chance.choice(
            [
                ("verify", run),
                ("runs", run),
                ("runs", run, "--json"),
                ("generate", run, *few),
                ("generate", run, *few, "--quantize", "int8"),
                ("generate", run, *few, "--cache", "int8", "--drafts"),
                ("evaluate", run, "--data", self.edition / "data", "--max-tokens", "16"),
                ("account", run),
                ("account", run, "--json"),
                ("resume", run, "--data", self.edition / "data"),
            ]
            + ([("report", run, "--out", scratch / "r.html")] if chance.random() < 0.05 else [])
        )

    def _model(self, chance, scratch):
        """A model folder or a file of llama2.c, with one or two mutated files."""
        shutil.copytree(chance.choice(sorted(self.models.iterdir())), scratch)
        files = sorted(path for path in scratch.iterdir() if path.suffix != ".md")
        for path in chance.sample(files, chance.choice([1, 1, 2])):
            mutate_file(chance, path)
        out, few = scratch / "out", ("--prompt", "Once", "--max-tokens", "2")
        if (scratch / "model.bin").exists():
            return ("import", scratch / "model.bin", "--out", out)
        return chance.choice(
            [
                ("verify", scratch),
                ("account", scratch),
                ("generate", scratch, *few),
                ("generate", scratch, *few, "--quantize", "int8"),
                ("import", scratch, "--out", out),
                ("export", scratch, "--to", "llama2c", "--out", out / "m.bin"),
                ("export", scratch, "--to", "gguf", "--out", out / "m.gguf"),
                ("evaluate", scratch, "--tasks", "cloze", "--limit", "1"),
            ]
        )

    def _lab(self, chance, scratch):
        """A lab or its question; a report takes a second, so it is rare."""
        data, few = self.edition / "data", ("--recipe", "tiny", "--steps", "4", "--dry-run")
        if chance.random() < 0.3:
            scratch.mkdir()
            question = Path(shutil.copy(self.edition / "question.toml", scratch))
            mutate_file(chance, question)
            return ("lab", question, "--data", data, "--out", scratch / "lab", *few)
        lab = self._copy(chance, scratch, "lab.json")
        if chance.random() < 0.05:
            return ("report", lab, "--out", scratch / "report.html")
        return ("lab", "lr", "--data", data, "--out", lab, *few)

    def _config(self, chance, scratch):
        """The config of a run, as the subject of accounting and as the options of a training."""
        scratch.mkdir()
        source = chance.choice(sorted(self.edition.rglob("config.toml")))
        config = Path(shutil.copy(source, scratch))
        mutate_file(chance, config)
        out = ("--data", self.edition / "data", "--out", scratch / "run", "--steps", "1")
        return chance.choice(
            [
                ("account", config),
                ("account", config, "--json"),
                ("train", "custom", "--config", config, *out),
                ("train", "tiny", "--config", config, *out),
            ]
        )

    def _tokenizer(self, chance, scratch):
        names = ["data/tokenizer.json", "gpt2/vocab.json", "gpt2/merges.txt"]
        sources = [self.edition / name for name in names] + [*self.edition.glob("*.tiktoken")]
        sources += sorted(self.tokenizers.glob("*/*.json"))
        source = chance.choice(sources)
        scratch.mkdir()
        for path in {source, *source.parent.glob("*.json"), *source.parent.glob("merges.txt")}:
            shutil.copy(path, scratch)
        path = scratch / source.name
        mutate_file(chance, path)
        return chance.choice(
            [
                ("tokenizer", "inspect", path, "--text", "Once upon a time"),
                ("tokenizer", "inspect", path, "--text", "a 12", "--pattern", "gpt2"),
                ("tokenizer", "convert", path, "--out", scratch / "out.json"),
                ("tokenizer", "convert", path, "--out", scratch / "out.tiktoken"),
                ("tokenizer", "convert", path, "--out", scratch / "tekken.json"),
                ("tokenizer", "compare", path, "--text", self.corpora / "plain.txt"),
            ]
        )

    def _corpus(self, chance, scratch):
        scratch.mkdir()
        source = chance.choice(sorted(self.corpora.iterdir()))
        path = scratch / source.name
        path.write_bytes(mutate_bytes(chance, source.read_bytes()))
        if chance.random() < 0.8:
            make_consistent(scratch)
        out = scratch / "t.json"
        if path.suffix == ".counts":
            return chance.choice(
                [
                    ("tokenizer", "merge-counts", source, path, "--out", out),
                    ("tokenizer", "train", "--from-counts", path, "--out", out),
                ]
            )
        return chance.choice(
            [
                ("corpus", "info", path),
                ("tokenizer", "train", path, "--vocab-size", "300", "--out", out),
                ("tokenizer", "count", path, "--out", out),
            ]
        )

    def _words(self, chance, scratch):
        scratch.mkdir()
        run, data = self.edition / "runs" / "adamw", self.edition / "data"
        plain, tokenizer = self.corpora / "plain.txt", self.edition / "tokenizer.json"
        begin = {
            "account": ("account", chance.choice(["gpt2-small", "tinystories", run, "/dev/zero"])),
            "generate": ("generate", run, "--max-tokens", "2"),
            "tokenizer train": (
                "tokenizer",
                "train",
                self.corpora / "plain.txt",
                "--out",
                "t.json",
            ),
            "tokenizer count": ("tokenizer", "count", plain, "--out", "c"),
            "tokenize": ("tokenize", plain, "--tokenizer", tokenizer, "--out", "data"),
            "corpus stories": ("corpus", "stories", "--size", "1kB", "--out", "s.txt"),
            "corpus info": ("corpus", "info", plain),
            "account ranks": ("account", "gpt2-small", "--hardware", "h100", "--ranks", "4"),
            "lab lr": ("lab", "lr", "--data", data, "--recipe", "tiny", "--dry-run"),
            "lab search": ("lab", "search", "--data", data, "--recipe", "tiny", "--dry-run"),
            "lab sgd": ("lab", "sgd", "--json"),
            "evaluate": ("evaluate", run, "--data", data, "--max-tokens", "8"),
            "train": ("train", "tiny", "--data", data, "--out", "run", *ONE_STEP),
            "export": ("export", run, "--out", "out"),
            "verify": ("verify",),
            "runs": ("runs",),
        }
        verb = chance.choice(sorted(begin))
        words = list(begin[verb])
        for _ in range(chance.choice([1, 1, 2, 3])):
            numbers = NUMBER_OPTIONS.get(verb, "").split()
            texts = WORD_OPTIONS.get(verb, "").split()
            if numbers and chance.random() < 0.6:
                words += [chance.choice(numbers), chance.choice(NUMBERS)]
            elif texts and chance.random() < 0.8:
                option, value = chance.choice(texts), chance.choice([*WORDS, *NUMBERS])
                if option == "--vary":
                    ends = chance.choices([*NUMBERS, *NUMBERS, *WORDS], k=2)
                    value = f"{chance.choice(VARIED)}={chance.choice(['..', ',']).join(ends)}"
                words += [option, value]
            else:
                words.append(chance.choice([*WORDS, *NUMBERS]))
        return words

    def problem_of(self, number):
        """What a case broke, or None, and its words."""
        from tilth.cli.app import run

        words = [str(word) for word in self.words_of(number)]
        out, errors = io.StringIO(), io.StringIO()
        os.chdir(self.folder / "case")
        began, code, problem = time.process_time(), None, None
        signal.setitimer(signal.ITIMER_REAL, HANG_SECONDS)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
                code = run(words)
        except Hang:
            problem = f"took more than {HANG_SECONDS} s"
        except SystemExit as end:
            code = end.code
        except BaseException as error:
            problem = f"{type(error).__name__}: {error}"[:500]
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            os.chdir(self.folder)
        said = errors.getvalue()
        if problem is None and code not in (0, 2):
            problem = f"exit code {code}: {said[:500]}"
        elif problem is None and code == 2 and "tilth: " not in said:
            problem = f"exit code 2 without a sentence: {said[:300]}"
        elif problem is None and any(c < " " and c not in "\n\t" for c in said):
            problem = f"a control character on standard error: {said[:300]!r}"
        elif problem is None and (seconds := time.process_time() - began) > CPU_SECONDS:
            problem = f"took {seconds:.1f} s of CPU time"
        return problem, words


def make_models(folder):
    from tests.formats.models import config_of, model_of
    from tilth.formats import huggingface, llama2c

    for variant in ("untied", "qwen2", "qwen3", "llama3"):
        target = folder / variant
        target.mkdir(parents=True)
        huggingface.write_folder(target, model_of(config_of(variant)))
        huggingface.write_manifest(target, {"source": "test"})
    for name, write in (("v0", llama2c.write_model), ("v2", llama2c.write_quantized)):
        target, model = folder / name, model_of(config_of("untied"))
        target.mkdir()
        with (target / "model.bin").open("wb") as file:
            write(file, model)
        with (target / "tokenizer.bin").open("wb") as file:
            llama2c.write_tokenizer(file, model.tokenizer, model.config.vocab_size)


def _make_corpora(folder):
    stories = ("Once upon a time there was a mouse.\n<|endoftext|>\n" * 40).encode()
    (folder / "plain.txt").write_bytes(stories)
    (folder / "plain.txt.gz").write_bytes(gzip.compress(stories))
    from tilth.tokenizer import count_pieces

    count_pieces(folder / "plain.txt", ["<|endoftext|>"]).save(folder / "plain.counts")
    lines = "".join(json.dumps({"text": f"story {n}"}) + "\n" for n in range(50))
    (folder / "lines.jsonl").write_text(lines)
    with contextlib.suppress(ImportError):
        import zstandard

        (folder / "plain.txt.zst").write_bytes(zstandard.compress(stories))
    with contextlib.suppress(ImportError):
        import pyarrow
        import pyarrow.parquet

        table = pyarrow.table({"text": [f"story {n} of a mouse" for n in range(100)]})
        pyarrow.parquet.write_table(table, folder / "stories.parquet")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("level", choices=("verbs", "readers"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    options = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, _alarm)
    with tempfile.TemporaryDirectory() as folder:
        campaign = Campaign(options.seed, Path(folder))
        if options.level == "readers":
            parts = (campaign.edition, campaign.corpora, campaign.models, Path(folder))
            campaign = Readers(options.seed, *parts)
        numbers = range(options.first, options.first + options.count)
        for problem in run_in_batches(campaign.problem_of, numbers, HANG_SECONDS + 30):
            print(json.dumps(problem), flush=True)


if __name__ == "__main__":
    sys.exit(main())
