"""A training as it goes, on stderr: a live panel on a terminal, plain lines elsewhere.

What enters: the run's config, then each step record. What leaves: text for people. What happens at
a step (an evaluation, a checkpoint, a sample, a skipped step) is one line, above the panel if there
is one; how the run stands is the panel, or a line every few seconds.

    with training_view(config) as show:
        for record in tilth.train(config, "runs/first"):
            show(record)

A model may write anything: whatever a terminal would obey is shown as an escape, as Python has it.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.panel import Panel
from rich.text import Text

from tilth.cli.progress import stderr_console
from tilth.cli.signals import first_signal, say, silence_stderr
from tilth.config.training import ResolvedConfig
from tilth.formatting import printable
from tilth.runs.metrics import StepRecord

if TYPE_CHECKING:
    from tilth.training.loop import PreparedRun

SECONDS_BETWEEN_LINES = 5.0
DRAWINGS_PER_SECOND = 4  # each takes 1 ms from the training
SMOOTHING_STEPS = 50  # that the shown loss is about the mean of
SAMPLE_CHARACTERS = 200  # in a line
WIDTH = 80
ROWS = (
    ("loss", "validation loss", "perplexity"),
    ("learning rate", "gradient norm", "bits per byte"),
    ("tokens/s", "utilisation", "at step"),
)
COLUMN_WIDTHS = ((13, 9), (15, 8), (13, 9))
DIVERGING = "diverging: the loss is far above what it had been"

Show = Callable[[StepRecord], None]


def drive(
    prepared: "PreparedRun", view: AbstractContextManager[Show], hint: str
) -> StepRecord | None:
    """Train and show each step; return the last one.

    The first signal leaves the loop, which saves, and ends the process; the second acts at once.
    """
    steps, record = prepared.config.steps, None
    with first_signal() as signals, view as show, closing(prepared.train()) as records:
        for record in records:
            try:
                show(record)
            except OSError:  # nobody looks any more, which is no reason to stop
                silence_stderr()
            if signals:
                break
    if signals and record is not None and record.step < steps:
        say(f"tilth: stopped after step {record.step:,} of {steps:,}, which is saved; {hint}")
        sys.exit(128 + signals[0])
    return record


@contextmanager
def training_view(config: ResolvedConfig, plain: Show | None = None) -> Iterator[Show]:
    """Yield the function that shows each step: on a panel, else `plain` (default: lines)."""
    console = stderr_console()
    if sys.stderr.isatty() and console.is_terminal and not console.is_dumb_terminal:
        with _panel(config, console) as show:
            yield show
    else:
        yield plain or _lines(config)


class _Standing:
    """The state of a run: its last step, and the values to show, by name."""

    def __init__(self, config: ResolvedConfig) -> None:
        self.config = config
        self.record: StepRecord | None = None
        self.values: dict[str, str] = {}
        self.skipped = self.skipped_in_a_row = self._losses = 0
        self._first: StepRecord | None = None
        self._mean_loss = 0.0
        self._seen_at = time.monotonic()

    def see(self, record: StepRecord) -> list[str]:
        """Take the next step in, and return what happened at it, a sentence each."""
        was_diverging = self.record is not None and self.record.is_diverging
        self.record, self._seen_at = record, time.monotonic()
        self._first = self._first or record
        self.values |= {
            "learning rate": f"{record.lr:.2e}",
            "tokens/s": f"{record.tokens_per_second:,.0f}",
            "utilisation": f"{record.utilisation:.1%}",
            "gradient norm": "" if record.grad_norm is None else f"{record.grad_norm:.3g}",
        }
        if record.loss is not None:
            self._losses = min(self._losses + 1, SMOOTHING_STEPS)
            self._mean_loss += (record.loss - self._mean_loss) / self._losses
            self.values["loss"] = f"{self._mean_loss:.4f}"
        events = []
        self.skipped_in_a_row = self.skipped_in_a_row + 1 if record.was_skipped else 0
        if record.was_skipped:
            self.skipped += 1
            what = "loss" if record.loss is None else "gradient"
            events.append(
                f"skipped: {what} not finite, {self.skipped_in_a_row} in a row (the run stops at "
                f"{self.config.max_skipped})"
            )
        if record.is_diverging and not was_diverging:
            events.append(DIVERGING)
        if (found := record.evaluation) is not None:
            shown = {
                "validation loss": f"{found.loss:.4f}",
                "perplexity": format(found.perplexity, ",.2f" if found.perplexity < 1e5 else ".2e"),
                "bits per byte": f"{found.bits_per_byte:.4f}",
            }
            self.values |= {**shown, "at step": f"{record.step:,}"}
            loss, perplexity, bits = shown.values()
            events.append(f"validation loss {loss}, perplexity {perplexity}, {bits} bits per byte")
        if record.saved is not None:
            events.append(f"saving checkpoint {record.saved}")
        return [f"step {record.step:,}: {event}" for event in events]

    def times(self) -> str:
        """How long it has taken, and about how long it will."""
        since = time.monotonic() - self._seen_at
        if self.record is None or self._first is None:
            return f"{_clock(since)} gone"
        gone, left = self.record.seconds, self.config.steps - self.record.step
        # The first step of a session may have compiled the model, so it says little of the others.
        if self.record.step > self._first.step:
            pace = (gone - self._first.seconds) / (self.record.step - self._first.step)
        else:
            pace = self.config.tokens_per_step / self.record.tokens_per_second
        since = since if left > 0 else 0.0
        return f"{_clock(gone + since)} gone, {_clock(max(0.0, left * pace - since))} left"


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


# --- plain lines ----------------------------------------------------------------------------------


def _lines(config: ResolvedConfig) -> Show:
    standing = _Standing(config)
    last_line = -SECONDS_BETWEEN_LINES

    def show(record: StepRecord) -> None:
        nonlocal last_line
        lines = standing.see(record)
        if record.sample is not None:
            sample = printable(record.sample[:SAMPLE_CHARACTERS])
            more = "…" if len(record.sample) > SAMPLE_CHARACTERS else ""
            lines.append(f"step {record.step:,}: sample: {sample}{more}")
        step, steps, values = record.step, config.steps, standing.values
        now = time.monotonic()
        if now - last_line >= SECONDS_BETWEEN_LINES or step == steps:
            last_line = now
            lines.insert(
                0,
                f"step {step:,} of {steps:,} ({step / steps:.0%}): loss "
                f"{values.get('loss', 'not finite')}, learning rate {values['learning rate']}, "
                f"gradient norm {values['gradient norm'] or 'not finite'}, {values['tokens/s']} "
                f"tokens/s, utilisation {values['utilisation']}, {standing.times()}",
            )
        for line in lines:
            print(line, file=sys.stderr, flush=True)

    return show


# --- the panel ------------------------------------------------------------------------------------


@contextmanager
def _panel(config: ResolvedConfig, console: Console) -> Iterator[Show]:
    standing = _Standing(config)

    def show(record: StepRecord) -> None:
        for event in standing.see(record):
            console.print(Text(event))
        if record.sample is not None:
            console.print(Text(f"step {record.step:,}: sample:"))
            sample = Text(printable(record.sample, keep="\n"))
            console.print(Padding(sample, (0, 0, 0, 4)))

    # A thread draws, so that the clock goes on within a long step. While it does, sys.stderr prints
    # above the panel; stdout stays as it is, since results may go to a file from there.
    with Live(
        console=console,
        get_renderable=lambda: _drawing(standing, console),
        refresh_per_second=DRAWINGS_PER_SECOND,
        redirect_stdout=False,
    ):
        yield show


def _drawing(standing: _Standing, console: Console) -> RenderableType:
    """The panel; 80 columns are enough, and nothing is said by colour alone."""
    config, record = standing.config, standing.record
    width = min(WIDTH, console.width)
    step = 0 if record is None else record.step
    head = "getting ready " if record is None else f"step {step:,} of {config.steps:,} "
    full, empty = "#." if console.options.ascii_only else "█░"
    bar_width = max(0, width - 4 - len(head) - len(" 100%"))
    bar = full * int(step / config.steps * bar_width)
    lines = [Text(f"{head}{bar:{empty}<{bar_width}}{step / config.steps:>5.0%}")]
    for row in ROWS:
        cells = (
            f"{name:<{name_width}} {standing.values.get(name) or '-':>{value_width}}"
            for name, (name_width, value_width) in zip(row, COLUMN_WIDTHS, strict=True)
        )
        lines.append(Text("   ".join(cells)))
    if standing.skipped:
        now = f", {standing.skipped_in_a_row} in a row" if standing.skipped_in_a_row else ""
        text = f"! skipped {standing.skipped:,}{now}: loss or gradient not finite"
        lines.append(Text(text, style="bold"))
    if record is not None and record.is_diverging:
        lines.append(Text(f"! {DIVERGING}", style="bold"))
    return Panel(
        Text("\n", no_wrap=True, overflow="ellipsis").join(lines),
        title=Text(printable(config.recipe)[: width // 2]),  # a longer one would widen it
        title_align="left",
        subtitle=Text(standing.times()),
        subtitle_align="right",
        width=width,
    )
