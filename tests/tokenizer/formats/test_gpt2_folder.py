"""GPT-2's two files with the JSON files of `transformers` beside them."""

import doctest
import json

import pytest

from tests.tokenizer.formats.vocabularies import CORPUS, refusal, trained
from tilth.tokenizer import Template, Tokenizer
from tilth.tokenizer.formats import gpt2_folder, load, load_gpt2, save_gpt2

END = "<|endoftext|>"
PLAIN = trained("gpt2", [END])
TEXTS = [
    *CORPUS,
    f"a{END} b<pad>c  <mask> d <x>e<|im_start|> 12345 IT'S e\u0301te\u0301 <new>e\u0301",
]


@pytest.fixture
def folder(tmp_path):
    """Return a function that writes a folder with these JSON files."""

    def write(**contents):
        save_gpt2(PLAIN, tmp_path / "vocab.json", tmp_path / "merges.txt", overwrite=True)
        for name, content in contents.items():
            (tmp_path / f"{name}.json").write_text(json.dumps(content))
        return tmp_path

    return write


def test_docstring():
    assert doctest.testmod(gpt2_folder).failed == 0


ADDED = {"<|im_start|>": 407, "<x>": 408}
DECODER = {
    "0": {"content": END, "special": True},
    "407": {"content": "<mask>", "lstrip": True, "special": True},
    "408": {"content": "<new>e\u0301", "normalized": True, "special": False},
}


@pytest.mark.parametrize("kind", ["GPT2Tokenizer", "Qwen2Tokenizer"])
@pytest.mark.parametrize(
    "contents",
    [
        {},
        {"tokenizer_config": {"pad_token": "<pad>", "additional_special_tokens": ["<x>"]}},
        {"tokenizer_config": {"added_tokens_decoder": DECODER}},
        {"tokenizer_config": {"add_prefix_space": True, "extra_special_tokens": {"a": "<x>"}}},
        {"special_tokens_map": {"pad_token": {"content": "<pad>", "rstrip": True}}},
        {"added_tokens": ADDED, "special_tokens_map": {"pad_token": "<|im_start|>"}},
        {"added_tokens": dict(reversed(ADDED.items()))},
    ],
)
def test_ids_are_those_of_transformers(folder, contents, kind):
    transformers = pytest.importorskip("transformers")
    config = {"tokenizer_class": kind, **contents.get("tokenizer_config", {})}
    path = folder(**{**contents, "tokenizer_config": config})
    tokenizer = Tokenizer.load(path)
    peer = getattr(transformers, kind).from_pretrained(path)
    assert {END, *peer.get_added_vocab()} == {*tokenizer.special_tokens}
    for text in TEXTS:
        assert tokenizer.encode(text) == peer(text, add_special_tokens=False)["input_ids"]
    for text in TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=True)
        assert ids == peer(text)["input_ids"]


def test_the_files_of_gpt2_alone_have_its_end_token(folder):
    tokenizer = Tokenizer.load(folder())
    assert dict(tokenizer.special_tokens) == {END: 0}
    assert tokenizer.encode(f"a{END}") == [*tokenizer.encode("a"), 0]
    given = Tokenizer.load(folder(), special_tokens=["<x>"])
    assert dict(given.special_tokens) == {"<x>": 407}
    path = folder()
    (path / "vocab.json").write_text('{"a": 0}')
    (path / "merges.txt").write_text("")
    assert not Tokenizer.load(path).special_tokens


def test_the_template_of_a_folder(folder):
    config = {"add_bos_token": True, "add_eos_token": True, "eos_token": {"content": "</s>"}}
    tokenizer = Tokenizer.load(folder(tokenizer_config=config))
    assert tokenizer.template == Template((END,), ("</s>",))
    ids = tokenizer.encode("a", add_special_tokens=True)
    assert ids == [0, *tokenizer.encode("a"), 407]


@pytest.mark.parametrize("kind", ["CLIPTokenizer", "RobertaTokenizerFast", "Qwen2", "", 5, ["a"]])
def test_other_classes_are_refused(folder, kind):
    """They were opened with the pattern of GPT-2."""
    path = folder(tokenizer_config={"tokenizer_class": kind})
    message = refusal(load, path)
    assert f"names the class {kind!r}" in message
    assert message.endswith("with transformers, or name its pattern with --pattern")
    given = load(path, pattern="llama3")
    assert (given.pattern, given.normalizers) == ("llama3", ())
    assert dict(given.special_tokens) == {END: 0}


def test_a_pattern_replaces_that_of_the_class(folder):
    path = folder(tokenizer_config={"tokenizer_class": "Qwen2TokenizerFast"})
    assert (load(path).pattern, load(path).normalizers) == ("qwen2", ("NFC",))
    assert load(path, pattern="gpt2").pattern == "gpt2"


def test_ends_of_words_are_refused(tmp_path):
    """CLIP's files: their ids would be others, without a word."""
    letters = [*"abc", *(f"{letter}</w>" for letter in "abc"), "ab</w>"]
    vocab = json.dumps({token: i for i, token in enumerate(letters)})
    (tmp_path / "vocab.json").write_text(vocab)
    (tmp_path / "merges.txt").write_text("a b</w>\n")
    for found in (
        refusal(load, tmp_path),
        refusal(load_gpt2, tmp_path / "vocab.json", tmp_path / "merges.txt"),
    ):
        assert "4 of its tokens mark the end of a word by </w>, as those of CLIP do; " in found
    # The text of one token, as in a tokenizer for XML.
    (tmp_path / "vocab.json").write_text('{"a": 0, "</w>": 1}')
    (tmp_path / "merges.txt").write_text("")
    assert load(tmp_path).tokens[1] == b"</w>"


@pytest.mark.parametrize(
    ("name", "content", "culprit"),
    [
        ("tokenizer_config", "[]", "tokenizer_config.json is not a JSON object"),
        ("tokenizer_config", "{", "is truncated or is not JSON"),
        ("special_tokens_map", '{"eos_token": 5}', "a special token is 5 and not an object"),
        ("special_tokens_map", '{"eos_token": {"content": 5}}', "the content of a special"),
        ("tokenizer_config", '{"additional_special_tokens": "ab"}', "'ab' and not a list"),
        ("tokenizer_config", '{"added_tokens_decoder": 5}', "added_tokens_decoder is 5"),
        ("tokenizer_config", '{"added_tokens_decoder": {"x": "a"}}', "the id 'x'"),
        ("tokenizer_config", '{"eos_token": {"content": "a", "lstrip": 1}}', "'lstrip': 1"),
        ("added_tokens", '{"a": null}', "the id None"),
        ("added_tokens", '{"\\ud800": 407}', "surrogate"),
    ],
)
def test_damaged_files(folder, name, content, culprit):
    path = folder()
    (path / f"{name}.json").write_text(content)
    assert culprit in refusal(load, path)


def test_an_id_that_is_no_number(folder):
    path = folder(tokenizer_config={"pad_token": "<pad>", "bos_token": "<s>"})
    vocab = json.loads((path / "vocab.json").read_text())
    (path / "vocab.json").write_text(json.dumps({**vocab, "<pad>": "407"}))
    assert "an added token has the id '407'; give it a whole number" in refusal(load, path)
