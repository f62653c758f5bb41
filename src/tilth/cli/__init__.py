"""Words to one of the rooms: the `tilth` command.

What enters: a command line. What leaves: a result on stdout, narration and progress on stderr, and
an exit code. One file a verb; heavy imports stand inside the verb, so that `tilth --help` is quick.
"""

from tilth.cli.app import main

__all__ = ["main"]
