"""Names and paths to documents of text.

What enters, so far: nothing. What leaves: `SAMPLE`, a few lines in several scripts.
"""

from tilth.corpus.sample import SAMPLE

__all__ = ["SAMPLE"]
