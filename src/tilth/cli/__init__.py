"""The `tilth` command. Results go to stdout, narration and progress to stderr.

One module per verb; heavy imports are inside the verb, so `tilth --help` is fast.
"""

from tilth.cli.app import main

__all__ = ["main"]
