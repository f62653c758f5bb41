"""Training progress on stderr: a live panel on a terminal, plain lines elsewhere.

Events of a step (evaluation, checkpoint, sample, skipped step) are printed as lines, above the
panel if there is one. Other values are in the panel, or in a line every five seconds.

    with training_view(config) as show:
        for record in tilth.train(config, "runs/first"):
            show(record)

Control characters in generated text are escaped.
"""

import signal
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

from tilth.cli.progress import SECONDS_BETWEEN_LINES, stderr_console
from tilth.cli.signals import first_signal, say, silence_stderr
from tilth.config.training import ResolvedConfig
from tilth.formatting import format_duration, printable
from tilth.runs.metrics import StepRecord

if TYPE_CHECKING:
    from tilth.training.loop import PreparedRun

DRAWINGS_PER_SECOND = 4  # each takes 1 ms of training time
SMOOTHING_STEPS = 50  # of the moving average of the loss
SAMPLE_CHARACTERS = 200  # per line
WIDTH = 80
ROWS = (
    ("loss", "validation loss", "perplexity"),
    ("learning rate", "gradient norm", "bits per byte"),
    ("tokens/s", "utilisation", "at step"),
)
COLUMN_WIDTHS = ((13, 9), (15, 8), (13, 9))
DIVERGING = "diverging: the loss is far above its recent values"

Show = Callable[[StepRecord], None]
Total = Callable[[], int]


def drive(
    prepared: "PreparedRun", view: AbstractContextManager[Show], hint: str
) -> StepRecord | None:
    """Train and show each step; return the last record.

    The first signal ends the loop, which saves a checkpoint, then the process. The second acts at
    once.
    """
    from tilth.training.distributed import LostRankError, open_ranks

    record, is_stopped = None, False
    ranks = open_ranks()
    try:
        with (
            first_signal(is_rank=ranks.size > 1) as signals,
            view as show,
            closing(prepared.train()) as records,
        ):
            for record in records:
                try:
                    show(record)
                except OSError:  # stderr is closed: keep training
                    silence_stderr()
                if ranks.any(bool(signals)):  # a signal to one rank stops all after the same step
                    is_stopped = True
                    break
    except LostRankError:  # torchrun sends SIGTERM now, and this process ends already
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise
    steps = prepared.steps
    if is_stopped and record is not None and record.step < steps:
        if ranks.is_first:
            say(f"tilth: stopped after step {record.step:,} of {steps:,}, which is saved; {hint}")
        sys.exit(128 + (signals[0] if signals else signal.SIGTERM))
    return record


@contextmanager
def training_view(
    config: ResolvedConfig, plain: Show | None = None, *, total: Total | None = None
) -> Iterator[Show]:
    """Yield the function that shows a step: in a panel, or by `plain` (default: lines).

    `total` returns the number of steps, if a time budget may change it.
    """
    console = stderr_console()
    standing = _Standing(config, total)
    if sys.stderr.isatty() and console.is_terminal and not console.is_dumb_terminal:
        with _panel(standing, console) as show:
            yield show
    else:
        yield plain or _lines(standing)


class _Standing:
    """The state of a run: its last record, and formatted values by name."""

    def __init__(self, config: ResolvedConfig, total: Total | None = None) -> None:
        self.config = config
        self.total = total or (lambda: config.steps)
        self.record: StepRecord | None = None
        self.values: dict[str, str] = {}
        self.skipped = self.skipped_in_a_row = self._losses = 0
        self._first: StepRecord | None = None
        self._mean_loss = 0.0
        self._seen_at = time.monotonic()

    def see(self, record: StepRecord) -> list[str]:
        """Add a record; return its events, one sentence each."""
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
        """Return the elapsed time and the estimated time left."""
        since = time.monotonic() - self._seen_at
        if self.record is None or self._first is None:
            return f"{_clock(since)} gone"
        gone, left = self.record.seconds, self.total() - self.record.step
        # Without the first step of the session, which may have compiled the model.
        if self.record.step > self._first.step:
            pace = (gone - self._first.seconds) / (self.record.step - self._first.step)
        else:
            pace = self.config.tokens_per_step / self.record.tokens_per_second
        since = since if left > 0 else 0.0
        return f"{_clock(gone + since)} gone, {_clock(max(0.0, left * pace - since))} left"


def _clock(seconds: float) -> str:
    # timedelta raises OverflowError for more than 2.7 million years.
    return str(timedelta(seconds=round(seconds))) if seconds < 1e9 else format_duration(seconds)


# --- plain lines ----------------------------------------------------------------------------------


def _lines(standing: _Standing) -> Show:
    last_line = -SECONDS_BETWEEN_LINES

    def show(record: StepRecord) -> None:
        nonlocal last_line
        lines = standing.see(record)
        if record.sample is not None:
            sample = printable(record.sample[:SAMPLE_CHARACTERS])
            more = "…" if len(record.sample) > SAMPLE_CHARACTERS else ""
            lines.append(f"step {record.step:,}: sample: {sample}{more}")
        step, steps, values = record.step, standing.total(), standing.values
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
def _panel(standing: _Standing, console: Console) -> Iterator[Show]:
    def show(record: StepRecord) -> None:
        for event in standing.see(record):
            console.print(Text(event))
        if record.sample is not None:
            console.print(Text(f"step {record.step:,}: sample:"))
            sample = Text(printable(record.sample, keep="\n"))
            console.print(Padding(sample, (0, 0, 0, 4)))

    # A thread draws, so the clock also advances within a long step. Meanwhile sys.stderr prints
    # above the panel; stdout is not redirected, as it may be a file.
    with Live(
        console=console,
        get_renderable=lambda: _drawing(standing, console),
        refresh_per_second=DRAWINGS_PER_SECOND,
        redirect_stdout=False,
    ):
        yield show


def _drawing(standing: _Standing, console: Console) -> RenderableType:
    """Return the panel, at most 80 columns wide; no information is in color alone."""
    config, record = standing.config, standing.record
    width = min(WIDTH, console.width)
    step, steps = 0 if record is None else record.step, standing.total()
    head = "getting ready " if record is None else f"step {step:,} of {steps:,} "
    full, empty = "#." if console.options.ascii_only else "█░"
    bar_width = max(0, width - 4 - len(head) - len(" 100%"))
    bar = full * int(step / steps * bar_width)
    lines = [Text(f"{head}{bar:{empty}<{bar_width}}{step / steps:>5.0%}")]
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
        title=Text(printable(config.recipe)[: width // 2]),  # a longer title would widen the panel
        title_align="left",
        subtitle=Text(standing.times()),
        subtitle_align="right",
        width=width,
    )
