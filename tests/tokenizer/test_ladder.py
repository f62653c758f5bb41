"""The steps of the ladder return the results of the reference."""

from hypothesis import given
from hypothesis import strategies as st

from tilth.tokenizer import ladder, reference

PIECES = st.dictionaries(
    st.text("abc", min_size=1, max_size=12).map(str.encode), st.integers(1, 9), min_size=1
)


@given(PIECES, st.integers(0, 40))
def test_every_way_to_train_learns_the_merges_of_the_reference(counts, num_merges):
    expected = reference.learn_merges(counts, num_merges)
    assert ladder.learn_merges_incrementally(counts, num_merges) == expected
    assert ladder.learn_merges_by_heap(counts, num_merges) == expected


@given(PIECES, st.text("abc", max_size=40).map(str.encode))
def test_every_way_to_encode_returns_the_tokens_of_the_reference(counts, piece):
    merges = reference.learn_merges(counts, 30)
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    expected = reference.encode_piece(piece, ranks)
    assert ladder.encode_by_merges(piece, merges) == expected
    assert ladder.encode_by_filter(piece, merges) == expected
    assert ladder.encode_by_heap(piece, ranks) == expected


def test_a_cache_encodes_each_piece_once():
    asked = []

    def encode(piece):
        asked.append(piece)
        return [piece]

    cached = ladder.cached(encode)
    assert [cached(piece) for piece in (b"a", b"b", b"a")] == [[b"a"], [b"b"], [b"a"]]
    assert asked == [b"a", b"b"]
