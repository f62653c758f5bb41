"""Run the command line in this process: starting Python and torch takes seconds per command."""

import io
import logging
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout

from tilth.cli.app import run


def tilth(*words, cwd=None, text=True, **options):
    """Run `tilth WORDS`; return exit code, stdout and stderr as `subprocess.run` does.

    With further options (`env`, `input`, ...) it runs in a separate process.
    """
    words = [str(word) for word in words]
    if options:
        command = [sys.executable, "-m", "tilth", *words]
        return subprocess.run(
            command, capture_output=True, check=False, text=text, cwd=cwd, **options
        )
    out, errors = (
        io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace", write_through=True)
        for _ in range(2)
    )
    notes = logging.StreamHandler(errors)
    notes.setFormatter(logging.Formatter("note: %(message)s"))
    logging.getLogger().addHandler(notes)
    try:
        with chdir(cwd or "."), redirect_stdout(out), redirect_stderr(errors):
            try:
                code = run(words)
            except SystemExit as end:
                code = end.code
    finally:
        logging.getLogger().removeHandler(notes)
    said = [stream.buffer.getvalue() for stream in (out, errors)]
    if text:
        said = [each.decode("utf-8") for each in said]
    return subprocess.CompletedProcess(words, code, *said)


def program_without(modules, *words):
    """Return a Python program that runs `tilth WORDS` and fails if it imports these modules."""
    return (
        f"import sys; sys.argv = {['tilth', *map(str, words)]!r}\n"
        "from tilth.cli import main\n"
        "try: main()\n"
        f"finally: assert not {set(modules)!r} & set(sys.modules)"
    )


def assert_one_sentence(done, *parts):
    """Assert that a command ended with one sentence on stderr, which has these parts."""
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("tilth: ")
    assert done.stderr.count("\n") == 1
    for part in parts:
        assert part in done.stderr
