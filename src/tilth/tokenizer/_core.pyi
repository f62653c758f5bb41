"""
The native core of tilth.tokenizer; its specification is tilth.tokenizer.reference.
"""



unicode_version: str = '18.0.0'

def split(text: str) -> list[str]:
    """
    Cut a text into pieces by the GPT-2 pattern; joined, the pieces are the text again.

    A lone surrogate, which UTF-8 cannot hold, becomes U+FFFD.
    """

def count_pieces(text: str) -> int:
    """The number of pieces that split would return, without making them."""
