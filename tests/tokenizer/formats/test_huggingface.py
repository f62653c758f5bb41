"""`tokenizer.json`: compare all ids with Hugging Face `tokenizers`."""

import json

import pytest
import regex
import tokenizers
from hypothesis import assume, given
from hypothesis import strategies as st
from tokenizers import decoders, normalizers, pre_tokenizers, processors, trainers

from tests.tokenizer.formats.vocabularies import (
    BYTE_LEVEL,
    CORPUS,
    KINDS,
    SHORT_TEXTS,
    TEXTS,
    any_vocabulary,
    changed,
    encode,
    examples,
    refusal,
)
from tilth.tokenizer import Tokenizer, reference
from tilth.tokenizer.formats import (
    huggingface,
    load_tokenizer_json,
    save_tokenizer_json,
)
from tilth.tokenizer.patterns import PATTERNS, describe
from tilth.tokenizer.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def peers(tmp_path_factory):
    """Each vocabulary, loaded by `tokenizers`."""
    folder = tmp_path_factory.mktemp("huggingface")
    for name, vocabulary in KINDS.items():
        save_tokenizer_json(vocabulary, folder / name)
    return {name: tokenizers.Tokenizer.from_file(str(folder / name)) for name in KINDS}


@pytest.mark.parametrize("name", KINDS)
@examples(60)
@given(text=TEXTS)
def test_tokenizers_gives_the_same_ids(peers, name, text):
    assert peers[name].encode(text).ids == encode(KINDS[name], text)


@pytest.mark.parametrize("name", KINDS)
def test_tokenizers_gives_the_same_ids_of_the_corpus(peers, name):
    text = "<|endoftext|>".join(CORPUS)
    ids = encode(KINDS[name], text)
    assert peers[name].encode(text).ids == ids
    assert peers[name].decode(ids, skip_special_tokens=False) == text


@pytest.mark.parametrize("name", KINDS)
def test_tokenizer_json_round_trip(tmp_path, name):
    save_tokenizer_json(KINDS[name], tmp_path / "tokenizer.json")
    assert load_tokenizer_json(tmp_path / "tokenizer.json") == KINDS[name]
    peer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    peer.save(str(tmp_path / "theirs.json"))
    assert load_tokenizer_json(tmp_path / "theirs.json") == KINDS[name]


@examples(300)
@given(text=TEXTS)
def test_cl100k_pattern_for_oniguruma(text):
    assume(text)
    split = pre_tokenizers.Split(tokenizers.Regex(huggingface._CL100K), "isolated")
    found = [piece for piece, _ in split.pre_tokenize_str(text)]
    assert found == regex.findall(reference.CL100K_PATTERN, text)


@examples(150)
@given(vocabulary=any_vocabulary(), texts=st.lists(SHORT_TEXTS, min_size=5, max_size=5))
def test_any_saved_vocabulary_gives_the_same_ids(tmp_path_factory, vocabulary, texts):
    path = tmp_path_factory.getbasetemp() / "any.json"
    try:
        save_tokenizer_json(vocabulary, path, overwrite=True)
    except ValueError:
        assert vocabulary.special_tokens  # spelled as other bytes are, or part of a merge
        return
    assert load_tokenizer_json(path) == vocabulary
    peer = tokenizers.Tokenizer.from_file(str(path))
    for text in texts:
        assert peer.encode(text).ids == encode(vocabulary, text)


def theirs(pre_tokenizer, **options):
    """A tokenizer that Hugging Face trained."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(**options))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|endoftext|>", "<a b>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def isolated(pattern):
    return pre_tokenizers.Split(pattern, "isolated")


def before_byte_level(*parts, use_regex=False):
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)
    return pre_tokenizers.Sequence([*parts, byte_level])


def split_and_byte_level(*steps):
    return before_byte_level(*(isolated(tokenizers.Regex(step)) for step in steps))


SPELLED_OUT = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


@pytest.mark.parametrize(
    ("pre_tokenizer", "pattern"),
    [
        (BYTE_LEVEL, "gpt2"),
        (split_and_byte_level(SPELLED_OUT), "gpt2"),
        (split_and_byte_level(reference.GPT2_PATTERN), "gpt2"),
        (split_and_byte_level(huggingface._CL100K), "cl100k"),
        *(
            (split_and_byte_level(*PATTERNS[name]), name)
            for name in ("o200k", "llama3", "qwen2", "deepseek-v3", "tekken")
        ),
        (before_byte_level(pre_tokenizers.Digits(True), use_regex=True), "starcoder"),
        (split_and_byte_level(r"\p{N}", SPELLED_OUT), "starcoder"),
        (before_byte_level(pre_tokenizers.Digits(False), use_regex=True), (r"\p{N}+", "gpt2")),
        (before_byte_level(pre_tokenizers.Digits(False)), r"\p{N}+"),
        (before_byte_level(isolated(" ")), " "),
        (before_byte_level(isolated("...[a](b)|^$\\{")), r"\.\.\.\[a\]\(b\)\|\^\$\\\{"),
        (
            before_byte_level(
                isolated("the"), isolated(tokenizers.Regex("[aeiou]+?")), use_regex=True
            ),
            ("the", "[aeiou]+?", "gpt2"),
        ),
        (split_and_byte_level("[aeiou]", huggingface._CL100K), ("[aeiou]", "cl100k")),
    ],
    ids=lambda value: describe(value) if isinstance(value, str | tuple) else "",
)
def test_files_of_hugging_face(tmp_path, pre_tokenizer, pattern):
    peer = theirs(pre_tokenizer)
    peer.post_processor = processors.ByteLevel(trim_offsets=False)
    peer.normalizer = normalizers.Sequence([])  # as in DeepSeek V3
    peer.add_tokens(["<new>"])  # behind the model's own, not special
    path = tmp_path / "tokenizer.json"
    peer.save(str(path))
    vocabulary = load_tokenizer_json(path)
    assert vocabulary.pattern == pattern
    assert set(vocabulary.special_tokens) >= {"<|endoftext|>", "<a b>"}
    texts = [*CORPUS, "<|endoftext|><a b>x<new>", "\n \n ", "it's 1234  '", "...[a](b)|^$\\{x"]
    for text in texts:
        assert encode(vocabulary, text) == peer.encode(text).ids
        assert Tokenizer.from_vocabulary(vocabulary).encode(text) == peer.encode(text).ids

    # Written again, it gives the same ids.
    save_tokenizer_json(vocabulary, tmp_path / "again.json")
    assert load_tokenizer_json(tmp_path / "again.json") == vocabulary
    again = tokenizers.Tokenizer.from_file(str(tmp_path / "again.json"))
    assert [again.encode(text).ids for text in texts] == [peer.encode(text).ids for text in texts]

    # Older files have merges as strings (until 2024) or no type.
    content = json.loads(path.read_text())
    content["model"]["merges"] = [" ".join(merge) for merge in content["model"]["merges"]]
    content["model"]["continuing_subword_prefix"] = content["model"]["end_of_word_suffix"] = ""
    del content["model"]["type"]
    path.write_text(json.dumps(content))
    assert load_tokenizer_json(path) == vocabulary
    peer = tokenizers.Tokenizer.from_file(str(path))
    for text in texts:
        assert encode(vocabulary, text) == peer.encode(text).ids


SPLIT = ("pre_tokenizer", "pretokenizers", 0)
SECOND = ("pre_tokenizer", "pretokenizers", 1)
DIGITS = {"type": "Digits", "individual_digits": True}
WRITTEN = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}


@pytest.mark.parametrize(
    ("where", "value", "culprit"),
    [
        (("version",), "2.0", "version"),
        (("truncation",), {"max_length": 5}, "truncation"),
        (("padding",), {"strategy": "BatchLongest"}, "padding"),
        (("normalizer",), {"type": "Lowercase"}, "the normalizer is 'Lowercase'"),
        (("normalizer",), {"type": "NFC", "surprise": 1}, "surprise"),
        (("normalizer",), {"type": ["NFC"]}, "NFC"),
        (("normalizer",), "NFC", "NFC"),
        (("normalizer",), {"type": "Sequence"}, "normalizers"),
        (("normalizer",), {"type": "Sequence", "normalizers": [None]}, "None"),
        (("normalizer",), {"type": "Sequence", "normalizers": [{"type": "Nmt"}]}, "Nmt"),
        (("normalizer",), {"type": "Sequence", "normalizers": [{"type": "NFC"}] * 17}, "at most"),
        (("post_processor",), {"type": "TemplateProcessing", "single": []}, "TemplateProcessing"),
        (("decoder",), {"type": "WordPiece"}, "WordPiece"),
        (("surprise",), 1, "surprise"),
        (("model",), None, "model"),
        (("model", "type"), "Unigram", "Unigram"),
        (("model", "dropout"), 0.1, "dropout"),
        (("model", "unk_token"), "<unk>", "unk_token"),
        (("model", "continuing_subword_prefix"), "##", "continuing_subword_prefix"),
        (("model", "end_of_word_suffix"), "</w>", "end_of_word_suffix"),
        (("model", "byte_fallback"), True, "byte_fallback"),
        (("model", "byte_fallback"), 0, "byte_fallback"),
        (("model", "surprise"), 1, "surprise"),
        (("model", "vocab"), [], "vocab"),
        (("model", "vocab", "b"), 0, "'b'"),
        (("model", "vocab", "b"), "1", "'b'"),
        (("model", "vocab", "b"), True, "True"),
        (("model", "vocab", "b"), 1.0, "1.0"),
        (("model", "vocab", "b"), -1, "-1"),
        (("model", "vocab", "b"), 10**30, "out of range"),
        (("model", "vocab", "b"), [1], "'b'"),
        (("model", "vocab", ""), 9, "token 9 is 0 bytes"),
        (("model", "vocab", "x" * 1_000_000), 9, "1,000,000 bytes"),
        (("model", "vocab", "a b"), 9, "'a b'"),
        (("model", "vocab", "\x00"), 9, "spells no byte"),
        (("model", "vocab", "\ud800"), 9, "spells no byte"),
        (("model", "merges"), {}, "merges"),
        (("model", "merges"), [["a", "b", "b"]], "'a', 'b', 'b'"),
        (("model", "merges"), [["a", 1]], "'a', 1"),
        (("model", "merges"), ["ab"], "'ab'"),
        (("model", "merges"), ["a b b"], "'a b b'"),
        (("model", "merges"), [["a", "c"]], "b'c'"),
        (("model", "merges"), [["b", "a"]], "b'ba'"),
        (("model", "merges"), [["a", "b"], "a b"], "twice"),
        (("model", "merges"), [["", "ab"]], "b''"),
        (("added_tokens",), {}, "added_tokens"),
        (("added_tokens", 0), 5, "added token"),
        (("added_tokens", 0, "lstrip"), 1, "lstrip"),
        (("added_tokens", 0, "special"), "yes", "special"),
        (("added_tokens", 0, "surprise"), True, "surprise"),
        (("added_tokens", 0, "id"), 2, "would give it 3"),
        (("added_tokens", 0, "id"), None, "would give it 3"),
        (("added_tokens", 0, "content"), "", "would give it 4"),
        (("added_tokens", 0, "content"), None, "None"),
        (("pre_tokenizer",), None, "pre_tokenizer"),
        (("pre_tokenizer",), {"type": "Whitespace"}, "Whitespace"),
        (("pre_tokenizer",), {"type": "ByteLevel"}, "add_prefix_space"),
        (("pre_tokenizer",), {"type": "ByteLevel", "add_prefix_space": True}, "add_prefix_space"),
        (
            ("pre_tokenizer",),
            {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
            "use_regex",
        ),
        (("pre_tokenizer", "pretokenizers"), [], "Sequence"),
        (("pre_tokenizer", "pretokenizers"), 5, "Sequence"),
        (("pre_tokenizer", "pretokenizers"), [5], "Sequence' with 5"),
        (("pre_tokenizer", "pretokenizers"), [{"type": "Digits"}], "'Digits' at the end"),
        (("pre_tokenizer", "pretokenizers"), [WRITTEN, WRITTEN], "pre_tokenizer 1 .*'ByteLevel'"),
        (("pre_tokenizer", "pretokenizers"), [WRITTEN | {"use_regex": False}], "use_regex"),
        (("pre_tokenizer", "pretokenizers"), [DIGITS] * 16 + [WRITTEN], "16 regexes at most"),
        (SPLIT, {"type": "Digits"}, "individual_digits"),
        (SPLIT, DIGITS | {"individual_digits": 1}, "individual_digits"),
        (SPLIT, DIGITS | {"surprise": 1}, "surprise"),
        ((*SPLIT, "type"), "Punctuation", "Punctuation"),
        ((*SPLIT, "behavior"), "Removed", "Removed"),
        ((*SPLIT, "invert"), True, "invert"),
        ((*SPLIT, "pattern"), {"String": ""}, "empty string"),
        ((*SPLIT, "pattern"), {"String": "gpt2"}, "name of another"),
        ((*SPLIT, "pattern"), {"String": "\ud800"}, "differently"),
        ((*SPLIT, "pattern"), {"String": " ", "Regex": " "}, "as a Regex or a String"),
        ((*SPLIT, "pattern"), {"String": 5}, "as a Regex or a String"),
        ((*SPLIT, "pattern"), "x", "pattern"),
        ((*SPLIT, "pattern", "Regex"), reference.CL100K_PATTERN, r"\{1,3\}"),
        ((*SPLIT, "pattern", "Regex"), r"\S+|\s+$", r"\$"),
        ((*SPLIT, "pattern", "Regex"), "gpt2", "name of another"),
        ((*SPLIT, "pattern", "Regex"), "o200k", "name of another"),
        ((*SECOND, "use_regex"), 1, "use_regex"),
        ((*SECOND, "add_prefix_space"), True, "add_prefix_space"),
    ],
)
def test_unsupported_settings_are_named(tmp_path, tiny, where, value, culprit):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(tiny))
    load_tokenizer_json(path)
    path.write_text(json.dumps(changed(tiny, where, value)))
    assert regex.search(culprit, refusal(load_tokenizer_json, path).removeprefix(str(path)))


def test_ids_of_added_tokens(tmp_path, tiny):
    path = tmp_path / "tokenizer.json"
    entry = tiny["added_tokens"][0]
    entries = [entry, entry | {"content": "<x>", "id": 4}, entry | {"content": "<y>", "id": 5}]
    path.write_text(json.dumps(changed(tiny, ["added_tokens"], entries)))
    vocabulary = load_tokenizer_json(path)
    assert tokenizers.Tokenizer.from_file(str(path)).encode("<x><y><|e|>").ids == [4, 5, 3]
    assert encode(vocabulary, "<x><y><|e|>") == [4, 5, 3]
    # They are not in the model, so `tokenizers` ignores the id of the file and takes the next.
    entries[1]["id"] = 9
    path.write_text(json.dumps(changed(tiny, ["added_tokens"], entries)))
    assert tokenizers.Tokenizer.from_file(str(path)).encode("<x>").ids == [4]
    assert "would give it 4" in refusal(load_tokenizer_json, path)
    # A repeated token, and an id that is taken.
    path.write_text(json.dumps(changed(tiny, ["added_tokens"], [entry, entry])))
    assert "second" in refusal(load_tokenizer_json, path)
    holes = changed(tiny, ["model", "vocab", "z"], 5)
    path.write_text(json.dumps(changed(holes, ["added_tokens"], [entries[2]])))
    assert "another token" in refusal(load_tokenizer_json, path)


@pytest.mark.parametrize(
    ("tokens", "merges", "special_token"),
    [
        ({0: b"\xe9"}, [], "é"),  # spelled the same
        ({0: b"a"}, [], "é"),
        ({0: b"a", 1: b" ", 2: b" a"}, [(b" ", b"a")], "Ġa"),
        ({0: b"a"}, [], "Ġa"),
        ({0: b"a", 1: b" ", 2: b" a"}, [(b" ", b"a")], " a"),  # spelled differently in the merge
        ({0: b"a", 1: b" ", 2: b" a"}, [(b" ", b"a")], " "),
    ],
)
def test_ambiguous_special_tokens_are_refused(tmp_path, tokens, merges, special_token):
    vocabulary = Vocabulary.from_parts(tokens, merges, [special_token])
    message = refusal(save_tokenizer_json, vocabulary, tmp_path / "tokenizer.json")
    assert repr(special_token) in message
    assert not any(tmp_path.iterdir())
