"""Names and paths to documents of text.

What enters: paths of users' own texts, names of corpora to fetch, a seed for `stories`. What
leaves: files of text, a `Corpus`, which is a stream of documents, and `SAMPLE`, a few lines in
several scripts.
"""

from tilth.corpus.listing import Source
from tilth.corpus.readers import Block, Corpus, Documents, Position
from tilth.corpus.sample import SAMPLE
from tilth.corpus.sources import fetch

__all__ = ["SAMPLE", "Block", "Corpus", "Documents", "Position", "Source", "fetch"]
