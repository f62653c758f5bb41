"""Byte-level BPE: text to token ids and back; a corpus to `tokenizer.json`.

Start reading at `reference.py`, the specification. `core/bpe/` is the implementation.

>>> from tilth.tokenizer import train_tokenizer
>>> tokenizer = train_tokenizer(texts=["the cat sat on the mat"], vocab_size=260)
>>> tokenizer.decode(tokenizer.encode("the hat"))
'the hat'
"""

from tilth.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
