"""Corpora: documents from local files, downloads of named corpora, and generated stories.

`Corpus` reads text, JSON lines, Parquet and folders as a stream of documents. `fetch` downloads a
named corpus. `tilth.corpus.stories` writes short stories from a random seed.
"""

from tilth.corpus.listing import Source
from tilth.corpus.readers import Block, Corpus, Documents, Position
from tilth.corpus.sources import fetch

__all__ = ["Block", "Corpus", "Documents", "Position", "Source", "fetch"]
