"""What the pages show about a model and a text: tokens, merges, surprise, and a forward pass.

Every number comes from the Python API: `Tokenizer`, `LanguageModel.score` and `trace`.

>>> from tilth.tokenizer import Tokenizer
>>> vocab = {i: bytes([i]) for i in range(256)} | {256: b"th", 257: b"the"}
>>> tokenizer = Tokenizer(vocab, [(b"t", b"h"), (b"th", b"e")])
>>> tree = merge_tree(tokenizer, "the")[0]
>>> tree["text"], tree["rank"], [part["text"] for part in tree["parts"]]
('the', 1, ['th', 'e'])
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from tilth.generation.decoding import scored_token, slid_context
from tilth.generation.language_model import LanguageModel
from tilth.generation.sampling import Sampling, next_token_distribution
from tilth.generation.trace import trace
from tilth.tokenizer import Tokenizer, split
from tilth.tokenizer.table import Pair

MAX_CHARACTERS = 20_000  # of a text on a page
MAX_TRACED_TOKENS = 128
MAX_ATTENTION = 1 << 25  # numbers on a page
MAX_PIECE_BYTES = 200
LIKELIEST = 5


def shown(token: bytes) -> str:
    """Return a token as text; bytes that are not UTF-8 as hexadecimal."""
    try:
        return token.decode("utf-8")
    except UnicodeDecodeError:
        return "".join(f"<{byte:02x}>" for byte in token)


def describe(model_id: str, model: LanguageModel) -> dict[str, Any]:
    """Return the shape of a model."""
    return {"id": model_id, "config": model.config.to_dict(), "end_token": model.end_token}


def tokens_of(tokenizer: Tokenizer, text: str) -> dict[str, Any]:
    """Return the pieces of a text, each with its tokens: id, text, bytes and rank of the merge."""
    ranks = _ranks(tokenizer)
    pieces = pieces_of(tokenizer, text)
    found = [
        {"text": piece, "tokens": [_token(tokenizer, token_id, ranks) for token_id in own]}
        for piece, own in pieces
    ]
    return {
        "pieces": found,
        "tokens": sum(len(own) for _, own in pieces),
        "bytes": len(text.encode()),
        "vocab_size": len(tokenizer),
    }


def pieces_of(tokenizer: Tokenizer, text: str) -> list[tuple[str, list[int]]]:
    """Return the pieces of a text with their token ids."""
    pieces = split(text, tokenizer.pattern)
    encoded = [tokenizer.encode_ordinary(piece) for piece in pieces]
    ids = tokenizer.encode_ordinary(text)
    if [token_id for own in encoded for token_id in own] != ids:  # a normalizer, a prefix space
        return [(text, ids)]
    return list(zip(pieces, encoded, strict=True))


def _token(tokenizer: Tokenizer, token_id: int, ranks: Mapping[bytes, int]) -> dict[str, Any]:
    token = tokenizer.token(token_id)
    rank = ranks.get(token)
    return {"id": token_id, "text": shown(token), "bytes": token.hex(" "), "rank": rank}


def merge_tree(tokenizer: Tokenizer, piece: str) -> list[dict[str, Any]]:
    """Return how the tokens of a piece are merged: each with its rank and its two parts.

    Merges by the definition, the lowest rank first: the page shows single words.
    """
    content = piece.encode()
    if len(content) > MAX_PIECE_BYTES:
        raise ValueError(f"the piece has {len(content)} bytes; at most {MAX_PIECE_BYTES}.")
    nodes = [_node(tokenizer, bytes([byte])) for byte in content]
    for rank, place, tokens in merge_steps(content, pair_ranks(tokenizer)):
        parts = nodes[place : place + 2]
        nodes[place : place + 2] = [_node(tokenizer, tokens[place], rank, parts)]
    return nodes


def _node(
    tokenizer: Tokenizer, token: bytes, rank: int | None = None, parts: Sequence[Any] = ()
) -> dict[str, Any]:
    token_id = tokenizer.id(token) if token in tokenizer else None
    return {"id": token_id, "text": shown(token), "rank": rank, "parts": list(parts)}


class Step(NamedTuple):
    """A merge in a piece: its rank, the place of the new token, and the tokens after it."""

    rank: int
    place: int
    tokens: list[bytes]


def merge_steps(piece: bytes, ranks: Mapping[Pair, int]) -> Iterator[Step]:
    """Yield the merges of a piece by the definition: the lowest rank first, then the leftmost."""
    tokens = [bytes([byte]) for byte in piece]
    while found := [(ranks[p], place) for place, p in enumerate(pairwise(tokens)) if p in ranks]:
        rank, place = min(found)
        tokens = [*tokens[:place], tokens[place] + tokens[place + 1], *tokens[place + 2 :]]
        yield Step(rank, place, tokens)


@lru_cache(maxsize=8)
def pair_ranks(tokenizer: Tokenizer) -> dict[Pair, int]:
    """Return the rank of each pair; of a pair that is there twice, the first."""
    return {pair: rank for rank, pair in reversed([*enumerate(tokenizer.merges)])}


@lru_cache(maxsize=8)
def _ranks(tokenizer: Tokenizer) -> dict[bytes, int]:
    return {a + b: rank for rank, (a, b) in enumerate(tokenizer.merges)}


def read_text(model: LanguageModel, text: str) -> dict[str, Any]:
    """Return the surprise of each token in bits, and the totals of the text."""
    scored = model.score(text, alternatives=LIKELIEST)
    tokenizer = model.tokenizer
    each_bits = [-token.log_probability / math.log(2) for token in scored]
    tokens = [
        {
            "id": token.id,
            "text": shown(tokenizer.token(token.id)),
            "bits": own,
            "likeliest": _likeliest(tokenizer, token.alternatives),
        }
        for token, own in zip(scored, each_bits, strict=True)
    ]
    bits = math.fsum(each_bits)
    size = sum(len(tokenizer.token(token.id)) for token in scored)
    return {
        "tokens": tokens,
        "bits": bits,
        "bytes": size,
        "bits_per_byte": bits / size if size else None,
        "perplexity": 2 ** min(1000.0, bits / len(tokens)) if tokens else None,
    }


def _likeliest(
    tokenizer: Tokenizer, alternatives: Sequence[tuple[int, float]]
) -> list[dict[str, Any]]:
    return [
        {"id": token_id, "text": shown(tokenizer.token(token_id)), "probability": math.exp(value)}
        for token_id, value in alternatives
    ]


def next_tokens(
    model: LanguageModel, ids: Sequence[int], sampling: Sampling, token: int | None = None
) -> dict[str, Any]:
    """Return the likeliest next tokens: probabilities of the model, and after the options.

    A given token comes last if it is not among them. Ids beyond the context are slid, as in
    generation.
    """
    context = model.prompt_ids(slid_context(ids, model.config.context_length))
    decoder = model.decoder(1)
    logits = decoder.extend([context])[0, 0, : model.tokenizer.vocab_size]
    if token is not None and not 0 <= token < len(logits):
        raise ValueError(f"token is {token}; it must be below {len(logits)}.")
    scored = scored_token(logits, token or 0, 20)
    likeliest = [*scored.alternatives]
    if token is not None and all(token != each for each, _ in likeliest):
        likeliest.append((token, scored.log_probability))
    kept, probabilities = next_token_distribution(logits, sampling, context)
    after = dict(zip(kept.tolist(), probabilities.tolist(), strict=True))
    rows = _likeliest(model.tokenizer, likeliest)
    end = model.end_id
    return {
        "tokens": [
            {**row, "after": after.get(row["id"], 0.0), "is_end": row["id"] == end} for row in rows
        ],
        "kept": len(kept),
    }


def look_inside(model: LanguageModel, text: str, without: Sequence[str]) -> dict[str, Any]:
    """Return a forward pass: logit lens, attention, norms, and losses with parts switched off."""
    tokenizer = model.tokenizer
    before = model.begin_ids or ([] if model.end_id is None else [model.end_id])
    ids = [*before, *tokenizer.encode_ordinary(text)]
    most = min(MAX_TRACED_TOKENS, model.config.context_length)
    if len(ids) > most:
        raise ValueError(f"the text has {len(ids)} tokens; this page takes {most}: shorten it.")
    if len(ids) < 2:
        raise ValueError("the text is empty; write one.")
    numbers = model.config.num_layers * model.config.num_heads * len(ids) ** 2
    if numbers > MAX_ATTENTION:
        raise ValueError(f"the attention has {numbers:,} numbers; at most {MAX_ATTENTION:,}.")
    assert model.weights is not None
    weights = model.weights()
    found = trace(model.config, weights, ids, without, vocab_size=tokenizer.vocab_size)
    whole = trace(model.config, weights, ids, vocab_size=tokenizer.vocab_size) if without else found
    return {
        "tokens": [{"id": i, "text": shown(tokenizer.token(i))} for i in ids],
        "lens": [_likeliest_of_each(tokenizer, logits) for logits in found.logits],
        "attention": (found.attention * 255).round().astype(int).tolist(),
        "norms": found.residual_norms.astype(float).round(4).tolist(),
        "bits": (found.losses / math.log(2)).tolist(),
        "bits_of_whole": (whole.losses / math.log(2)).tolist(),
    }


def _likeliest_of_each(tokenizer: Tokenizer, logits: np.ndarray) -> list[dict[str, Any]]:
    """Return the likeliest token at each place, and its probability."""
    wide = logits.astype(np.float64)
    probabilities = np.exp(wide - wide.max(-1, keepdims=True))
    probabilities /= probabilities.sum(-1, keepdims=True)
    return [
        {"text": shown(tokenizer.token(int(row.argmax()))), "probability": float(row.max())}
        for row in probabilities
    ]
