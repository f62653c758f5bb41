"""Real tokenizer files, compared with the libraries that they come from.

    TILTH_REAL_TOKENIZERS=FOLDER python -m pytest -m slow tests/tokenizer/formats/test_real_files.py

Every `tokenizer.json`, `NAME.tiktoken` and `tekken*.json` below the folder is opened. A file that
`must_open` does not name may be refused, with the name of the reason: `-rs` lists them.
"""

import json
import os
import random
import unicodedata
from functools import partial
from pathlib import Path

import pytest
import tiktoken
import tiktoken_ext.openai_public
import tokenizers

from tests.tokenizer.formats.vocabularies import CORPUS, WORDS
from tilth.files import FileError
from tilth.tokenizer import Tokenizer
from tilth.tokenizer.formats.tiktoken import parse_ranks
from tilth.tokenizer.patterns import steps_of

FOLDER = Path(os.environ.get("TILTH_REAL_TOKENIZERS", "/nonexistent"))
REASON = "TILTH_REAL_TOKENIZERS names no folder"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not FOLDER.is_dir(), reason=REASON)]


def files(pattern):
    return [pytest.param(path, id=str(path.relative_to(FOLDER))) for path in FOLDER.rglob(pattern)]


def texts(special_tokens):
    """Ordinary texts, source code, and random ones with special tokens in them."""
    chance = random.Random(0)
    sources = [path.read_text() for path in sorted(Path(__file__).parent.glob("*.py"))]
    words = [*WORDS, *list(special_tokens)[:50], "\n\n", "  ", "12345", "naïve", " the"]
    several = ("".join(chance.choices(words, k=chance.randrange(60))) for _ in range(3000))
    return [*CORPUS, *sources, *several]


RANKS = {"r50k_base", "p50k_base", "p50k_edit", "cl100k_base", "o200k_base", "qwen"}
NORMALIZERS = {"NFC", "NFD", "NFKC", "NFKD", "Sequence"}


def types_in(part):
    """The types of a part of a `tokenizer.json`, and of the parts of a Sequence."""
    parts = part.values() if isinstance(part, dict) else part if isinstance(part, list) else []
    own = {part["type"]} if isinstance(part, dict) and isinstance(part.get("type"), str) else set()
    return own.union(*map(types_in, parts))


def must_open(path):
    """Whether a file is one that tilth claims to open: by name, else a BPE of byte-level pieces."""
    if path.suffix == ".tiktoken":
        return path.stem in RANKS
    if path.name != "tokenizer.json":
        return True  # every tekken.json
    content = json.loads(path.read_text("utf-8"))
    steps = types_in(content.get("pre_tokenizer"))
    return (
        content["model"].get("type", "BPE") == "BPE"
        and "ByteLevel" in steps
        and steps <= {"Sequence", "Split", "Digits", "ByteLevel"}
        and types_in(content.get("normalizer")) <= NORMALIZERS
        and content.get("truncation") is None
    )


def opened(path):
    try:
        return Tokenizer.load(path)
    except FileError as error:
        if must_open(path):
            raise
        pytest.skip(str(error).removeprefix(str(path)))


def test_the_folder_has_files_that_must_open():
    names = ("tokenizer.json", "*.tiktoken", "tekken*.json")
    assert any(must_open(path) for name in names for path in FOLDER.rglob(name))


@pytest.mark.parametrize("path", files("tokenizer.json"))
def test_tokenizer_json(path, tmp_path):
    tokenizer = opened(path)
    peer = tokenizers.Tokenizer.from_file(str(path))
    tokenizer.save(tmp_path / "tokenizer.json")
    assert Tokenizer.load(tmp_path / "tokenizer.json") == tokenizer
    again = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    is_trimmed = '"trim_offsets":true' in json.dumps(
        json.loads(path.read_text("utf-8"))["post_processor"], separators=(",", ":")
    )
    for text in texts(tokenizer.special_tokens):
        for add in (False, True):
            expected = peer.encode(text, add_special_tokens=add)
            ids, offsets = tokenizer.encode_with_offsets(text, add_special_tokens=add)
            assert ids == expected.ids
            assert is_trimmed or offsets == expected.offsets
            assert again.encode(text, add_special_tokens=add).ids == ids
        assert tokenizer.decode(ids) == peer.decode(ids, skip_special_tokens=False)
        assert tokenizer.encode(text, add_special_tokens=True) == ids


@pytest.mark.parametrize("path", files("*.tiktoken"))
def test_ranks(path, tmp_path, monkeypatch):
    tokenizer = opened(path)
    ranks = {token: rank for rank, token in parse_ranks(path.read_bytes()).items()}
    module = tiktoken_ext.openai_public
    monkeypatch.setattr(module, "load_tiktoken_bpe", lambda *_, **__: ranks)
    if registered := getattr(module, path.stem, None):
        options = registered()
        assert dict(tokenizer.special_tokens) == options["special_tokens"]
    else:
        [pattern] = steps_of(tokenizer.pattern)
        special_tokens = dict(tokenizer.special_tokens)
        options = {"name": path.stem, "pat_str": pattern, "special_tokens": special_tokens}
        options["mergeable_ranks"] = ranks
    peer = tiktoken.Encoding(**options)
    normalize = str
    if forms := tokenizer.vocabulary.normalizers:  # Qwen normalizes before it calls tiktoken
        normalize = partial(unicodedata.normalize, *forms)
        with pytest.raises(ValueError, match="would lose the normalizer NFC"):
            tokenizer.save_tiktoken(tmp_path / path.name)
    else:
        tokenizer.save_tiktoken(tmp_path / path.name)
        assert Tokenizer.load(tmp_path / path.name) == tokenizer
    tokenizer.save(tmp_path / "tokenizer.json")
    again = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in texts(tokenizer.special_tokens):
        ids = tokenizer.encode(text)
        assert peer.encode(normalize(text), allowed_special="all") == ids
        assert peer.encode_ordinary(normalize(text)) == tokenizer.encode_ordinary(text)
        assert again.encode(text).ids == ids


@pytest.mark.parametrize("path", files("tekken*.json"))
def test_tekken(path, tmp_path):
    tekken = pytest.importorskip("mistral_common.tokens.tokenizers.tekken")
    tokenizer = opened(path)
    tokenizer.save_tekken(tmp_path / "tekken.json")
    assert Tokenizer.load(tmp_path / "tekken.json") == tokenizer
    peers = [tekken.Tekkenizer.from_file(each) for each in (path, tmp_path / "tekken.json")]
    assert peers[0].n_words == tokenizer.vocab_size == len(tokenizer)
    for token, token_id in tokenizer.special_tokens.items():
        assert peers[0].get_special_token(token) == token_id
    tokenizer.save(tmp_path / "tokenizer.json")
    again = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in texts(tokenizer.special_tokens):
        ids = tokenizer.encode_ordinary(text)
        assert [peer.encode(text, bos=False, eos=False) for peer in peers] == [ids, ids]
        framed = tokenizer.encode(text, add_special_tokens=True)
        assert again.encode(text).ids == framed
        if tokenizer.encode(text) == ids:
            assert peers[0].encode(text, bos=True, eos=False) == framed
