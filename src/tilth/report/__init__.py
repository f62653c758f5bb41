"""Reports on run and lab directories, as HTML, Markdown and PNG.

>>> from tilth.report import Lab, Trial
>>> Lab("lr", "Which learning rate is best?", trials=(Trial("a", "1e-3", "lr 1e-3"),)).answer
"""

from tilth.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
