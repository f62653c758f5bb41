"""`tilth demo`: the whole toolkit in eight stages, from generated stories to a trained model.

Each stage opens the files of the stage before it, calls the public API, and writes files for the
next. Needs no network. Writes stories, a tokenizer, token files, a run and a report to one folder.

    tilth demo            about five minutes on two cores, into demo/
    tilth demo --quick    one minute: a smaller model and less text, into demo-quick/

A stage skips files that exist, and training resumes: an interrupted demo continues when it is
called again.
"""

import shlex
import shutil
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.text import Text

import tilth
from tilth.cli.signals import say
from tilth.cli.tokenizer import print_pieces
from tilth.config import MachineConfig, TrainingConfig
from tilth.config.model import END_TOKEN
from tilth.corpus import Corpus
from tilth.corpus.stories import write_stories
from tilth.errors import has_extra
from tilth.files import load_manifest, save_manifest
from tilth.formatting import format_bytes, format_duration, printable, scientific
from tilth.runs import StepRecord
from tilth.runs.metrics import METRICS
from tilth.schema import Range, check_int

SENTENCE = "Once upon a time, a hedgehog learned to program."
BEGINNINGS = ("Once upon a time", "There was once a mouse", "Deep in the forest lived a")
WIDTH = 80
INDENT = "   "


@dataclass(frozen=True)
class Sizes:
    """Amounts of text and training, which decide the duration of a demo."""

    stories_bytes: int
    vocab_size: int
    recipe: str
    steps: int | None = None
    """None: as many as the recipe has."""


FULL = Sizes(stories_bytes=20_000_000, vocab_size=4_000, recipe="small")
QUICK = Sizes(stories_bytes=5_000_000, vocab_size=2_000, recipe="tiny", steps=700)


class Demo:
    """A demo: its sizes, and the paths that its stages write."""

    def __init__(self, folder: Path, sizes: Sizes, seed: int, console: Console) -> None:
        self.folder, self.sizes, self.seed, self.console = folder, sizes, seed, console
        self.stories = folder / "stories.txt"
        self.tokenizer = folder / "tokenizer.json"
        self.data = folder / "data"
        self.run = folder / "run"
        self.report = folder / "report.html"

    def config(self) -> TrainingConfig:
        """Return the training config: the recipe, for these token files."""
        config = tilth.recipes.RECIPES[self.sizes.recipe](self.data, steps=self.sizes.steps)
        # The page Time of the studio shows the weights of some steps: 16 MB (--quick) or 63 MB.
        watch = replace(config.watch, weights_per_doubling=1)
        # Compilation takes a minute, more than it gains in a run of this length.
        machine = MachineConfig(compile=False)
        return replace(config, seed=self.seed, machine=machine, watch=watch)

    def say(self, text: str) -> None:
        """Print one line of a stage."""
        self.console.print(f"{INDENT}{text}")


def demo(*, quick: bool = False, out: Path | None = None, seed: int = 0) -> None:
    """Run the whole toolkit: stories, tokenizer, token files, training, evaluation, text, report.

    Needs no network. Files that exist are kept, so an interrupted demo continues when it is called
    again.

    Args:
        quick: Run for one minute instead of five: a smaller model on less text.
        out: Output folder; default: demo, with --quick demo-quick.
        seed: Random seed of the stories and the model.

    Examples:
        tilth demo
        tilth demo --quick --out /tmp/demo
    """
    # Two default folders: a folder holds one kind of demo.
    folder = out or Path("demo-quick" if quick else "demo")
    sizes = QUICK if quick else FULL
    was_there = _claim(folder, sizes, seed)
    console = Console(highlight=False, markup=False, soft_wrap=True)
    minutes = "a minute" if quick else "five minutes"
    console.print(f"From nothing to a model that writes stories, in about {minutes} on two cores.")
    start = f"Output folder: {folder}. After Ctrl-C, the same command continues."
    console.print(f"Existing files in {folder} are kept." if was_there else start)
    made, began = Demo(folder, sizes, seed, console), time.monotonic()
    for number, (title, stage) in enumerate(STAGES, start=1):
        console.print(f"\n{number}. {title}", style="bold")
        then = time.monotonic()
        result = stage(made)
        console.print(f"{INDENT}{result} ({format_duration(round(time.monotonic() - then, 1))})")
    console.print(f"\nDone in {format_duration(round(time.monotonic() - began))}. Next, try:\n")
    for command in _next_commands(made):
        console.print(f"{INDENT}{command}")
    console.print(f"\nWrote {folder}")


# --- the stages, in order; each returns a sentence about its result -------------------------------


def make_stories(demo: Demo) -> str:
    """Generate text to train on; needs no network."""
    if not demo.stories.exists():
        write_stories(demo.stories, demo.sizes.stories_bytes, demo.seed)
    number = sum(len(block.documents().texts) for block in Corpus(demo.stories).blocks())
    return f"{number:,} stories, {format_bytes(demo.stories.stat().st_size)}: {demo.stories}"


def learn_tokenizer(demo: Demo) -> str:
    """Train BPE: start from bytes, merge the most frequent pair into a token, repeat."""
    if not demo.tokenizer.exists():
        tokenizer = tilth.train_tokenizer(demo.stories, demo.sizes.vocab_size, [END_TOKEN])
        tokenizer.save(demo.tokenizer)
    tokenizer = tilth.Tokenizer.load(demo.tokenizer)
    ids = tokenizer.encode(SENTENCE)
    demo.console.print(INDENT, end="")
    print_pieces(demo.console, [tokenizer.decode_bytes([token_id]) for token_id in ids])
    return f"{tokenizer.vocab_size:,} tokens: {demo.tokenizer}"


def write_token_files(demo: Demo) -> str:
    """Encode the stories; 1% of them are held out for validation."""
    if not (demo.data / "manifest.json").exists():  # written last
        tilth.tokenize(demo.stories, tilth.Tokenizer.load(demo.tokenizer), demo.data)
    data = tilth.open_data(demo.data)
    text_bytes = data.text_bytes("train") + data.text_bytes("valid")
    tokens = len(data.train) + len(data.valid)
    demo.say(f"{text_bytes / tokens:.2f} bytes per token")
    return f"{len(data.train):,} training tokens, {len(data.valid):,} for validation: {demo.data}"


def account_for_model(demo: Demo) -> str:
    """Count parameters, FLOPs and memory before training."""
    account = tilth.account(demo.config())
    model, parameters = account.config, account.parameters
    assert account.run_flops is not None, "a recipe has steps"
    demo.say(f"{model.num_layers} layers of width {model.d_model}, {model.num_heads} heads each")
    demo.say(
        f"{parameters.total:,} parameters: embedding {parameters.embedding:,}, "
        f"blocks {parameters.without_embedding_and_head:,}, head {parameters.head:,}"
    )
    return (
        f"{account.run_tokens:,} tokens cost {scientific(account.run_flops)} FLOPs, "
        f"{format_bytes(account.memory.peak_bytes)} of memory"
    )


def train_model(demo: Demo) -> str:
    """Predict the next token, compute the loss, update every parameter, repeat."""
    from tilth.cli.training_view import drive, training_view
    from tilth.training.loop import prepare, prepare_resume

    run, data = demo.run, demo.data
    if not (run.exists() and tilth.open_run(run).is_finished):
        prepared = prepare_resume(run, data=data) if run.exists() else prepare(demo.config(), run)
        view = training_view(prepared.config, _show_milestone)
        drive(prepared, view, "the same command continues")
    config = tilth.open_run(run).config
    return f"{config.steps:,} steps of {config.tokens_per_step:,} tokens: {run}"


def evaluate_model(demo: Demo) -> str:
    """Evaluate on held-out stories."""
    from tilth.training.evaluation import evaluate_run

    _, found = evaluate_run(tilth.open_run(demo.run), data=demo.data)
    demo.say(f"perplexity {found.perplexity:.2f}: as uncertain as a choice among that many tokens;")
    demo.say(f"an untrained model chooses among {demo.sizes.vocab_size:,}")
    return f"loss {found.loss:.3f} nats per token, {found.bits_per_byte:.3f} bits per byte"


def tell_stories(demo: Demo) -> str:
    """Sample a token, append it, predict again, until the end token."""
    model = tilth.load(demo.run)
    tokens, began = 0, time.monotonic()
    for beginning in BEGINNINGS:
        text = model.generate(beginning, temperature=0.4, max_tokens=400, seed=demo.seed)
        _print_story(demo.console, beginning, beginning + "".join(text))
        tokens += len(text.token_ids)
    return f"{tokens:,} tokens, {tokens / (time.monotonic() - began):,.0f} tokens/s"


def write_report(demo: Demo) -> str:
    """Write learning curves, samples, costs and commands as HTML and Markdown."""
    from tilth.report.writing import read_report, save_report

    if not has_extra("report"):
        return 'skipped: it needs an extra; pip install "tilth[report]"'
    written = (demo.report, demo.report.with_suffix(".md"), demo.folder / "report-curves.png")
    last_step = (demo.run / METRICS).stat().st_mtime  # the run may have been trained further
    if not all(path.exists() and path.stat().st_mtime >= last_step for path in written):
        save_report(read_report([demo.run]), demo.report, overwrite=True)
    return f"{demo.report} (opens offline)"


STAGES: tuple[tuple[str, Callable[[Demo], str]], ...] = (
    ("Generate short stories to train on.", make_stories),
    ("Train a tokenizer: frequent pairs become tokens.", learn_tokenizer),
    ("Encode the stories as token ids.", write_token_files),
    ("Count parameters, FLOPs and memory before training.", account_for_model),
    ("Train it to predict the next token.", train_model),
    ("Evaluate it on held-out stories.", evaluate_model),
    ("Generate stories from three prompts.", tell_stories),
    ("Write a report.", write_report),
)


# --- helpers --------------------------------------------------------------------------------------


def _claim(folder: Path, sizes: Sizes, seed: int) -> bool:
    """Create the folder; return whether it held the same demo already."""
    check_int("--seed", seed, Range(at_least=0, below=2**63))
    settings = {**asdict(sizes), "seed": seed}
    path = folder / "demo.json"
    if path.exists():
        # Stages only check that their files exist: they must belong to the same demo.
        if load_manifest(path, kind="demo", version=1) != settings:
            raise FileExistsError(
                f"{folder} is a demo with another --seed or --quick; name another --out."
            )
        return True
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty and is not a demo; name another --out.")
    save_manifest(path, settings, kind="demo", version=1)
    return False


def _show_milestone(record: StepRecord) -> None:
    if record.evaluation is not None:
        gone = format_duration(round(record.seconds))
        loss = f"validation loss {record.evaluation.loss:.3f}"
        say(f"{INDENT}step {record.step:>5,}: {loss} after {gone}")
    if record.sample is not None:
        sample = textwrap.shorten(printable(record.sample), WIDTH - 12, placeholder=" ...")
        say(f"{INDENT}{sample}")


def _print_story(console: Console, beginning: str, story: str) -> None:
    """Print a story in lines that fit, the given beginning in bold."""
    text = Text(printable(story.strip(), keep="\n"))
    text.stylize("bold", 0, len(beginning))
    for line in text.wrap(console, min(WIDTH, console.width) - len(INDENT)):
        console.print(Text(INDENT) + line)
    console.print()


def _next_commands(demo: Demo) -> list[str]:
    """Return commands to try next, with the program name of this process."""
    called = sys.argv[0]
    program = "tilth" if called == shutil.which("tilth") else shlex.quote(called)
    if Path(called).name == "__main__.py":
        program = "python -m tilth"
    run, data = (shlex.quote(str(path)) for path in (demo.run, demo.data))
    return [
        f'{program} generate {run} --prompt "One day" --temperature 0.4',
        f"{program} resume {run} --steps 1000",
        f"{program} account {run}",
        f"{program} lab lr --data {data} --budget 20m --out lab/lr",
        f"{program} report {run} lab/lr --out report.html",
    ]
