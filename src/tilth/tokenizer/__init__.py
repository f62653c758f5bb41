"""Text to token ids and back; a corpus to `tokenizer.json`.

What enters: text. What leaves, so far: *pieces*, the units inside which byte pairs will be merged.

>>> split("Once upon a time, there was a fox.")
['Once', ' upon', ' a', ' time', ',', ' there', ' was', ' a', ' fox', '.']
"""

from tilth.tokenizer._core import count_pieces, split

__all__ = ["count_pieces", "split"]
