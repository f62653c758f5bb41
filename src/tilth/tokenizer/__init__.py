"""Byte-level BPE: text to token ids and back; a corpus to `tokenizer.json`.

Start reading at `reference.py`, the specification. `core/bpe/` is the implementation.

>>> tokenizer = train_tokenizer(texts=["the cat sat on the mat"], vocab_size=260)
>>> tokenizer.decode(tokenizer.encode("the hat"))
'the hat'
"""

from tilth.tokenizer.counts import PieceCounts, merge_counts
from tilth.tokenizer.splitting import split
from tilth.tokenizer.tokenizer import IncrementalDecoder, Tokenizer
from tilth.tokenizer.training import count_pieces, train_bpe, train_tokenizer
from tilth.tokenizer.vocabulary import Template, TokenOptions, Vocabulary

__all__ = [
    "IncrementalDecoder",
    "PieceCounts",
    "Template",
    "TokenOptions",
    "Tokenizer",
    "Vocabulary",
    "count_pieces",
    "merge_counts",
    "split",
    "train_bpe",
    "train_tokenizer",
]
