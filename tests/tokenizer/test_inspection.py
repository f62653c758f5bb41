"""Statistics of tokenizers."""

import pytest

from tilth.tokenizer import Tokenizer, inspection, train_tokenizer

TEXT = b"the cat and the hat, naive " * 100


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(texts=[TEXT.decode()], vocab_size=270)


def test_speed_uses_a_new_encoder_per_pass(tokenizer, monkeypatch):
    """A used encoder has cached the pieces."""
    tokenizer.encode_array(TEXT)
    used = [id(tokenizer)]
    made = []  # kept, so that no two have the same id
    original = Tokenizer.encode_array

    def encode_array(self, text, **options):
        assert text == TEXT
        made.append(self)
        used.append(id(self))
        return original(self, text, **options)

    monkeypatch.setattr(Tokenizer, "encode_array", encode_array)
    speed = inspection.encoding_speed(tokenizer, TEXT, passes=3)
    assert len(used) == len(set(used)) == 4
    assert speed.tokens_per_second / speed.bytes_per_second == pytest.approx(
        tokenizer.count(TEXT) / len(TEXT)
    )


def test_speed_of_empty_text(tokenizer):
    with pytest.raises(ValueError, match="is empty"):
        inspection.encoding_speed(tokenizer, b"")
