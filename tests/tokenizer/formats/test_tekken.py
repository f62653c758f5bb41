"""`tekken.json`: compare with tiktoken, on which mistral-common is built."""

import base64
import json
from contextlib import suppress
from dataclasses import replace

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

from tests.tokenizer.formats.vocabularies import (
    CORPUS,
    GPT2,
    KINDS,
    SPREAD,
    TEXTS,
    changed,
    examples,
    refusal,
)
from tests.tokenizer.published import PUBLISHED
from tilth.files import FileError
from tilth.tokenizer import Tokenizer, reference
from tilth.tokenizer.formats import load, load_tekken, save, save_tekken
from tilth.tokenizer.vocabulary import Template, Vocabulary

TEKKEN = PUBLISHED["tekken"][0]
OLDER = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]
MERGED = reference.train(CORPUS, 400, [], "cl100k")[0]


def content(tokens=MERGED, **config):
    """A file as mistral-common writes it, with 30 tokens more than it uses."""
    unused = {len(tokens) + i: f"unused {i}".encode() for i in range(30)}
    return {
        "config": {
            "pattern": TEKKEN,
            "num_vocab_tokens": len(tokens) + 30,
            "default_vocab_size": len(tokens) + 25,
            "default_num_special_tokens": 25,
            "version": "v3",
            **config,
        },
        "vocab": [
            {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
            for rank, token in sorted({**tokens, **unused}.items())
        ],
        "image": {"image_patch_size": 16},
    }


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "any name"
    path.write_text(json.dumps(content()))
    return path


ENCODING = tiktoken.Encoding(
    "tekken",
    pat_str=TEKKEN,
    mergeable_ranks={token: rank for rank, token in MERGED.items()},
    special_tokens={},
)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("tekken") / "tekken.json"
    path.write_text(json.dumps(content()))
    return Tokenizer.load(path)


@examples(100)
@given(text=TEXTS)
def test_ids_are_those_of_mistral_common(tokenizer, text):
    """Ranks plus the number of special tokens, which are not looked for in a text."""
    expected = [rank + 25 for rank in ENCODING.encode_ordinary(text)]
    assert tokenizer.encode_ordinary(text) == expected
    assert tokenizer.encode(text.replace("<s>", ""), add_special_tokens=True)[0] == 1
    assert tokenizer.decode(expected) == text


def test_special_tokens_of_older_files(tokenizer):
    special = tokenizer.special_tokens
    assert [*special.values()] == [*range(25)]
    assert [*special][:5] == OLDER
    assert [*special][18:22] == [
        "[/SYSTEM_PROMPT]",
        "[TOOL_CONTENT]",
        "<SPECIAL_20>",
        "<SPECIAL_21>",
    ]
    assert tokenizer.encode("<s>the[INST]") == [1, *tokenizer.encode("the"), 3]
    assert tokenizer.template == Template(before=("<s>",))
    assert (len(tokenizer), tokenizer.vocab_size) == (425, 425)
    assert tokenizer.pattern == "tekken"


def test_special_tokens_of_newer_files(path):
    names = ["<unk>", "<s>", "[THINK]"]
    entries = [{"rank": i, "token_str": name, "is_control": True} for i, name in enumerate(names)]
    path.write_text(json.dumps(content(version="v13") | {"special_tokens": entries}))
    special = load(path).special_tokens
    assert [*special][:4] == ["<unk>", "<s>", "[THINK]", "<SPECIAL_3>"]
    path.write_text(json.dumps(content(version="v13")))
    assert "no special_tokens and the version 'v13'" in refusal(load, path)


@pytest.mark.parametrize(
    ("where", "value", "culprit"),
    [
        (["config"], None, "config"),
        (["config", "pattern"], None, "config.pattern is None"),
        (["config", "pattern"], "", "the pattern"),
        (["config", "pattern"], "gpt2", "the name of another"),
        (["config", "default_vocab_size"], 1e3, "default_vocab_size"),
        (["config", "default_vocab_size"], 10**30, "default_vocab_size"),
        (["config", "default_vocab_size"], 1000, "config asks for 975 tokens and vocab has 430"),
        (["config", "default_vocab_size"], 7, "asks for -18"),
        (["config", "default_num_special_tokens"], True, "default_num_special_tokens"),
        (["config", "default_num_special_tokens"], 3, "20 special tokens and config says 3"),
        (["config", "version"], 3, "version 3"),
        (["vocab"], {}, "vocab"),
        (["vocab", 7], 5, "vocab\\[7\\]"),
        (["vocab", 7, "rank"], 8, "rank 8"),
        (["vocab", 7, "rank"], 7.0, "rank 7.0"),
        (["vocab", 7, "token_bytes"], "!", "'!'"),
        (["vocab", 7, "token_bytes"], "é", "'é'"),
        (["vocab", 7, "token_bytes"], 5, "the bytes 5"),
        (["vocab", 7, "token_bytes"], "", "''"),
        (["vocab", 7, "token_bytes"], "CA==", "both"),
        (["special_tokens"], [{"rank": 1, "token_str": "a"}], "rank 1"),
        (["special_tokens"], [{"rank": 0, "token_str": None}], "a special token is None"),
        (["special_tokens"], [{"rank": i, "token_str": "a"} for i in range(2)], "the same"),
        (["special_tokens"], 5, "special_tokens"),
    ],
)
def test_damaged_files(path, where, value, culprit):
    path.write_text(json.dumps(changed(content(), where, value)))
    with pytest.raises(ValueError, match=culprit):
        load_tekken(path)
    refusal(load, path)


# As tilth trains: special tokens, the bytes, merged tokens.
SAVED = {name: KINDS[name] for name in ("gpt2", "cl100k", "tekken", "o200k", "custom")}


@pytest.mark.parametrize("name", SAVED)
def test_round_trip(tmp_path, name):
    vocabulary = replace(SAVED[name], whole_piece_first=True)
    path = tmp_path / "tekken.json"
    save(vocabulary, path)
    assert load(path) == vocabulary
    written = json.loads(path.read_text())
    assert written["config"]["default_num_special_tokens"] == len(vocabulary.special_tokens)
    encoding = tiktoken.Encoding(
        "written",
        pat_str=written["config"]["pattern"],
        mergeable_ranks={
            base64.b64decode(entry["token_bytes"]): entry["rank"] for entry in written["vocab"]
        },
        special_tokens={},
    )
    shift = len(vocabulary.special_tokens)
    tokenizer = Tokenizer.from_vocabulary(vocabulary)
    for text in CORPUS:
        assert tokenizer.encode_ordinary(text) == [i + shift for i in encoding.encode(text)]


@pytest.mark.parametrize(
    ("vocabulary", "culprit"),
    [
        (SPREAD, "special tokens do not have the first ids"),
        (Vocabulary({0: b"a", 2: b"b"}), "ids have gaps"),
        (Vocabulary({0: b"a", 1: b"b"}), "the 256 bytes do not follow"),
        (replace(GPT2, pattern="starcoder"), "several steps"),
        (replace(GPT2, template=Template(after=("<|endoftext|>",))), "the template of the file"),
        (replace(GPT2, add_prefix_space=True), "add_prefix_space"),
        (replace(GPT2, merges=GPT2.merges[::-1]), "merge 1 by rank"),
    ],
)
def test_what_tekken_cannot_represent(tmp_path, vocabulary, culprit):
    with pytest.raises(ValueError, match=rf"cannot represent .*{culprit}.*; write a tokenizer"):
        save_tekken(vocabulary, tmp_path / "tekken.json")
    assert not any(tmp_path.iterdir())


@examples(100)
@given(data=st.data())
def test_any_mutation_is_refused_or_loaded(tmp_path_factory, data):
    made = content({i: bytes([i]) for i in range(256)})
    where, place = [], made
    while isinstance(place, (dict, list)) and place and (not where or data.draw(st.booleans())):
        keys = [*place] if isinstance(place, dict) else range(len(place))
        where.append(data.draw(st.sampled_from(keys)))
        place = place[where[-1]]
    value = data.draw(
        st.sampled_from([None, True, -1, 10**30, 0.5, "", "a", "\ud800", [], {}, [None], {"a": 1}])
    )
    path = tmp_path_factory.getbasetemp() / "changed.json"
    path.write_text(json.dumps(changed(made, where, value)))
    with suppress(FileError):
        assert isinstance(load(path), Vocabulary)
