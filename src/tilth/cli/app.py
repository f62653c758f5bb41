"""The command's frame: which verbs there are, and how every one of them ends.

| exit code | what happened |
|---|---|
| 0 | it worked |
| 1 | the reader of the output closed the pipe |
| 2 | an error that the user can correct: one sentence on stderr |
| 70 | a bug in tilth: one sentence on stderr |
| 130, 143 | Ctrl-C, SIGTERM; open files were taken back |

`--debug` shows the traceback of an error.
"""

import logging
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from io import TextIOWrapper
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, TextIO

from cyclopts import App, CycloptsError, Parameter, UnknownOptionError

from tilth import __version__
from tilth.cli.options import convert_exactly
from tilth.cli.signals import say
from tilth.errors import is_out_of_memory, missing_extra
from tilth.formatting import printable, suggestion

app = App(
    name="tilth",
    help="Grow a language model from plain text.",
    version=__version__,
    # Importing rich's Markdown costs 45 ms of the 400 ms in which --help must answer.
    help_format="plaintext",
    version_format="plaintext",
    # Errors come to main(), which says them in one sentence.
    print_error=False,
    exit_on_error=False,
    suppress_keyboard_interrupt=False,
    result_action="return_value",
    # Only the fields of a config can be negated: see overrides.py.
    default_parameter=Parameter(converter=convert_exactly, negative_bool=(), negative_iterable=()),
)
# The verbs, each loaded when it is called.
app.command("tilth.cli.demo:demo", help="From nothing to a model that writes stories.")
app.command("tilth.cli.corpus:app", name="corpus", help="Text: stories, downloads, your own.")
app.command("tilth.cli.tokenizer:app", name="tokenizer", help="Text to token ids and back.")
app.command("tilth.cli.tokenize:tokenize", help="A corpus and a tokenizer to token files.")
app.command("tilth.cli.account:account", help="What a model costs, before it is paid.")
app.command("tilth.cli.config:app", name="config", help="Config files: their schema.")
app.command("tilth.cli.train:train", help="Token files and a recipe to a run directory.")
app.command("tilth.cli.train:resume", help="Go on with a run that was stopped.")
app.command("tilth.cli.runs:runs", help="The runs in a folder, and how they stand.")
app.command("tilth.cli.evaluate:evaluate", help="How well a run predicts text.")
app.command("tilth.cli.generate:generate", help="A run and a prompt to text.")
app.command("tilth.cli.verify:verify", help="Whether what lies on disk is what was written.")
app.command("tilth.cli.lab:app", name="lab", help="Experiments that explain training.")
app.command("tilth.cli.report:report", help="Runs to a page, and to Markdown with pictures.")


app.meta.suppress_keyboard_interrupt = False  # main() has a word for it


@app.meta.default
def _launch(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    config: Annotated[Path | None, Parameter(help="A TOML file with options of the verb.")] = None,
    debug: Annotated[bool, Parameter(negative=(), help="Show the traceback of an error.")] = False,
) -> None:
    """Take the options that every verb has, then call the verb."""
    if config is not None and tokens[:1] == ("account",):  # it accounts for the file itself
        tokens = (*tokens, str(config))
    elif config is not None:
        from cyclopts.argument import ArgumentCollection, update_argument_collection

        options = _read_toml(config)

        def from_file(verb: App, _names: tuple[str, ...], arguments: ArgumentCollection) -> None:
            # Flags win over the file, the file over the defaults; unknown keys are errors. (The
            # sources of cyclopts itself pass over keys that are the names of verbs.)
            stack = verb.app_stack.stack[-1]
            update_argument_collection(
                options, str(config), arguments, stack, root_keys=(), allow_unknown=False
            )

        app.config = (from_file,)
    app(tokens)


def _read_toml(path: Path) -> dict[str, Any]:
    from tilth.files import read_toml

    if not path.exists():
        siblings = [file.name for file in path.parent.glob("*")]
        hint = _suggestion(path.name, siblings)
        raise FileNotFoundError(f"There is no config file {path}.{hint}")
    return read_toml(path)


def _suggestion(wrong: str, names: Iterable[str]) -> str:
    hint = suggestion(wrong, names, "")
    return f" {hint[0].upper()}{hint[1:]}" if hint else ""


def main() -> None:
    """Run the command line of this process and exit."""
    signal.signal(signal.SIGTERM, _exit_on_sigterm)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file name may be no UTF-8
    for name, mode in {"stdin": "r", "stdout": "w", "stderr": "w"}.items():
        # None: the caller closed it (2>&-). Then nothing is read or written.
        stream: Any = getattr(sys, name) or Path(os.devnull).open(mode)  # noqa: SIM115
        is_shown = mode == "w" and stream.isatty()
        setattr(sys, name, EscapedTerminal(stream) if is_shown else stream)
    logging.basicConfig(format="note: %(message)s", handlers=[NoteHandler()])
    sys.exit(run())


class NoteHandler(logging.Handler):
    """Prints log messages to the stderr of the moment: a live panel puts its own there."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one message."""
        say(self.format(record))


class EscapedTerminal:
    """A terminal on which control characters of foreign text are shown, not obeyed.

    File names, special tokens and generated text may hold escape sequences. What rich draws goes to
    the stream itself: rich looks for it under this name.
    """

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        """Write text with its control characters, line ends and tabs apart, escaped."""
        self.rich_proxied_file.write(printable(text, keep="\n\t"))
        return len(text)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401, whatever the stream has
        return getattr(self.rich_proxied_file, name)


def _exit_on_sigterm(_signal_number: int, _frame: FrameType | None) -> None:
    # Python drops an exception that meets a destructor: the second signal acts at once.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # An exception, not a sudden end: `with` blocks take back what is half-written.
    sys.exit(128 + signal.SIGTERM)


def run(words: Sequence[str] | None = None) -> int:
    """Run the command line `words` (default: of this process) and return its exit code."""
    words = sys.argv[1:] if words is None else list(words)
    app.config = ()  # a config file belongs to one call
    try:
        app.meta(words)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes stdout once more at exit: let that go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("tilth: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    except Exception as error:
        if "--debug" in words:
            raise
        sentence, code = _explained(error)
        print(f"tilth: {printable(sentence)}", file=sys.stderr)  # it may quote a file
        return code
    return 0


def _explained(error: Exception) -> tuple[str, int]:
    """The sentence for an error, and the exit code: 2 where the user can correct it, else 70."""
    if isinstance(error, UnknownOptionError) and error.token.source != "cli":
        return _unknown_key(error), 2
    if is_out_of_memory(error):
        hint = "take a smaller model, batch or context, or close other programs"
        return f"Out of memory: {_first_line(error)}; {hint}.", 2
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}.", 2
    if isinstance(error, CycloptsError | ValueError | OSError):
        return str(error) or type(error).__name__, 2
    if sentence := missing_extra(error):
        return sentence, 2
    name = type(error).__name__
    hint = "this is a bug in tilth; run the command again with --debug and report its output"
    return f"internal error ({name}: {_first_line(error)}); {hint}.", 70


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def _unknown_key(error: UnknownOptionError) -> str:
    """A key of a config file that the verb does not have (cyclopts would show it as an option)."""
    key = (error.token.keyword or error.token.value).strip("[]").replace("][", ".")
    known = [
        name.lstrip("-").replace("-", "_")
        for argument in error.argument_collection
        for name in argument.names
    ]
    return f"Unknown key {key} in {error.token.source}.{_suggestion(key, known)}"
