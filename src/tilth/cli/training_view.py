"""A training as it goes, on stderr: a live panel on a terminal, plain lines elsewhere.

What enters: the run's config, then each step record. What leaves: text for people. What happens at
a step (an evaluation, a checkpoint, a sample, a skipped step) is one line, above the panel if there
is one; how the run stands is the panel, or a line every few seconds.

    with training_view(config) as show:
        for record in tilth.train(config, "runs/first"):
            show(record)

A model may write anything: whatever a terminal would obey is shown as an escape, as Python has it.
"""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, TextIO

from tilth.cli.signals import first_signal, say, silence_stderr
from tilth.config.training import ResolvedConfig
from tilth.formatting import printable
from tilth.runs.metrics import Evaluation, StepRecord

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from tilth.training.loop import PreparedRun

SECONDS_BETWEEN_LINES = 5.0
DRAWINGS_PER_SECOND = 4  # each takes 1 ms from the training
SMOOTHING_STEPS = 50  # that the shown loss is about the mean of
SAMPLE_CHARACTERS = 200  # in a line
WIDTH = 80

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
def training_view(config: ResolvedConfig) -> Iterator[Show]:
    """Yield the function that shows each step."""
    if (console := panel_console()) is not None:
        with _panel(config, console) as show:
            yield show
    else:
        yield _lines(config)


def panel_console() -> "Console | None":
    """Stderr, if it is a terminal that a panel can be drawn on."""
    if not sys.stderr.isatty():
        return None
    from rich.console import Console

    console = Console(stderr=True)
    return console if console.is_terminal and not console.is_dumb_terminal else None


class _Standing:
    """Where a run stands: its last step, and what is remembered of those before."""

    def __init__(self, config: ResolvedConfig) -> None:
        self.config = config
        self.record: StepRecord | None = None
        self.first: StepRecord | None = None
        self.loss: float | None = None
        self.evaluation: tuple[int, Evaluation] | None = None
        self.skipped = self.skipped_in_a_row = self._losses = 0
        self._seen_at = time.monotonic()

    def see(self, record: StepRecord) -> list[str]:
        """Take the next step in, and return what happened at it, a sentence each."""
        was_diverging = self.record is not None and self.record.is_diverging
        self.record, self._seen_at = record, time.monotonic()
        self.first = self.first or record
        if record.loss is not None:
            self._losses = min(self._losses + 1, SMOOTHING_STEPS)
            mean = record.loss if self.loss is None else self.loss
            self.loss = mean + (record.loss - mean) / self._losses
        events = []
        if record.was_skipped:
            self.skipped += 1
            self.skipped_in_a_row += 1
            what = "loss" if record.loss is None else "gradient"
            events.append(
                f"skipped: {what} not finite, {self.skipped_in_a_row} in a row (the run stops at "
                f"{self.config.max_skipped})"
            )
        else:
            self.skipped_in_a_row = 0
        if record.is_diverging and not was_diverging:
            events.append("diverging: the loss is far above what it had been")
        if record.evaluation is not None:
            self.evaluation = record.step, record.evaluation
            events.append(
                f"validation loss {record.evaluation.loss:.4f}, "
                f"perplexity {_decimal(record.evaluation.perplexity)}, "
                f"{record.evaluation.bits_per_byte:.4f} bits per byte"
            )
        if record.saved is not None:
            events.append(f"saving checkpoint {record.saved}")
        return [f"step {record.step:,}: {event}" for event in events]

    def times(self) -> str:
        """How long it has taken, and about how long it will."""
        since = time.monotonic() - self._seen_at
        if self.record is None or self.first is None:
            return f"{_clock(since)} gone"
        gone, left = self.record.seconds, self.config.steps - self.record.step
        # The first step of a session may have compiled the model, so it says little of the others.
        if self.record.step > self.first.step:
            pace = (gone - self.first.seconds) / (self.record.step - self.first.step)
        else:
            pace = self.config.tokens_per_step / self.record.tokens_per_second
        since = since if left > 0 else 0.0
        return f"{_clock(gone + since)} gone, {_clock(max(0.0, left * pace - since))} left"

    def values(self) -> dict[str, str]:
        """What there is to show, by name; what there is not (yet) is left out."""
        values: dict[str, str] = {}
        if self.record is not None:
            values["learning rate"] = f"{self.record.lr:.2e}"
            values["tokens/s"] = f"{self.record.tokens_per_second:,.0f}"
            values["utilisation"] = f"{self.record.utilisation:.1%}"
            if self.record.grad_norm is not None:
                values["gradient norm"] = f"{self.record.grad_norm:.3g}"
        if self.loss is not None:
            values["loss"] = f"{self.loss:.4f}"
        if self.evaluation is not None:
            step, evaluation = self.evaluation
            values["validation loss"] = f"{evaluation.loss:.4f}"
            values["perplexity"] = _decimal(evaluation.perplexity)
            values["bits per byte"] = f"{evaluation.bits_per_byte:.4f}"
            values["at step"] = f"{step:,}"
        return values


def _decimal(number: float) -> str:
    return f"{number:,.2f}" if number < 1e5 else f"{number:.2e}"


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
        now = time.monotonic()
        if now - last_line >= SECONDS_BETWEEN_LINES or record.step == config.steps:
            last_line = now
            lines.insert(0, _line(standing, record.step))
        for line in lines:
            print(line, file=sys.stderr, flush=True)

    return show


def _line(standing: _Standing, step: int) -> str:
    values = standing.values()
    steps = standing.config.steps
    return (
        f"step {step:,} of {steps:,} ({step / steps:.0%}): "
        f"loss {values.get('loss', 'not finite')}, learning rate {values['learning rate']}, "
        f"gradient norm {values.get('gradient norm', 'not finite')}, "
        f"{values['tokens/s']} tokens/s, utilisation {values['utilisation']}, {standing.times()}"
    )


# --- the panel ------------------------------------------------------------------------------------


@contextmanager
def _panel(config: ResolvedConfig, console: "Console") -> Iterator[Show]:
    from rich.live import Live
    from rich.padding import Padding
    from rich.text import Text

    standing = _Standing(config)

    def show(record: StepRecord) -> None:
        for event in standing.see(record):
            console.print(Text(event))
        if record.sample is not None:
            lines = [printable(line) for line in record.sample.split("\n")]
            console.print(Text(f"step {record.step:,}: sample:"))
            console.print(Padding(Text("\n".join(lines)), (0, 0, 0, 4)))

    terminal = sys.stderr
    # A thread draws, so that the clock goes on within a long step. While it does, sys.stderr prints
    # above the panel; stdout stays as it is, since results may go to a file from there.
    with (
        Live(
            console=console,
            get_renderable=lambda: _drawing(standing, console),
            refresh_per_second=DRAWINGS_PER_SECOND,
            redirect_stdout=False,
        ),
        _logging_to(sys.stderr, instead_of=terminal),
    ):
        yield show


def _drawing(standing: _Standing, console: "Console") -> "RenderableType":
    """The panel; 80 columns are enough, and nothing is said by colour alone."""
    from rich.panel import Panel
    from rich.text import Text

    config, values = standing.config, standing.values()
    width = min(WIDTH, console.width)
    step = standing.record.step if standing.record is not None else 0
    done = step / config.steps
    head = f"step {step:,} of {config.steps:,} " if standing.record else "getting ready "
    full, empty = "#." if console.options.ascii_only else "█░"
    cells = max(0, width - 4 - len(head) - len(" 100%"))
    bar = full * int(done * cells)
    lines = [Text(f"{head}{bar:{empty}<{cells}}{done:>5.0%}")]
    for left, middle, right in (
        ("loss", "validation loss", "perplexity"),
        ("learning rate", "gradient norm", "bits per byte"),
        ("tokens/s", "utilisation", "at step"),
    ):
        parts = (
            f"{left:<13} {values.get(left, '-'):>9}",
            f"{middle:<15} {values.get(middle, '-'):>8}",
            f"{right:<13} {values.get(right, '-'):>9}",
        )
        lines.append(Text("   ".join(parts)))
    if standing.skipped:
        row = f", {standing.skipped_in_a_row} in a row" if standing.skipped_in_a_row else ""
        text = f"! skipped {standing.skipped:,}{row}: loss or gradient not finite"
        lines.append(Text(text, style="bold"))
    if standing.record is not None and standing.record.is_diverging:
        text = "! diverging: the loss is far above what it had been"
        lines.append(Text(text, style="bold"))
    return Panel(
        Text("\n", no_wrap=True, overflow="ellipsis").join(lines),
        title=Text(printable(config.recipe)[: width // 2]),  # a longer one would widen it
        title_align="left",
        subtitle=Text(standing.times()),
        subtitle_align="right",
        width=width,
    )


@contextmanager
def _logging_to(stream: TextIO, *, instead_of: TextIO) -> Iterator[None]:
    """Lead log messages elsewhere: their handler keeps the stream that it was made with."""
    handlers = [
        handler
        for handler in logging.getLogger().handlers
        if isinstance(handler, logging.StreamHandler) and handler.stream is instead_of
    ]
    for handler in handlers:
        handler.setStream(stream)
    try:
        yield
    finally:
        for handler in handlers:
            handler.setStream(instead_of)
