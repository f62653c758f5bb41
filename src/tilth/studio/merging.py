"""Two tokenizers side by side, and the training of a vocabulary as a film of its merges.

>>> vocab = {i: bytes([i]) for i in range(256)} | {256: b"th", 257: b"the"}
>>> tokenizer = Tokenizer(vocab, [(b"t", b"h"), (b"th", b"e")])
>>> for frame in film(tokenizer, "the")["frames"]:
...     print(frame["merges"], frame["pieces"])
0 [['t', 'h', 'e']]
1 [['th', 'e']]
2 [['the']]
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

from tilth.studio.inspecting import merge_steps, pair_ranks, pieces_of, shown
from tilth.tokenizer import Tokenizer
from tilth.tokenizer.table import Pair

MAX_FILM_BYTES = 400


def compare(first: Tokenizer, second: Tokenizer, text: str) -> dict[str, Any]:
    """Return the tokens of a text by two tokenizers; those that only one of them has are marked.

    Two tokens are the same if they are the same bytes of the text.
    """
    both = [_encoded(tokenizer, text) for tokenizer in (first, second)]
    spans = [set(each) if each is not None else None for each in both]
    return {
        "sides": [
            _side(tokenizer, text, own, other)
            for tokenizer, own, other in zip((first, second), both, spans[::-1], strict=True)
        ],
        "is_marked": None not in spans,
        "bytes": len(text.encode()),
    }


def _encoded(tokenizer: Tokenizer, text: str) -> list[tuple[int, int]] | None:
    """Return where tokens begin and end in the bytes of a text; None if they are other bytes."""
    tokens = [tokenizer.token(token_id) for token_id in tokenizer.encode_ordinary(text)]
    if b"".join(tokens) != text.encode():  # a normalizer, a prefix space
        return None
    return list(pairwise(accumulate(map(len, tokens), initial=0)))


def _side(
    tokenizer: Tokenizer,
    text: str,
    spans: Sequence[tuple[int, int]] | None,
    others: set[tuple[int, int]] | None,
) -> dict[str, Any]:
    ids = tokenizer.encode_ordinary(text)
    differs = [
        spans is not None and others is not None and spans[place] not in others
        for place in range(len(ids))
    ]
    return {
        "tokens": [
            {"id": token_id, "text": shown(tokenizer.token(token_id)), "differs": is_other}
            for token_id, is_other in zip(ids, differs, strict=True)
        ],
        "count": len(ids),
        "different": sum(differs),
        "bytes_per_token": len(text.encode()) / len(ids) if ids else None,
        "vocab_size": len(tokenizer),
    }


def film(tokenizer: Tokenizer, text: str) -> dict[str, Any]:
    """Return how a text is split by the first r merges of a vocabulary, for each r that matters.

    The frame of r merges is the result of encoding with these merges alone. It is a beginning of
    the merges that encoding with all of them makes: as long as the lowest rank is below r, both
    make the same merge; then the shorter vocabulary has no more.
    """
    pieces = [piece.encode() for piece, _ in pieces_of(tokenizer, text)]
    size = sum(map(len, pieces))
    if size > MAX_FILM_BYTES:
        raise ValueError(
            f"the sentence has {size} bytes; a film takes {MAX_FILM_BYTES}: shorten it."
        )
    ranks = pair_ranks(tokenizer)
    steps = [list(merge_steps(piece, ranks)) for piece in pieces]
    learned = [list(accumulate((step.rank for step in each), max)) for each in steps]
    states = [[bytes([byte]) for byte in piece] for piece in pieces]
    frames = [_frame(0, None, states, states)]
    for last in sorted({rank for each in learned for rank in each}):
        before = states
        states = [
            next(
                (
                    each[place].tokens
                    for place in range(len(each) - 1, -1, -1)
                    if own[place] <= last
                ),
                state,
            )
            for each, own, state in zip(steps, learned, states, strict=True)
        ]
        frames.append(_frame(last + 1, tokenizer.merges[last], states, before))
    whole = [
        shown(piece)
        for piece, state in zip(pieces, states, strict=True)
        if [tokenizer.token(i) for i in tokenizer.encode_ordinary(piece.decode())] != state
    ]
    return {
        "frames": frames,
        "merges": len(tokenizer.merges),
        "has_whole_pieces": tokenizer.vocabulary.whole_piece_first,
        "whole_pieces": whole,
        "tokens": len(tokenizer.encode_ordinary(text)),
    }


def _frame(
    merges: int, pair: Pair | None, states: Sequence[list[bytes]], before: Sequence[list[bytes]]
) -> dict[str, Any]:
    """Return a frame; `new` are the places of tokens that the frame before does not have."""
    new = []
    for piece, (tokens, old) in enumerate(zip(states, before, strict=True)):
        known = set(pairwise(accumulate(map(len, old), initial=0)))
        spans = pairwise(accumulate(map(len, tokens), initial=0))
        new += [[piece, place] for place, span in enumerate(spans) if span not in known]
    return {
        "merges": merges,
        "pair": pair and [shown(part) for part in pair],
        "token": pair and shown(pair[0] + pair[1]),
        "pieces": [[shown(token) for token in tokens] for tokens in states],
        "count": sum(map(len, states)),
        "new": new,
    }
