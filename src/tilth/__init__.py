"""tilth grows a language model from plain text.

The way through the house, each room a package, each door a file:

    text -> corpus -> tokenizer -> data -> model -> training -> a run directory -> generation

>>> import tilth
>>> tokenizer = tilth.train_tokenizer(texts=["seed by seed"], vocab_size=260)
>>> tokenizer.decode(tokenizer.encode("a seed"))
'a seed'

Importing tilth is cheap: a name is loaded when it is first used.
"""

from tilth.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)

__version__ = "0.1.0"
