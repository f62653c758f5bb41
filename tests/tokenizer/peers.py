"""Small vocabularies with normalizers and added tokens, in tilth and in `tokenizers`."""

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from tilth.tokenizer import Tokenizer

CORPUS = [
    "the café in the old café, fi ffi: office, x² + y² = 10 ",
    "e\u0301te\u0301 \u1112\u1161\u11ab\uae00 한글 한국어 Å Å か\u3099 ",
    "if (a <= b)\n\n\treturn a;   end\n",
]
FLAGS = ("special", "lstrip", "rstrip", "single_word", "normalized")


@cache
def plain_json():
    """A trained `tokenizer.json` without a normalizer and added tokens."""
    peer = tokenizers.Tokenizer(models.BPE())
    peer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    peer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    peer.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet, show_progress=False),
    )
    return peer.to_str()


def tokenizer_json(normalizers=(), added=(), pattern=None):
    """The text of a file; an added token is its content and the set of its flags."""
    content = json.loads(plain_json())
    parts = [{"type": form} for form in normalizers]
    content["normalizer"] = parts[0] if len(parts) == 1 else None
    if len(parts) > 1:
        content["normalizer"] = {"type": "Sequence", "normalizers": parts}
    ids = dict(content["model"]["vocab"])
    for token, _ in added:
        ids.setdefault(token, len(ids))
    content["added_tokens"] = [
        {"id": ids[token], "content": token} | {flag: flag in flags for flag in FLAGS}
        for token, flags in added
    ]
    if pattern:
        split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"}
        byte_level = content["pre_tokenizer"] | {"use_regex": False}
        content["pre_tokenizer"] = {
            "type": "Sequence",
            "pretokenizers": [split | {"invert": False}, byte_level],
        }
    return json.dumps(content)


def load_both(text):
    """Load the text of a `tokenizer.json` in tilth and in `tokenizers`."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        path.write_text(text)
        return Tokenizer.load(path), tokenizers.Tokenizer.from_str(text)


def assert_same(tokenizer, peer, text):
    """Compare ids, offsets and decoded text; then all other ways to encode with `encode`."""
    expected = peer.encode(text, add_special_tokens=False)
    ids = tokenizer.encode(text)
    assert ids == expected.ids
    assert tokenizer.encode_with_offsets(text) == (ids, expected.offsets)
    assert tokenizer.decode(ids) == peer.decode(ids, skip_special_tokens=False)
    assert tokenizer.encode_array(text, threads=2).tolist() == ids
    assert tokenizer.count(text) == len(ids)
    assert tokenizer.encode_batch([text, "", text], threads=2) == [ids, [], ids]
    for size in (1, 3):
        chunks = [text[start : start + size] for start in range(0, len(text), size)]
        assert list(tokenizer.encode_iterable(chunks)) == ids


def code_points(ranges):
    """Yield the characters of ranges such as "0041-005A 00C0"."""
    for each in ranges.split():
        first, _, last = each.partition("-")
        yield from map(chr, range(int(first, 16), int(last or first, 16) + 1))
