"""The `tilth` command: its verbs, its global options, and how every verb ends.

| exit code | meaning |
|---|---|
| 0 | success |
| 1 | the reader of stdout closed the pipe |
| 2 | an error that the user can correct: one sentence on stderr |
| 70 | a bug in tilth: one sentence on stderr |
| 130, 143 | Ctrl-C, SIGTERM; temporary files are removed |

`--debug` shows the traceback of an error.
"""

import codecs
import inspect
import logging
import os
import re
import signal
import sys
from collections.abc import Iterable, Sequence
from io import TextIOWrapper
from itertools import chain, takewhile
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, TextIO

from cyclopts import (
    App,
    CycloptsError,
    Group,
    Parameter,
    UnknownOptionError,
    UnusedCliTokensError,
)

from tilth import __version__
from tilth.cli.options import convert_exactly
from tilth.cli.signals import say
from tilth.errors import first_line, is_out_of_memory, missing_extra
from tilth.formatting import printable, suggestion

# In the order of the help; each is imported when it is called.
VERBS = (
    ("demo", "demo:demo", "Run the whole toolkit on generated stories, in five minutes."),
    ("corpus", "corpus:app", "Generate, download or inspect text."),
    ("tokenizer", "tokenizer:app", "Train, inspect, compare, use or convert a tokenizer."),
    ("tokenize", "tokenize:tokenize", "Encode a corpus into token files for training."),
    ("account", "account:account", "Count the parameters, FLOPs, memory and hours of a model."),
    ("train", "train:train", "Train a model into a run directory."),
    ("resume", "train:resume", "Resume a stopped run, or extend a finished one."),
    ("runs", "runs:runs", "List runs: state, losses, throughput."),
    ("evaluate", "evaluate:evaluate", "Evaluate a run: loss, perplexity, bits per byte."),
    ("generate", "generate:generate", "Generate text with a run."),
    ("studio", "studio:studio", "Show models in a browser: tokens, texts, surprise, inside."),
    ("serve", "serve:serve", "Serve models over HTTP, in OpenAI's shape."),
    ("export", "export:export", "Export a run for transformers, llama.cpp, Ollama or llama2.c."),
    ("import", "export:import_model", "Import a model of Hugging Face or llama2.c."),
    ("report", "report:report", "Write a report of runs and labs, as HTML and Markdown."),
    ("lab", "lab:app", "Run experiments: sweeps, ablations, hyperparameter search."),
    ("verify", "verify:verify", "Check the integrity of a data folder, a run or a model."),
    ("config", "config:app", "Print the JSON schema of config files."),
)


app = App(
    name="tilth",
    help="Grow a language model from plain text.",
    version=__version__,
    # Importing rich's Markdown takes 45 ms of the 250 ms in which --help must answer.
    help_format="plaintext",
    # Errors are raised to run(), which prints one sentence.
    print_error=False,
    exit_on_error=False,
    suppress_keyboard_interrupt=False,
    result_action="return_value",
    # Only the fields of a config have a --no- form: see overrides.py. The help shows no empty
    # defaults.
    default_parameter=Parameter(
        converter=convert_exactly,
        negative_bool=(),
        negative_iterable=(),
        json_list=False,  # the stop string '["a"]' is text
        json_dict=False,
        show_default=lambda value: str(value) if value or type(value) in (int, float) else None,
    ),
)
for _position, (_name, _path, _help) in enumerate(VERBS):
    app.command(f"tilth.cli.{_path}", name=_name, help=_help, sort_key=_position)
app.meta.suppress_keyboard_interrupt = False
GLOBAL = Group("Global options", sort_key=99)


@app.meta.default
def _launch(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    config: Annotated[Path | None, Parameter(group=GLOBAL)] = None,
    debug: Annotated[bool, Parameter(group=GLOBAL)] = False,
) -> None:
    """Apply the global options, then call the verb.

    Args:
        config: TOML file with options of the verb; options on the command line win.
        debug: Show the traceback of an error.
    """
    if config is not None and tokens[:1] == ("account",):  # the file is its subject
        tokens = (*tokens, str(config))
    elif config is not None:
        from cyclopts.argument import ArgumentCollection, update_argument_collection

        options = _read_toml(config)
        for key in options.keys() & {"config", "debug"}:  # cyclopts would ignore them
            raise ValueError(f"unknown key {key} in {config}; it is an option of the command line.")

        def from_file(verb: App, _names: tuple[str, ...], arguments: ArgumentCollection) -> None:
            # Options override the file, the file overrides defaults; unknown keys are errors.
            # (The config sources of cyclopts ignore keys that are names of verbs.)
            stack = verb.app_stack.stack[-1]
            update_argument_collection(
                options, str(config), arguments, stack, root_keys=(), allow_unknown=False
            )

        app.config = (from_file,)
    app(tokens)


def _read_toml(path: Path) -> dict[str, Any]:
    from tilth.files import read_toml

    if not path.exists():
        names = (file.name for file in path.parent.glob("*"))
        hint = suggestion(path.name, names, "check the path.")
        raise FileNotFoundError(f"there is no config file {path}; {hint}")
    return read_toml(path)


def main() -> None:
    """Run the command line of this process and exit."""
    signal.signal(signal.SIGTERM, _exit_on_sigterm)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file name may not be UTF-8
    for name, mode in {"stdin": "r", "stdout": "w", "stderr": "w"}.items():
        # None: the caller closed it (2>&-). Then nothing is read or written.
        stream: Any = getattr(sys, name) or Path(os.devnull).open(mode)  # noqa: SIM115
        is_shown = mode == "w" and stream.isatty()
        setattr(sys, name, EscapedTerminal(stream) if is_shown else stream)
    logging.basicConfig(format="note: %(message)s", handlers=[NoteHandler()])
    sys.exit(run())


class NoteHandler(logging.Handler):
    """Prints log messages to the current sys.stderr, which a live panel replaces."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one message."""
        say(self.format(record))


class EscapedTerminal:
    """A terminal stream that escapes the control characters of the text written to it.

    File names, special tokens and generated text may hold escape sequences. rich draws on the
    stream itself, which it finds by the name `rich_proxied_file`.
    """

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream
        self.buffer = EscapedBytes(self)

    def write(self, text: str) -> int:
        """Write text; escape control characters other than line ends and tabs."""
        self.rich_proxied_file.write(printable(text, keep="\n\t"))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts, escaped as `write` does."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401, whatever the stream has
        return getattr(self.rich_proxied_file, name)


class EscapedBytes:
    """The bytes of a terminal stream, which are written as the text that they encode."""

    def __init__(self, terminal: EscapedTerminal) -> None:
        self._terminal = terminal
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def write(self, data: bytes) -> int:
        """Write the characters that the bytes complete."""
        self._terminal.write(self._decoder.decode(data))
        return len(data)

    def flush(self) -> None:
        """Write an incomplete character as U+FFFD, then flush the terminal."""
        self._terminal.write(self._decoder.decode(b"", final=True))
        self._terminal.flush()


def _exit_on_sigterm(_signal_number: int, _frame: FrameType | None) -> None:
    # Python drops exceptions in destructors, so a second signal must act at once.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # An exception: `with` blocks then remove temporary files.
    sys.exit(128 + signal.SIGTERM)


def run(words: Sequence[str] | None = None) -> int:
    """Run the command line `words` (default: sys.argv) and return the exit code."""
    words = sys.argv[1:] if words is None else list(words)
    app.config = ()  # of an earlier call
    try:
        if {"--help", "-h"} & set(words):
            _prepare_help(words)
        app.meta(words)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes stdout again at exit: redirect it to /dev/null.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("tilth: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    except Exception as error:
        if "--debug" in words:
            raise
        sentence, code = _explained(error)
        print(f"tilth: {printable(sentence)}", file=sys.stderr)  # it may quote a file name
        return code
    return 0


def _prepare_help(words: Sequence[str]) -> None:
    """Show the whole docstring of the verb in its help, and the examples of it at the end."""
    names = takewhile(lambda word: not word.startswith("-"), words)
    verb = app.parse_commands(list(names))[1][-1]
    if verb.default_command is not None:
        docstring = inspect.getdoc(verb.default_command) or ""
        text, heading, examples = docstring.partition("Examples:")
        text = re.sub(r"(?<=\S)\n *(?=\S)(?!\w+: )", " ", text)  # rich wraps paragraphs itself
        verb.help = verb.default_command.__doc__ = text + heading + examples
        verb.help_epilogue = heading + examples


def _explained(error: Exception) -> tuple[str, int]:
    """Return the sentence for an error and the exit code: 2 if the user can correct it, else 70."""
    if isinstance(error, UnknownOptionError) and error.token.source != "cli":
        return _unknown_key(error), 2
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        return f"unexpected argument {error.unused_tokens[0]!r}; see --help for the options.", 2
    if is_out_of_memory(error):
        hint = "take a smaller model, batch or context, or close other programs"
        # torch's message begins with its source file.
        size = re.search(r"allocate ([0-9.]+ [KMGT]?i?B|[0-9]+ bytes)", str(error))
        reason = f"cannot {size[0]}" if size else first_line(error)
        return f"out of memory ({reason}); {hint}.", 2
    if isinstance(error, RuntimeError) and str(error).startswith("Symlink loop"):  # of pathlib
        return f"{error}; remove the link.", 2
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}.", 2
    if isinstance(error, CycloptsError | ValueError | OSError):
        return str(error) or type(error).__name__, 2
    if sentence := missing_extra(error):
        return sentence, 2
    name = type(error).__name__
    hint = "this is a bug in tilth; run the command again with --debug and report its output"
    return f"internal error ({name}: {first_line(error)}); {hint}.", 70


def _unknown_key(error: UnknownOptionError) -> str:
    """Return the sentence for an unknown key of a config file; cyclopts would call it an option."""
    key = (error.token.keyword or error.token.value).strip("[]").replace("][", ".")
    names = chain.from_iterable(argument.names for argument in error.argument_collection)
    known = [name.lstrip("-").replace("-", "_") for name in names]
    hint = suggestion(key, known, "remove it, or see --help for the options.")
    return f"unknown key {key} in {error.token.source}; {hint}"
