"""The command's frame: which verbs there are, and how every one of them ends.

| exit code | what happened |
|---|---|
| 0 | it worked |
| 1 | whoever read our output stopped reading |
| 2 | the user can mend it: one sentence on stderr (`--debug` shows the traceback) |
| 130, 143 | Ctrl-C, SIGTERM; open files were taken back |

Anything else is a bug in tilth and shows its traceback.
"""

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from io import TextIOWrapper
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

from cyclopts import App, CycloptsError, Parameter, UnknownOptionError

from tilth import __version__
from tilth.cli.whole_numbers import convert_exactly

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
    default_parameter=Parameter(converter=convert_exactly),
)
# The verbs, each loaded when it is called.
app.command("tilth.cli.demo:demo", help="From nothing to a model that writes stories.")
app.command("tilth.cli.corpus:app", name="corpus", help="Text: stories, downloads, your own.")
app.command("tilth.cli.tokenizer:app", name="tokenizer", help="Text to token ids and back.")
app.command("tilth.cli.tokenize:tokenize", help="A corpus and a tokenizer to token files.")
app.command("tilth.cli.account:account", help="What a model costs, before it is paid.")
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
    import tomllib

    try:
        return tomllib.loads(path.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        siblings = [file.name for file in path.parent.glob("*")]
        raise FileNotFoundError(
            f"There is no config file {path}.{_suggestion(path.name, siblings)}"
        ) from None
    except ValueError as error:  # not TOML, or not UTF-8
        raise ValueError(f"The config file {path} is not TOML: {error}.") from None


def _suggestion(wrong: str, names: Iterable[str]) -> str:
    nearest = get_close_matches(wrong, names, n=1)
    return f" Did you mean {nearest[0]}?" if nearest else ""


def main() -> None:
    """Run the command line of this process and exit."""
    signal.signal(signal.SIGTERM, _exit_on_sigterm)
    # Closed by whoever started us (2>&-): then Python has None there. We read and write nothing.
    sys.stdin = sys.stdin or Path(os.devnull).open()  # noqa: SIM115
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file name may be no UTF-8
    logging.basicConfig(format="note: %(message)s", stream=sys.stderr)
    sys.exit(_exit_code_of(app.meta))


def _exit_on_sigterm(_signal_number: int, _frame: FrameType | None) -> None:
    # Python drops an exception that meets a destructor: the second signal acts at once.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # An exception, not a sudden end: `with` blocks take back what is half-written.
    sys.exit(128 + signal.SIGTERM)


def _exit_code_of(command: Callable[[], object]) -> int:
    try:
        command()
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes stdout once more at exit: let that go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("tilth: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    except (CycloptsError, ValueError, OSError, MemoryError) as error:
        if "--debug" in sys.argv:
            raise
        print(f"tilth: {_sentence(error)}", file=sys.stderr)
        return 2
    return 0


def _sentence(error: Exception) -> str:
    """What went wrong, in the user's words."""
    if isinstance(error, UnknownOptionError) and error.token.source != "cli":
        return _unknown_key(error)
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}."
    if isinstance(error, MemoryError):
        return f"Out of memory. {error}".strip()
    return str(error) or type(error).__name__


def _unknown_key(error: UnknownOptionError) -> str:
    """A key of a config file that the verb does not have (cyclopts would show it as an option)."""
    key = (error.token.keyword or error.token.value).strip("[]").replace("][", ".")
    known = [
        name.lstrip("-").replace("-", "_")
        for argument in error.argument_collection
        for name in argument.names
    ]
    return f"Unknown key {key} in {error.token.source}.{_suggestion(key, known)}"
