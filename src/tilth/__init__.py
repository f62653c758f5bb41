"""tilth grows a language model from plain text.

The packages, in the order of the data flow:

    text -> corpus -> tokenizer -> data -> model -> training -> run directory -> generation

>>> import tilth
>>> tokenizer = tilth.train_tokenizer(texts=["seed by seed"], vocab_size=260)
>>> tokenizer.decode(tokenizer.encode("a seed"))
'a seed'

`import tilth` is fast: names are loaded on first use.
"""

from tilth.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)

__version__ = "0.1.0"
