"""Two tokenizers side by side, and the film of merges: equal to encoding with fewer merges."""

import random

import pytest

from tilth.studio.merging import MAX_FILM_BYTES, compare, film
from tilth.tokenizer import Tokenizer, split, train_tokenizer
from tilth.tokenizer.reference import encode_piece

TEXT = "Once upon a time the mouse ran home. The mouse's home was 1,234 metres away; thé!"
BYTES = {i: bytes([i]) for i in range(256)}


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(texts=[TEXT * 3, "the theme of the mouse " * 5], vocab_size=330)


def shuffled_tokenizer(seed):
    """A vocabulary whose ranks are not those of training: a merge may come before its parts."""
    chance = random.Random(seed)
    tokens, merges = {bytes([byte]) for byte in b"abcd"}, []
    while len(merges) < 25:
        pair = tuple(chance.choices(sorted(tokens), k=2))
        if len(b"".join(pair)) < 7 and b"".join(pair) not in tokens:
            merges.append(pair)
            tokens.add(b"".join(pair))
    chance.shuffle(merges)
    vocab = BYTES | {256 + place: a + b for place, (a, b) in enumerate(merges)}
    return Tokenizer(vocab, merges)


def frames_by_definition(tokenizer, text):
    """The result of the reference with each number of merges, where it changes."""
    found = []
    for count in range(len(tokenizer.merges) + 1):
        ranks = {pair: rank for rank, pair in enumerate(tokenizer.merges[:count])}
        state = [encode_piece(piece.encode(), ranks) for piece in split(text, tokenizer.pattern)]
        if not found or state != found[-1][1]:
            found.append((count, state))
    return found


def shown_frames(found):
    return [(frame["merges"], frame["pieces"]) for frame in found["frames"]]


def test_film_equals_the_definition(tokenizer):
    found = film(tokenizer, TEXT.replace("é", "e"))
    expected = frames_by_definition(tokenizer, TEXT.replace("é", "e"))
    assert len(expected) > 20
    texts = [(n, [[token.decode() for token in piece] for piece in state]) for n, state in expected]
    assert shown_frames(found) == texts
    assert found["frames"][-1]["count"] == found["tokens"]
    assert (found["has_whole_pieces"], found["whole_pieces"]) == (False, [])


@pytest.mark.parametrize("seed", range(20))
def test_film_of_ranks_in_any_order(seed):
    tokenizer, chance = shuffled_tokenizer(seed), random.Random(seed)
    text = "".join(chance.choices("abcd", k=60))
    texts = [
        (n, [[token.decode() for token in piece] for piece in state])
        for n, state in frames_by_definition(tokenizer, text)
    ]
    assert shown_frames(film(tokenizer, text)) == texts


def test_frames_mark_what_is_new(tokenizer):
    found = film(tokenizer, "the theme")
    for before, frame in zip(found["frames"], found["frames"][1:], strict=False):
        assert frame["new"]
        assert frame["pair"] is not None
        assert "".join(frame["pair"]) == frame["token"]
        assert frame["count"] < before["count"]
        for piece, place in frame["new"]:
            assert frame["token"] == frame["pieces"][piece][place]


def test_whole_pieces_are_named(tmp_path):
    """With ignore_merges, a piece that is a token is taken whole, whatever its merges."""
    vocab = BYTES | {256: b"th", 257: b"the"}
    path = tmp_path / "whole.json"
    Tokenizer(vocab, [(b"t", b"h")]).save(path)
    path.write_text(path.read_text().replace('"ignore_merges":false', '"ignore_merges":true'))
    path.write_text(path.read_text().replace('"ignore_merges": false', '"ignore_merges": true'))
    tokenizer = Tokenizer.load(path)
    assert tokenizer.encode("the") == [257]
    found = film(tokenizer, "the th")
    assert found["has_whole_pieces"] is True
    assert found["whole_pieces"] == ["the"]
    assert found["frames"][-1]["pieces"] == [["th", "e"], [" ", "th"]]


def test_a_film_has_a_limit(tokenizer, client):
    with pytest.raises(ValueError, match="shorten it"):
        film(tokenizer, "a" * (MAX_FILM_BYTES + 1))
    response = client.post("/api/film", json={"model": "plain", "text": "é" * 201})
    assert response.status_code == 400
    assert "402 bytes" in response.json()["error"]["message"]


def test_comparison(tokenizer):
    plain = Tokenizer(BYTES, [])
    found = compare(tokenizer, plain, TEXT)
    first, second = found["sides"]
    assert [token["id"] for token in first["tokens"]] == tokenizer.encode(TEXT)
    assert [token["id"] for token in second["tokens"]] == plain.encode(TEXT)
    size = len(TEXT.encode())
    assert (found["bytes"], second["count"], second["bytes_per_token"]) == (size, size, 1.0)
    assert first["bytes_per_token"] == size / len(tokenizer.encode(TEXT))
    # Only tokens of several bytes differ from single bytes.
    for token in first["tokens"]:
        assert token["differs"] == (len(tokenizer.token(token["id"])) > 1)
    single = sum(len(tokenizer.token(i)) == 1 for i in tokenizer.encode(TEXT))
    assert second["different"] == size - single
    same = compare(tokenizer, tokenizer, TEXT)
    assert [side["different"] for side in same["sides"]] == [0, 0]


def test_comparison_over_http(client):
    body = {"model": "plain", "other": "chatty", "text": "the mouse"}
    found = client.post("/api/compare", json=body).json()
    assert found["is_marked"] is True
    assert found["sides"][0] == found["sides"][1]
    assert client.post("/api/compare", json={**body, "other": "x"}).status_code == 404
    assert client.post("/api/compare", json={**body, "text": ""}).status_code == 200
