"""Tokenizer files, held id for id to the packages that they belong to, and to what is damaged."""

import base64
import doctest
import json
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import regex
import tiktoken
import tokenizers
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st
from tiktoken.load import load_tiktoken_bpe
from tokenizers import decoders, pre_tokenizers, processors, trainers

from tests.tokenizer.texts import ALPHABET
from tilth.files import FileError
from tilth.tokenizer import (
    formats,
    gpt2_files,
    huggingface_file,
    oniguruma,
    reading,
    reference,
    tiktoken_file,
)
from tilth.tokenizer.formats import (
    load,
    load_gpt2,
    load_tiktoken,
    load_tokenizer_json,
    recover_merges,
    save_gpt2,
    save_tiktoken,
    save_tokenizer_json,
)
from tilth.tokenizer.vocabulary import Vocabulary

DATA = Path(__file__).parents[2].parent / "shared" / "data"

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CORPUS = [
    "The sun rose. The sunflower turned; we'll see, they've said: IT'S 1234 degrees!\n\n",
    "Die Sonne scheint schön über den Dächern, ½ Stunde.  Été, où êtes-vous?\r\n",
    "太阳升起，太阳花转向。牛 牛 牛 Солнце светит, солнце! 🌱🌱 नमस्ते\u00a0दुनिया   \n\t x = 10;",
    "aaaa aaaaa abab ababab 's 'll 'S 12 123 12345 ...!!!\n\n\n   ",
]
SPECIAL = ["<|endoftext|>", "<|endoftext|><|endoftext|>", "<end of text>", "<récit>", "<|終|>"]
# Only characters whose class has been the same for decades: each package has its own Unicode.
WORDS = [*ALPHABET, *"SLVREDTMоतर्दुБж太ß", " the", " sun", "Sonne", "ab", *SPECIAL]
TEXTS = st.one_of(
    st.lists(st.sampled_from(WORDS), max_size=30).map("".join),
    # Few enough for every neighbourhood to come up, at the end of a text too.
    st.text(st.sampled_from("a1!' \n\r\tsSlLſ\u00a0"), max_size=10),
)


def examples(count):
    """So many, however busy the machine is."""
    unhurried = [HealthCheck.too_slow, HealthCheck.filter_too_much]
    return settings(max_examples=count, suppress_health_check=unhurried)


def pieces(text, pattern):
    """The definition: what the pattern finds, and what it leaves out between."""
    compiled = regex.compile(reference.PATTERNS.get(pattern, pattern))
    start = 0
    for found in compiled.finditer(text):
        yield from filter(None, (text[start : found.start()], found[0]))
        start = found.end()
    yield from filter(None, (text[start:],))


def encode(vocabulary, text):
    """The ids by the specification; None if a byte has no token."""
    ids = {token: token_id for token_id, token in vocabulary.tokens.items()}
    ranks = {pair: rank for rank, pair in enumerate(vocabulary.merges)}
    found = []
    for part, is_special in reference.split_at_special_tokens(text, vocabulary.special_tokens):
        if is_special:
            found.append(vocabulary.special_tokens[part])
            continue
        for piece in pieces(part, vocabulary.pattern):
            word = piece.encode()
            is_whole = vocabulary.whole_piece_first and word in ids
            word = [word] if is_whole else reference.encode_piece(word, ranks)
            if not ids.keys() >= {*word}:
                return None
            found += [ids[token] for token in word]
    return found


def trained(pattern, special_tokens=SPECIAL):
    vocab, merges = reference.train(
        CORPUS, 256 + len(special_tokens) + 150, special_tokens, pattern
    )
    return Vocabulary.from_parts(vocab, merges, special_tokens, pattern=pattern)


GPT2, CL100K = trained("gpt2"), trained("cl100k")
# Ids with holes and out of order, tokens that no merge makes, taken whole or not.
SPREAD = Vocabulary(
    {(token_id * 7919) % 100_003: token for token_id, token in GPT2.tokens.items()},
    GPT2.merges,
    {token: (token_id * 7919) % 100_003 for token, token_id in GPT2.special_tokens.items()},
)
WHOLE = replace(CL100K, merges=CL100K.merges[:60], whole_piece_first=True)
KINDS = {
    "gpt2": GPT2,
    "cl100k": CL100K,
    "custom": replace(CL100K, pattern=LLAMA3),
    "leaves text out": replace(GPT2, pattern=r"\p{L}+|\p{N}{2}"),
    "spread": SPREAD,
    "whole": WHOLE,
    "not whole": replace(WHOLE, whole_piece_first=False),
}
TINY = Vocabulary.from_parts({0: b"a", 1: b"b", 2: b"ab"}, [(b"a", b"b")], ["<|e|>"])


def refusal(function, *arguments, **options):
    """The sentence of the FileError (or OSError) that a call must raise."""
    with pytest.raises((FileError, OSError)) as caught:
        function(*arguments, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 500
    assert "; " in message, "a hint ends the sentence"
    return message


@pytest.mark.parametrize(
    "module",
    [formats, gpt2_files, huggingface_file, oniguruma, reading, tiktoken_file],
    ids=lambda module: module.__name__,
)
def test_docstrings(module):
    assert doctest.testmod(module).failed == 0


# --- tokenizer.json and Hugging Face tokenizers --------------------------------------------------


@pytest.fixture(scope="module")
def peers(tmp_path_factory):
    """What `tokenizers` makes of the file of each kind."""
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
def test_cl100k_is_written_so_that_oniguruma_reads_it_alike(text):
    assume(text)
    split = pre_tokenizers.Split(tokenizers.Regex(huggingface_file._CL100K), "isolated")
    found = [piece for piece, _ in split.pre_tokenize_str(text)]
    assert found == regex.findall(reference.CL100K_PATTERN, text)


TOKEN = st.binary(min_size=1, max_size=4).map(
    lambda token: token.translate(b"ab \xc3\xa9\n<e" * 32)
)


@st.composite
def any_vocabulary(draw):
    """Bytes, some tokens, some of the merges that could make them, ids and ranks in any order."""
    singles = {bytes([byte]) for byte in "abeé<Ġ \n".encode()}
    tokens = singles | draw(st.sets(TOKEN, max_size=25))
    pairs = [
        (token[:cut], token[cut:])
        for token in sorted(tokens)
        for cut in range(1, len(token))
        if {token[:cut], token[cut:]} <= tokens
    ]
    pairs = draw(st.permutations(pairs))
    pairs = pairs[: draw(st.integers(0, len(pairs)))]
    order = draw(st.permutations([token for token in sorted(tokens) if len(token) > 1]))
    made = [left + right for left, right in pairs]
    if draw(st.booleans()):  # as training would have it
        order.sort(key=lambda token: made.index(token) if token in made else -1)
    ids = sorted(singles) + order
    step = draw(st.sampled_from([1, 3]))
    special = st.text(st.sampled_from("ab é<Ġ\n"), min_size=1, max_size=3)
    return Vocabulary.from_parts(
        {place * step: token for place, token in enumerate(ids)},
        pairs,
        draw(st.lists(special, max_size=3, unique=True)),
        pattern=draw(st.sampled_from(["gpt2", "cl100k", r"[^x]+"])),
        whole_piece_first=draw(st.booleans()),
    )


SHORT_TEXTS = st.text(st.sampled_from("aab  é\n<eĠ"), max_size=20)


@examples(150)
@given(vocabulary=any_vocabulary(), texts=st.lists(SHORT_TEXTS, min_size=5, max_size=5))
def test_any_vocabulary_that_is_written_is_read_alike(tmp_path_factory, vocabulary, texts):
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


def split_and_byte_level(pattern):
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


BYTE_LEVEL = pre_tokenizers.ByteLevel(add_prefix_space=False)
SPELLED_OUT = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


@pytest.mark.parametrize(
    ("pre_tokenizer", "pattern"),
    [
        (BYTE_LEVEL, "gpt2"),
        (split_and_byte_level(SPELLED_OUT), "gpt2"),
        (split_and_byte_level(reference.GPT2_PATTERN), "gpt2"),
        (split_and_byte_level(huggingface_file._CL100K), "cl100k"),
        (split_and_byte_level(LLAMA3), LLAMA3),
    ],
    ids=["ByteLevel", "GPT-2", "GPT-2 shorter", "cl100k", "Llama 3"],
)
def test_files_of_hugging_face(tmp_path, pre_tokenizer, pattern):
    peer = theirs(pre_tokenizer)
    peer.post_processor = processors.ByteLevel(trim_offsets=False)
    peer.add_tokens(["<new>"])  # behind the model's own, not special
    path = tmp_path / "tokenizer.json"
    peer.save(str(path))
    vocabulary = load_tokenizer_json(path)
    assert vocabulary.pattern == pattern
    assert set(vocabulary.special_tokens) >= {"<|endoftext|>", "<a b>"}
    texts = [*CORPUS, "<|endoftext|><a b>x<new>", "\n \n ", "it's 1234  '"]
    for text in texts:
        assert encode(vocabulary, text) == peer.encode(text).ids

    # The same with merges as strings, as it was until 2024, and with no type, as in the oldest.
    content = json.loads(path.read_text())
    content["model"]["merges"] = [" ".join(merge) for merge in content["model"]["merges"]]
    content["model"]["continuing_subword_prefix"] = content["model"]["end_of_word_suffix"] = ""
    del content["model"]["type"]
    path.write_text(json.dumps(content))
    assert load_tokenizer_json(path) == vocabulary
    peer = tokenizers.Tokenizer.from_file(str(path))
    for text in texts:
        assert encode(vocabulary, text) == peer.encode(text).ids


def changed(content, where, value):
    content = json.loads(json.dumps(content))
    *parents, last = where
    place = content
    for key in parents:
        place = place[key]
    place[last] = value
    return content


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny") / "tokenizer.json"
    save_tokenizer_json(replace(TINY, pattern="cl100k"), path)
    return json.loads(path.read_text())


SPLIT = ("pre_tokenizer", "pretokenizers", 0)
SECOND = ("pre_tokenizer", "pretokenizers", 1)


@pytest.mark.parametrize(
    ("where", "value", "culprit"),
    [
        (("version",), "2.0", "version"),
        (("truncation",), {"max_length": 5}, "truncation"),
        (("padding",), {"strategy": "BatchLongest"}, "padding"),
        (("normalizer",), {"type": "NFC"}, "NFC"),
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
        (("model", "vocab", ""), 9, "token 9 is empty"),
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
        (("added_tokens", 0, "lstrip"), True, "lstrip"),
        (("added_tokens", 0, "rstrip"), True, "rstrip"),
        (("added_tokens", 0, "single_word"), True, "single_word"),
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
            "without its pattern",
        ),
        (("pre_tokenizer", "pretokenizers"), [], "Sequence"),
        ((*SPLIT, "type"), "Digits", "Digits"),
        ((*SPLIT, "behavior"), "Removed", "Removed"),
        ((*SPLIT, "invert"), True, "invert"),
        ((*SPLIT, "pattern"), {"String": " "}, "String"),
        ((*SPLIT, "pattern"), "x", "pattern"),
        ((*SPLIT, "pattern", "Regex"), reference.CL100K_PATTERN, r"\{1,3\}"),
        ((*SPLIT, "pattern", "Regex"), r"\S+|\s+$", r"\$"),
        ((*SPLIT, "pattern", "Regex"), "gpt2", "name of another"),
        ((*SECOND, "use_regex"), True, "use_regex"),
        ((*SECOND, "add_prefix_space"), True, "add_prefix_space"),
    ],
)
def test_what_cannot_be_reproduced_is_named(tmp_path, tiny, where, value, culprit):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(tiny))
    load_tokenizer_json(path)
    path.write_text(json.dumps(changed(tiny, where, value)))
    assert regex.search(culprit, refusal(load_tokenizer_json, path).removeprefix(str(path)))


def test_added_tokens_have_the_ids_that_tokenizers_gives_them(tmp_path, tiny):
    path = tmp_path / "tokenizer.json"
    entry = tiny["added_tokens"][0]
    entries = [entry, entry | {"content": "<x>", "id": 4}, entry | {"content": "<y>", "id": 5}]
    path.write_text(json.dumps(changed(tiny, ["added_tokens"], entries)))
    vocabulary = load_tokenizer_json(path)
    assert tokenizers.Tokenizer.from_file(str(path)).encode("<x><y><|e|>").ids == [4, 5, 3]
    assert encode(vocabulary, "<x><y><|e|>") == [4, 5, 3]
    # They are not in the model, so `tokenizers` counts, whatever the file says.
    entries[1]["id"] = 9
    path.write_text(json.dumps(changed(tiny, ["added_tokens"], entries)))
    assert tokenizers.Tokenizer.from_file(str(path)).encode("<x>").ids == [4]
    assert "would give it 4" in refusal(load_tokenizer_json, path)
    # Two of a kind, a taken id, two kinds of looking.
    path.write_text(json.dumps(changed(tiny, ["added_tokens"], [entry, entry])))
    assert "second" in refusal(load_tokenizer_json, path)
    holes = changed(tiny, ["model", "vocab", "z"], 5)
    path.write_text(json.dumps(changed(holes, ["added_tokens"], [entries[2]])))
    assert "another token" in refusal(load_tokenizer_json, path)


@pytest.mark.parametrize(
    ("normalized", "other", "is_read"),
    [("<x>", "<y>", True), ("<a", "<ab>", True), ("b<", "<ab>", False), ("<ab>", "<a", False)],
)
def test_only_overlapping_added_tokens_are_refused(tmp_path, tiny, normalized, other, is_read):
    path = tmp_path / "tokenizer.json"
    entry = tiny["added_tokens"][0]
    entries = [
        entry | {"content": normalized, "id": 4, "normalized": True},
        entry | {"content": other, "id": 5, "normalized": False},
    ]
    path.write_text(json.dumps(tiny | {"added_tokens": entries}))
    if is_read:
        assert dict(load_tokenizer_json(path).special_tokens) == {normalized: 4, other: 5}
    else:
        assert "overlaps" in refusal(load_tokenizer_json, path)


FLAGGED = st.dictionaries(
    st.text(st.sampled_from("abc"), min_size=1, max_size=3), st.booleans(), max_size=5
)


@examples(200)
@given(flagged=FLAGGED, text=st.text(st.sampled_from("abc"), max_size=12))
def test_added_tokens_are_found_in_one_go(tmp_path_factory, tiny, flagged, text):
    """`tokenizers` looks for those that are not normalized first."""
    entry = tiny["added_tokens"][0]
    entries = [
        entry | {"content": token, "id": 10 + place, "normalized": normalized}
        for place, (token, normalized) in enumerate(flagged.items())
    ]
    vocab = {"c": 0} | {token: 10 + place for place, token in enumerate(flagged)}
    vocab |= {token: 5 + place for place, token in enumerate("abc") if token not in flagged}
    content = changed(changed(tiny, ["model", "vocab"], vocab), ["model", "merges"], [])
    path = tmp_path_factory.getbasetemp() / "flagged.json"
    path.write_text(json.dumps(content | {"added_tokens": entries}))
    try:
        vocabulary = load_tokenizer_json(path)
    except FileError:
        assert len(set(flagged.values())) == 2
        return
    assert tokenizers.Tokenizer.from_file(str(path)).encode(text).ids == encode(vocabulary, text)


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
def test_special_tokens_that_the_file_cannot_tell_apart(tmp_path, tokens, merges, special_token):
    vocabulary = Vocabulary.from_parts(tokens, merges, [special_token])
    message = refusal(save_tokenizer_json, vocabulary, tmp_path / "tokenizer.json")
    assert repr(special_token) in message
    assert not any(tmp_path.iterdir())


# --- patterns of one's own -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "pattern",
    [
        r"\s+$",
        r"^a",
        r"\p{N}{1,3}+",
        r"a{2}?",
        r"a{,2}",
        r"\h+",
        r"\w+",
        r"\bx",
        r"(?V1)a",
        r"(?:cat){e<=1}",
        r"(?i)a",
        r"(?i:strasse)",
        r"(?i:k)",
        r"[a&&b]",
        r"[a--b]",
        r"[[:alpha:]]",
        r"[[ab]c]",
        r"(a)\1",
        r"(?P<x>a)",
        r"(?<=a)b",
        r"(?#x)a",
        r"(?=a)+b",
        r"(?:a*)+b",
        r"a++*",
        r"a*",
        r"a|",
        r"(?=a)",
        r"(?:a|b?)",
        r"(a",
        r"a)",
        "(" * 100 + "a" + ")" * 100,
        r"[a",
        r"\p{Alphabetic}",
        r"\x41",
        r"\z",
        "\\",
        "a\ud800",
        reference.GPT2_PATTERN,  # it has a name
    ],
)
def test_patterns_that_may_be_read_differently_are_refused(tmp_path, pattern):
    assert "pattern" in refusal(
        save_tokenizer_json, replace(TINY, pattern=pattern), tmp_path / "tokenizer.json"
    )
    assert not any(tmp_path.iterdir())


PARTS = [*"ab '1é\n-#,&~:!.", r"\s", r"\S", r"\d", r"\D", r"\r", r"\t", r"\p{L}", r"\P{L}"]
PARTS += [r"\p{Lu}", r"\p{M}", r"\p{Han}", r"\.", r"\$", "[ab]", "[^ab]", "[a-c1]", r"[^\s\p{L}]"]
PARTS += [r"[^\S]", "[&a]", "[a|]", "[~^]", r"[^\P{L}a]", r"[\-a]", r"[a\]]"]
PARTS += ["(?i:'s|'t|'re|'ve|'m|'ll|'d)", "(?i:[sdmt]|ll|ve|re)"]
MARKS = ["(", "(?:", "(?>", "(?=", "(?!", ")", ")", ")", "|", "?", "*", "+", "??", "*?", "+?", "?+"]
MARKS += ["*+", "++", "{1,3}", "{2}", "{1,}", "{0,2}", "{1,3}+", "{2}?", "$"]
PATTERNS = st.lists(
    st.one_of(st.sampled_from(PARTS), st.sampled_from(MARKS)), min_size=1, max_size=10
).map(lambda parts: (made := "".join(parts)) + ")" * max(0, made.count("(") - made.count(")")))


@examples(150)
@given(pattern=PATTERNS, texts=st.lists(TEXTS, min_size=4, max_size=4))
def test_patterns_that_pass_are_read_alike(pattern, texts):
    try:
        oniguruma.check_read_alike(pattern)
    except ValueError:
        assume(False)
    split = pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
    for text in filter(None, texts):
        assert [piece for piece, _ in split.pre_tokenize_str(text)] == [*pieces(text, pattern)]


# --- GPT-2's two files ---------------------------------------------------------------------------


def test_every_byte_has_the_character_that_gpt2_gives_it():
    assert {gpt2_files.spell(bytes([byte])) for byte in range(256)} == set(
        pre_tokenizers.ByteLevel.alphabet()
    )
    everything = bytes(range(256))
    assert gpt2_files.unspell(gpt2_files.spell(everything)) == everything
    for text in ("é", " a\n", "牛", "\x00\x7f\xa0\xad"):
        spelled = "".join(
            piece
            for piece, _ in pre_tokenizers.ByteLevel(
                add_prefix_space=False, use_regex=False
            ).pre_tokenize_str(text)
        )
        assert gpt2_files.spell(text.encode()) == spelled


@examples(100)
@given(st.text())
def test_what_spells_no_bytes_is_refused(text):
    if gpt2_files.is_spelling(text):
        assert gpt2_files.spell(gpt2_files.unspell(text)) == text
    else:
        with pytest.raises(ValueError, match="spells no byte"):
            gpt2_files.unspell(text)


@pytest.mark.parametrize("vocabulary", [GPT2, SPREAD, TINY], ids=["gpt2", "spread", "tiny"])
def test_gpt2_round_trip(tmp_path, vocabulary):
    save_gpt2(vocabulary, tmp_path / "vocab.json", tmp_path / "merges.txt")
    special_tokens = [*vocabulary.special_tokens]
    assert load_gpt2(tmp_path / "vocab.json", tmp_path / "merges.txt", special_tokens) == vocabulary
    assert load(tmp_path, special_tokens=special_tokens) == vocabulary
    # By the package: the model of these two files, the special tokens apart.
    model = tokenizers.models.BPE.from_file(
        str(tmp_path / "vocab.json"), str(tmp_path / "merges.txt")
    )
    peer = tokenizers.Tokenizer(model)
    peer.pre_tokenizer = BYTE_LEVEL
    for text in CORPUS if vocabulary is not TINY else ["ab", "abba"]:
        assert peer.encode(text).ids == encode(vocabulary, text)


def test_the_first_line_alone_may_be_a_header(tmp_path):
    vocabulary = Vocabulary.from_parts(
        {0: b"#", 1: b"##", 2: b"version", 3: b"#version"},
        [(b"#", b"#"), (b"#", b"version")],
    )
    vocab_path, merges_path = tmp_path / "vocab.json", tmp_path / "merges.txt"
    save_gpt2(vocabulary, vocab_path, merges_path)
    assert merges_path.read_text() == "#version: 0.2\n# #\n# version\n"
    for text in ("# #\n# version\n", "# #\n# version", "#version: 0.2\r\n# #\r\n\r\n# version\r\n"):
        merges_path.write_bytes(text.encode())
        assert load_gpt2(vocab_path, merges_path) == vocabulary
    merges_path.write_text("# #\n#version: 0.2\n")
    assert "needs b'#version:'" in refusal(load_gpt2, vocab_path, merges_path)


def test_special_tokens_in_vocab_json_as_they_are(tmp_path):
    """Hugging Face writes them so."""
    (tmp_path / "vocab.json").write_text('{"a": 0, "<a b>": 1, "<\uff5ce>": 2}')
    (tmp_path / "merges.txt").write_text("")
    special_tokens = ["<a b>", "<\uff5ce>"]
    vocabulary = load(tmp_path, special_tokens=special_tokens)
    assert dict(vocabulary.special_tokens) == {"<a b>": 1, "<\uff5ce>": 2}
    assert "name the token as a special token" in refusal(load, tmp_path)
    # What can be read as bytes, is: this is the byte E9.
    (tmp_path / "vocab.json").write_text('{"é": 0}')
    assert dict(load(tmp_path, special_tokens=["é"]).tokens) == {0: b"\xe9", 1: "é".encode()}


@pytest.mark.parametrize("change", [{"pattern": "cl100k"}, {"whole_piece_first": True}])
def test_what_gpt2_files_cannot_say(tmp_path, change):
    with pytest.raises(ValueError, match=r"cannot say .*; write a tokenizer\.json"):
        save_gpt2(replace(TINY, **change), tmp_path / "vocab.json", tmp_path / "merges.txt")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("vocab", "merges", "culprit"),
    [
        ('{"a": 0, "b": 0}', "", "'b'"),
        ('{"a": 0, "a": 1}', "", "'a' appears twice"),
        ('{"a": 0, "": 1}', "", "empty"),
        ('{"a": -1}', "", "-1"),
        ('{"a": 1e3}', "", "1000.0"),
        ('{"a": NaN}', "", "nan"),
        ('{"a": null}', "", "None"),
        ('{"a": 99999999999999999999}', "", "out of range"),
        ('{"a": ' + "9" * 5000 + "}", "", "JSON"),
        ('["a"]', "", "not a JSON object"),
        ("[" * 100_000, "", "nested"),
        ('{"a":' * 100_000, "", "nested"),
        ("", "", "JSON"),
        ('\ufeff{"a": 0}', "", "JSON"),
        ('{"a": 0}\x00', "", "JSON"),
        ('{"a": 0}', "a", "'a'"),
        ('{"a": 0}', "a  a", "'a  a'"),
        ('{"a": 0}', " a", "' a'"),
        ('{"a": 0}', "a b", "b'b'"),
        ('{"a": 0}', "a a", "b'aa'"),
        ('{"a": 0, "aa": 1}', "a a\na a\n", "twice"),
        ('{"a": 0, "aa": 1}', "a \x00", "spells no byte"),
        ('{"a": 0, "aa": 1}', "a\ta\n", "no merge"),
    ],
)
def test_damaged_gpt2_files(tmp_path, vocab, merges, culprit):
    (tmp_path / "vocab.json").write_bytes(vocab.encode())
    (tmp_path / "merges.txt").write_bytes(merges.encode())
    message = refusal(load, tmp_path)
    assert culprit in message
    is_merges_fault = bool(merges)
    assert ("merges.txt" in message) == is_merges_fault
    assert ("vocab.json" in message) != is_merges_fault


# --- tiktoken ------------------------------------------------------------------------------------


def tiktoken_of(path, vocabulary):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", "")  # it would keep the first file of this name
        ranks = load_tiktoken_bpe(str(path))
    pattern = reference.PATTERNS.get(vocabulary.pattern, vocabulary.pattern)
    return tiktoken.Encoding(
        "test",
        pat_str=pattern,
        mergeable_ranks=ranks,
        special_tokens=dict(vocabulary.special_tokens),
    )


@pytest.fixture(scope="module")
def encodings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiktoken")
    made = {}
    for name in ("gpt2", "cl100k"):
        save_tiktoken(KINDS[name], folder / f"{name}.tiktoken")
        made[name] = tiktoken_of(folder / f"{name}.tiktoken", KINDS[name])
    return made


# tiktoken takes any of several special tokens that begin at one place.
NO_PREFIX = TEXTS.filter(lambda text: "<|endoftext|><|endoftext|>" not in text)


@pytest.mark.parametrize("name", ["gpt2", "cl100k"])
@examples(100)
@given(text=NO_PREFIX)
def test_tiktoken_gives_the_same_ids(encodings, name, text):
    assert encodings[name].encode(text, allowed_special="all") == encode(KINDS[name], text)


@pytest.mark.parametrize("name", ["gpt2", "cl100k"])
def test_tiktoken_round_trip(tmp_path, name):
    vocabulary = KINDS[name]
    path = tmp_path / "x.tiktoken"
    save_tiktoken(vocabulary, path)
    loaded = load_tiktoken(path, name, vocabulary.special_tokens)
    assert loaded == replace(vocabulary, whole_piece_first=True)
    assert loaded == load(path, pattern=name, special_tokens=vocabulary.special_tokens)
    save_tiktoken(loaded, tmp_path / "again.tiktoken")
    assert path.read_bytes() == (tmp_path / "again.tiktoken").read_bytes()
    appended = load_tiktoken(path, name, ["<|x|>", "<|y|>"])
    largest = max(vocabulary.tokens)
    assert dict(appended.special_tokens) == {"<|x|>": largest + 1, "<|y|>": largest + 2}


RANKS = st.sets(st.binary(min_size=2, max_size=6).map(lambda b: b.translate(b"ab " * 85 + b"a")))


@examples(150)
@given(
    tokens=RANKS.flatmap(lambda tokens: st.permutations(sorted(tokens))),
    step=st.sampled_from([1, 5]),
    texts=st.lists(st.text(st.sampled_from("aab "), max_size=24), min_size=8, max_size=8),
)
def test_any_ranks_are_read_as_tiktoken_does(tmp_path_factory, tokens, step, texts):
    """Also those that no training would give: a token of lower rank than its parts."""
    path = tmp_path_factory.getbasetemp() / "any.tiktoken"
    ranks = {token: step * place for place, token in enumerate([*tokens, b"a", b"b", b" "])}
    path.write_text("".join(f"{base64.b64encode(t).decode()} {r}\n" for t, r in ranks.items()))
    vocabulary = load_tiktoken(path, r"[^x]+")
    assert vocabulary.whole_piece_first
    peer = tiktoken_of(path, vocabulary)
    for text in texts:
        assert encode(vocabulary, text) == peer.encode(text)


@examples(150)
@given(vocabulary=any_vocabulary(), texts=st.lists(SHORT_TEXTS, min_size=5, max_size=5))
def test_any_vocabulary_that_ranks_can_say_is_read_alike(tmp_path_factory, vocabulary, texts):
    vocabulary = replace(vocabulary, special_tokens={})
    path = tmp_path_factory.getbasetemp() / "said.tiktoken"
    try:
        save_tiktoken(vocabulary, path, overwrite=True)
    except ValueError:
        event("refused")
        return
    peer = tiktoken_of(path, vocabulary)
    for text in texts:
        assert peer.encode(text) == encode(vocabulary, text)


@examples(100)
@given(RANKS.flatmap(lambda tokens: st.permutations(sorted(tokens))))
def test_recovered_merges_are_the_last_of_merging_by_rank(tokens):
    """The same by the book: join the lowest rank, and again, until two parts are left."""
    ranks = {token: rank for rank, token in enumerate(tokens)}
    expected = []
    for token in tokens:
        word = [bytes([byte]) for byte in token]
        while len(word) > 2:
            joined = [
                (ranks[word[place] + word[place + 1]], place)
                for place in range(len(word) - 1)
                if word[place] + word[place + 1] in ranks
            ]
            if not joined:
                break
            _, place = min(joined)
            word[place : place + 2] = [word[place] + word[place + 1]]
        if len(word) == 2:
            expected.append(tuple(word))
    assert recover_merges(dict(enumerate(tokens))) == expected


def test_a_long_token_takes_no_time():
    tokens = [b"ab" * 2**power for power in range(15)] + [b"ab" * 32_767]
    assert len(recover_merges(dict(enumerate(tokens)))) == 15


@pytest.mark.parametrize(
    ("change", "culprit"),
    [
        ({"merges": GPT2.merges[::-1]}, "is merged after"),
        ({"merges": GPT2.merges[:-1]}, "by no merge"),
        ({"tokens": {**GPT2.tokens, 999: b"zzz"}}, "nor taken whole"),
        ({"tokens": {**GPT2.tokens, 999: b"the sun"}}, "by no merge"),
    ],
)
def test_what_ranks_cannot_say(tmp_path, change, culprit):
    with pytest.raises(ValueError, match=rf"cannot say .*{culprit}.*; write a tokenizer\.json"):
        save_tiktoken(replace(GPT2, **change), tmp_path / "x.tiktoken")
    assert not any(tmp_path.iterdir())


def test_ranks_cannot_say_that_two_merges_make_one_token(tmp_path):
    tokens = dict(enumerate([b"a", b"b", b"ab", b"ba", b"aba"]))
    merges = ((b"a", b"b"), (b"b", b"a"), (b"ab", b"a"), (b"a", b"ba"))
    with pytest.raises(ValueError, match="two merges make b'aba'"):
        save_tiktoken(Vocabulary(tokens, merges), tmp_path / "x.tiktoken")


def test_ranks_cannot_say_that_a_merge_makes_a_special_token(tmp_path):
    vocabulary = replace(TINY, special_tokens={"ab": 2})
    with pytest.raises(ValueError, match="special token is part of the merge of b'a' and b'b'"):
        save_tiktoken(vocabulary, tmp_path / "x.tiktoken")


@pytest.mark.parametrize(
    ("content", "culprit"),
    [
        (b"", "no tokens"),
        (b"\n\n", "no tokens"),
        (b"YQ==\n", "line 1"),
        (b"YQ== \n", "line 1"),
        (b"YQ== x\n", "line 1"),
        (b"YQ== -1\n", "line 1"),
        (b"YQ== 1.0\n", "line 1"),
        (b"YQ== 1_0\n", "line 1"),
        (b"YQ== 1 2\n", "line 1"),
        (b"YQ==  1\n", "line 1"),
        (b"YQ==\t1\n", "line 1"),
        (b"YQ== 99999999999\n", "line 1"),
        (b"YQ== 9999999999\n", "out of range"),
        (b"YQ== 0\nYQ 1\n", "line 2"),
        (b"YQ== 0\nYg=! 1\n", "line 2"),
        (b"YQ== 0\nYg==YQ== 1\n", "line 2"),
        (b"YQ== 0\n\x00 1\n", "line 2"),
        (b"YQ== 0\n\xff\xfe 1\n", "line 2"),
        (b"YQ== 0\nYg== 0\n", "second time"),
        (b"YQ== 0\nYQ== 1\n", "both b'a'"),
        (b"YQ== 0\n 1\n", "empty"),
        (b"YQ== 0\nYWI= 1\n", "needs b'b'"),
        (base64.b64encode(b"a" * 1_000_000) + b" 0\n", "1,000,000 bytes"),
    ],
)
def test_damaged_ranks(tmp_path, content, culprit):
    path = tmp_path / "x.tiktoken"
    path.write_bytes(content)
    assert culprit in refusal(load_tiktoken, path, "gpt2")


def test_ranks_may_have_holes_crlf_and_no_last_line_end(tmp_path):
    path = tmp_path / "x.tiktoken"
    path.write_bytes(b"YQ== 5\r\n\r\nYg== 0\r\nYWI= 77")
    vocabulary = load_tiktoken(path, "gpt2", {"<x>": 1000})
    assert dict(vocabulary.tokens) == {5: b"a", 0: b"b", 77: b"ab", 1000: b"<x>"}
    assert vocabulary.merges == ((b"a", b"b"),)
    assert "5" in refusal(load_tiktoken, path, "gpt2", {"<x>": 5})


# --- whatever the format -------------------------------------------------------------------------


LOADERS = {
    "tokenizer.json": load_tokenizer_json,
    "vocab.json": lambda path: load_gpt2(path, path),
    "x.tiktoken": lambda path: load_tiktoken(path, "gpt2"),
}


@pytest.mark.parametrize("name", LOADERS)
def test_what_is_no_file(tmp_path, name):
    path = tmp_path / name
    assert "does not exist" in refusal(LOADERS[name], path)
    path.mkdir()
    assert "is a folder" in refusal(LOADERS[name], path)
    path.rmdir()
    os.mkfifo(path)  # nobody writes: reading it would wait forever
    assert "pipe" in refusal(LOADERS[name], path)
    path.unlink()
    path.write_bytes(b"\xff\xfe{}")
    refusal(LOADERS[name], path)
    assert "cannot be read" in refusal(LOADERS[name], f"{path}\x00")
    assert "cannot be read" in refusal(LOADERS[name], path / "below")


def test_merges_that_are_no_file(tmp_path):
    (tmp_path / "vocab.json").write_text("{}")
    assert "merges.txt does not exist" in refusal(load, tmp_path)
    (tmp_path / "merges.txt").write_bytes(b"\xff")
    assert "merges.txt is not UTF-8 at byte 0" in refusal(load, tmp_path)


def test_every_truncated_file_is_refused(tmp_path):
    special = [*TINY.special_tokens]
    save_tokenizer_json(TINY, tmp_path / "tokenizer.json")
    save_gpt2(TINY, tmp_path / "vocab.json", tmp_path / "merges.txt")
    for name in ("tokenizer.json", "vocab.json"):
        path = tmp_path / name
        whole = path.read_bytes()
        for size in range(len(whole)):
            path.write_bytes(whole[:size])
            if name == "tokenizer.json":
                refusal(load_tokenizer_json, path)
            else:
                refusal(load_gpt2, path, tmp_path / "merges.txt", special)
        path.write_bytes(whole)


def test_truncated_lines_are_refused(tmp_path):
    """At the end of a line, and of the last, there is nothing to see."""
    save_gpt2(GPT2, tmp_path / "vocab.json", tmp_path / "merges.txt")
    save_tiktoken(GPT2, tmp_path / "x.tiktoken")
    for name in ("merges.txt", "x.tiktoken"):
        path = tmp_path / name
        whole = path.read_bytes()
        lines = whole.splitlines(keepends=True)
        beginning = b"".join(lines[:-3])
        for size in range(len(beginning) + 1, len(whole)):
            is_line = whole[size - 1 : size] == b"\n" or whole[size : size + 1] == b"\n"
            path.write_bytes(whole[:size])
            if is_line:
                load(path if name == "x.tiktoken" else tmp_path, special_tokens=SPECIAL)
            else:
                refusal(load, path if name == "x.tiktoken" else tmp_path)
        path.write_bytes(whole)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=3), values),
    max_leaves=5,
)


@examples(200)
@given(data=st.data())
def test_any_change_is_refused_or_read(tmp_path_factory, tiny, data):
    """No error but ours, whatever stands wherever."""
    where, place = [], tiny
    while isinstance(place, (dict, list)) and place and (not where or data.draw(st.booleans())):
        keys = [*place] if isinstance(place, dict) else range(len(place))
        where.append(data.draw(st.sampled_from(keys)))
        place = place[where[-1]]
    path = tmp_path_factory.getbasetemp() / "changed.json"
    path.write_text(json.dumps(changed(tiny, where, data.draw(JSON_VALUES))))
    with suppress(FileError):
        assert isinstance(load_tokenizer_json(path), Vocabulary)


@pytest.mark.parametrize("depth", [*range(50, 1000, 50), 100_000])
def test_deep_nesting_ends_in_a_sentence(tmp_path, depth):
    for where in ("normalizer", "added_tokens", "model", "version"):
        path = tmp_path / where
        path.write_text(f'{{"{where}": ' + '{"type": ' * depth + "[" * depth + "]" * depth)
        refusal(load_tokenizer_json, path)
        path.write_text(f'{{"{where}": ' + "[" * depth + "]" * depth + "}")
        refusal(load_tokenizer_json, path)


def test_existing_files_are_kept_unless_asked(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    for save, paths in (
        (save_tokenizer_json, [first]),
        (save_tiktoken, [first]),
        (save_gpt2, [first, second]),
    ):
        first.write_text("mine")
        with pytest.raises(FileExistsError, match="already exists"):
            save(TINY, *paths)
        assert first.read_text() == "mine"
        save(TINY, *paths, overwrite=True)
        assert first.read_text() != "mine"
    first.unlink()
    with pytest.raises(FileExistsError, match="already exists"):
        save_gpt2(TINY, first, second)
    assert not first.exists(), "both files or none"


@pytest.mark.skipif(not DATA.is_dir(), reason="GPT-2's own files are not part of the project")
def test_gpt2_itself(tmp_path):
    end = "<|endoftext|>"
    vocabulary = load_gpt2(DATA / "gpt2_vocab.json", DATA / "gpt2_merges.txt", [end])
    assert len(vocabulary.tokens) == 50_257
    assert vocabulary.special_tokens[end] == 50_256
    save_tokenizer_json(vocabulary, tmp_path / "tokenizer.json")
    save_tiktoken(vocabulary, tmp_path / "gpt2.tiktoken")  # which recovers the merges to compare
    model = tokenizers.models.BPE.from_file(
        str(DATA / "gpt2_vocab.json"), str(DATA / "gpt2_merges.txt")
    )
    theirs = tokenizers.Tokenizer(model)
    theirs.pre_tokenizer = BYTE_LEVEL
    theirs.add_special_tokens([end])
    ours = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    ranks = tiktoken_of(tmp_path / "gpt2.tiktoken", vocabulary)
    text = end.join(CORPUS)
    expected = theirs.encode(text).ids
    assert ours.encode(text).ids == expected
    assert ranks.encode(text, allowed_special="all") == expected
    assert encode(vocabulary, text) == expected
    assert load_tokenizer_json(tmp_path / "tokenizer.json") == vocabulary
