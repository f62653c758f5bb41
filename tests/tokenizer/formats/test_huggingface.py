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
from tests.tokenizer.published import ENCODER_PY, PUBLISHED
from tilth.tokenizer import Tokenizer, reference
from tilth.tokenizer.formats import (
    gpt2,
    huggingface,
    load_tokenizer_json,
    save_tokenizer_json,
)
from tilth.tokenizer.patterns import describe
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


@pytest.mark.parametrize(
    ("pre_tokenizer", "pattern"),
    [
        (BYTE_LEVEL, "gpt2"),
        (split_and_byte_level(ENCODER_PY), "gpt2"),
        (split_and_byte_level(reference.GPT2_PATTERN), "gpt2"),
        (split_and_byte_level(huggingface._CL100K), "cl100k"),
        *(
            (split_and_byte_level(*PUBLISHED[name]), name)
            for name in ("o200k", "llama3", "qwen2", "deepseek-v3", "tekken")
        ),
        (before_byte_level(pre_tokenizers.Digits(True), use_regex=True), "starcoder"),
        (split_and_byte_level(r"\p{N}", ENCODER_PY), "starcoder"),
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


def byte_level(add_prefix_space, use_regex):
    return pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space, use_regex=use_regex)


LLAMA3 = PUBLISHED["llama3"][0]
DEEPSEEK_LLM = (
    r"[\r\n]",
    r"\s?[A-Za-zµÀ-ÖØ-öø-ƺ]+",
    r"\s?[!-/:-~！-／：-～]+",
    r"\s+$",
    r"[一-龥가-힣]+",
)
PRE_TOKENIZERS = {
    "gpt2 with a blank": byte_level(True, True),
    "one piece": byte_level(False, False),
    "one piece with a blank": byte_level(True, False),
    "digits, then gpt2 with a blank": pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(True), byte_level(True, True)]
    ),
    "a blank before each piece": pre_tokenizers.Sequence(
        [isolated(tokenizers.Regex(r"[aeiou]+|\s+")), byte_level(True, False)]
    ),
    "not native, with a blank": pre_tokenizers.Sequence(
        [isolated(tokenizers.Regex(r"[a-z]+?\s")), byte_level(True, True)]
    ),
    "not native": split_and_byte_level(r"[a-z]+?\s", LLAMA3),
    "inverted": pre_tokenizers.Sequence(
        [pre_tokenizers.Split(tokenizers.Regex("[aeiou]+"), "isolated", True), BYTE_LEVEL]
    ),
    "removed": pre_tokenizers.Sequence(
        [pre_tokenizers.Split(tokenizers.Regex(LLAMA3), "removed", True), byte_level(False, False)]
    ),
    "nested": pre_tokenizers.Sequence(
        [pre_tokenizers.Sequence([pre_tokenizers.Digits(True)]), split_and_byte_level(LLAMA3)]
    ),
    "deepseek-llm": pre_tokenizers.Sequence(
        [
            *(isolated(tokenizers.Regex(step)) for step in DEEPSEEK_LLM),
            pre_tokenizers.Digits(True),
            byte_level(False, False),
        ]
    ),
    "line ends as they are": split_and_byte_level(
        *(step.replace(r"\r\n", "\r\n") for step in PUBLISHED["deepseek-v3"])
    ),
}


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """Each pre-tokenizer in a tokenizer of Hugging Face, and the same file opened by tilth."""
    folder = tmp_path_factory.mktemp("pre_tokenizers")
    pairs = {}
    for name, pre_tokenizer in PRE_TOKENIZERS.items():
        peer = theirs(pre_tokenizer)
        end = peer.token_to_id("<|endoftext|>")
        peer.post_processor = processors.Sequence(
            [
                processors.ByteLevel(trim_offsets=False),
                processors.TemplateProcessing(
                    single="<|endoftext|> $A <|endoftext|>", special_tokens=[("<|endoftext|>", end)]
                ),
            ]
        )
        peer.save(str(folder / "theirs.json"))
        vocabulary = load_tokenizer_json(folder / "theirs.json")
        save_tokenizer_json(vocabulary, folder / "ours.json", overwrite=True)
        assert load_tokenizer_json(folder / "ours.json") == vocabulary
        again = tokenizers.Tokenizer.from_file(str(folder / "ours.json"))
        pairs[name] = peer, again, Tokenizer.from_vocabulary(vocabulary)
    return pairs


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
@examples(20)
@given(text=st.lists(TEXTS, max_size=3).map("<|endoftext|>".join))
def test_pre_tokenizers(opened, name, text):
    """Ids, offsets and decoded text, with and without special tokens, by every method."""
    peer, again, tokenizer = opened[name]
    plain, framed = (peer.encode(text, add_special_tokens=add) for add in (False, True))
    assert tokenizer.encode(text) == plain.ids
    assert tokenizer.encode(text.encode()) == plain.ids
    assert tokenizer.encode(text, add_special_tokens=True) == framed.ids
    assert again.encode(text).ids == framed.ids
    assert tokenizer.encode_with_offsets(text) == (plain.ids, plain.offsets)
    found = tokenizer.encode_with_offsets(text, add_special_tokens=True)
    assert found == (framed.ids, framed.offsets)
    assert tokenizer.decode(plain.ids) == peer.decode(plain.ids, skip_special_tokens=False)
    for add, expected in ((False, plain.ids), (True, framed.ids)):
        assert tokenizer.encode_array(text, add_special_tokens=add).tolist() == expected
        assert tokenizer.encode_batch([text, text], add_special_tokens=add) == [expected] * 2
        assert tokenizer.count(text, add_special_tokens=add) == len(expected)
        halves = [text[: len(text) // 2], text[len(text) // 2 :]]
        assert [*tokenizer.encode_iterable(halves, add_special_tokens=add)] == expected
    ids, ends = tokenizer.encode_documents([text, ""])
    ordinary = tokenizer.encode_ordinary(text)
    end = tokenizer.special_tokens["<|endoftext|>"]
    assert (ids.tolist(), ends.tolist()) == ([*ordinary, end, end], [len(ids) - 1, len(ids)])


def test_patterns_of_pre_tokenizers(opened):
    patterns = {name: tokenizer.pattern for name, (_, _, tokenizer) in opened.items()}
    assert patterns["removed"] == "llama3"
    assert patterns["line ends as they are"] == "deepseek-v3"
    assert patterns["one piece"] == r"[\s\S]+"
    assert patterns["deepseek-llm"][3:] == (r"\s+(?![^\n])", DEEPSEEK_LLM[4], r"\p{N}")


def test_complete_patterns_match_every_character():
    """So dropping the text between matches drops nothing."""
    text = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000)
    for step in huggingface._COMPLETE:
        pattern = reference.PATTERNS.get(step, step)
        assert regex.sub(pattern, "", text) == ""


def test_a_note_for_a_pattern_that_is_not_native(tmp_path, opened, caplog):
    for name, count in (("not native", 1), ("inverted", 0)):
        caplog.clear()
        opened[name][1].save(str(tmp_path / "tokenizer.json"))
        Tokenizer.load(tmp_path)
        assert caplog.text.count("is not native; regex is slower") == count


@pytest.mark.parametrize(
    "processor",
    [
        processors.RobertaProcessing(("<a b>", 1), ("<|endoftext|>", 0), trim_offsets=False),
        processors.BertProcessing(("<a b>", 1), ("<|endoftext|>", 0)),
        processors.TemplateProcessing(
            single=["<a b>", "<|endoftext|>", "$A:1", "<a b>:1"],
            special_tokens=[("<a b>", 1), ("<|endoftext|>", 0)],
        ),
        processors.Sequence(
            [
                processors.TemplateProcessing(
                    single=["<a b>", "$0"], special_tokens=[("<a b>", 1)]
                ),
                processors.ByteLevel(trim_offsets=False),
            ]
        ),
    ],
    ids=["roberta", "bert", "template", "sequence"],
)
def test_post_processors(tmp_path, processor):
    peer = theirs(BYTE_LEVEL)
    peer.post_processor = processor
    path = tmp_path / "tokenizer.json"
    peer.save(str(path))
    tokenizer = Tokenizer.load(path)
    tokenizer.save(tmp_path / "again.json")
    again = tokenizers.Tokenizer.from_file(str(tmp_path / "again.json"))
    for text in ("", "the sun", "<a b> x"):
        expected = peer.encode(text)
        found = tokenizer.encode_with_offsets(text, add_special_tokens=True)
        assert found == (expected.ids, expected.offsets)
        assert tokenizer.encode(text) == peer.encode(text, add_special_tokens=False).ids
        assert again.encode(text).ids == expected.ids
    template = tokenizer.template
    assert again.encode("a", "b").ids == [
        tokenizer.id(token) if token in tokenizer.special_tokens else token
        for text in "ab"
        for token in (*template.before, tokenizer.id(text), *template.after)
    ]
    assert Tokenizer.load(tmp_path / "again.json") == tokenizer


SEQUENCE = {"Sequence": {"id": "A", "type_id": 0}}


def model_file(pattern, first=(), added=(), *, holes=0, **settings):
    """A file in the form of a model's: special tokens first in the vocab, then added ones."""
    vocab, merges = reference.train(CORPUS, 400, [], "cl100k")
    spelled = [gpt2.spell(token) for token in vocab.values()]
    ids = {token: i for i, token in enumerate([*first, *spelled])}
    ids |= {token: len(ids) + 10 + i for i, token in enumerate(added[:holes])}  # ids with a gap
    next_id, entries = len(ids), []
    for token in [*first, *added]:
        entries.append({"id": ids.get(token, next_id), "content": token})
        next_id += token not in ids
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    model = {"type": "BPE", "dropout": None, "unk_token": None, "fuse_unk": False}
    model |= {"continuing_subword_prefix": "", "end_of_word_suffix": "", "byte_fallback": False}
    model["merges"] = [" ".join(map(gpt2.spell, merge)) for merge in merges]
    splits = [
        {"type": "Split", "pattern": {"Regex": step}, "behavior": "Isolated", "invert": False}
        for step in PUBLISHED[pattern]
    ]
    if pattern == "starcoder":
        splits = [{"type": "Digits", "individual_digits": True}]
    use_regex = pattern == "starcoder"
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [entry | flags | {"special": True} for entry in entries],
        "normalizer": settings.get("normalizer"),
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                *(split | settings.get("split", {}) for split in splits),
                byte_level | {"use_regex": use_regex},
            ],
        },
        "post_processor": settings.get("post_processor"),
        "decoder": byte_level | {"add_prefix_space": True, "use_regex": True},
        "model": model | settings.get("model", {}) | {"vocab": ids},
    }


def begin(token, token_id):
    pieces = [{"SpecialToken": {"id": token, "type_id": 0}}, SEQUENCE]
    special = {token: {"id": token, "ids": [token_id], "tokens": [token]}}
    kind = "TemplateProcessing"
    return {"type": kind, "single": pieces, "pair": pieces, "special_tokens": special}


AFTER = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
RESERVED = [f"<|reserved_special_token_{i}|>" for i in range(247)]
MODELS = {
    "Llama 3": model_file(
        "llama3",
        added=["<|begin_of_text|>", "<|end_of_text|>", *RESERVED],
        model={"ignore_merges": True},
        post_processor={
            "type": "Sequence",
            "processors": [AFTER, begin("<|begin_of_text|>", 400)],
        },
    ),
    "DeepSeek V3": model_file(
        "deepseek-v3",
        first=["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"],
        added=["<｜User｜>", "<think>"],
        normalizer={"type": "Sequence", "normalizers": []},
        post_processor=AFTER,
    ),
    "StarCoder": model_file("starcoder", first=["<|endoftext|>", "<fim_prefix>"]),
    "gpt-oss": model_file(
        "o200k",
        added=["<|startoftext|>", "<|endoftext|>", *RESERVED[:18], "<|endofprompt|>"],
        model={"ignore_merges": True},
        post_processor=AFTER,
    ),
    "Phi-4": model_file(
        "llama3",
        added=["<|dummy_0|>", "<|endoftext|>", "<|fim_prefix|>", "<|im_start|>"],
        holes=4,
        split={"behavior": "Removed", "invert": True},
    ),
    "Mistral": model_file(
        "tekken",
        first=["<unk>", "<s>", "</s>", *(f"<SPECIAL_{i}>" for i in range(3, 100))],
        model={"ignore_merges": True},
        post_processor=begin("<s>", 1),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_files_in_the_form_of_models(tmp_path, name):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(MODELS[name]))
    tokenizer, peer = Tokenizer.load(path), tokenizers.Tokenizer.from_file(str(path))
    tokenizer.save(tmp_path / "again.json")
    again = tokenizers.Tokenizer.from_file(str(tmp_path / "again.json"))
    assert Tokenizer.load(tmp_path / "again.json") == tokenizer
    special = [*tokenizer.special_tokens]
    for text in [*CORPUS, "".join(special), " x ".join(special), *special[-1:]]:
        for add in (False, True):
            expected = peer.encode(text, add_special_tokens=add)
            found = tokenizer.encode_with_offsets(text, add_special_tokens=add)
            assert found == (expected.ids, expected.offsets)
            assert again.encode(text, add_special_tokens=add).ids == expected.ids
        assert tokenizer.decode(expected.ids) == peer.decode(
            expected.ids, skip_special_tokens=False
        )
    assert all(tokenizer.id(token) == peer.token_to_id(token) for token in special)
    assert tokenizer.vocab_size == max(peer.get_vocab().values()) + 1


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("model", "dropout"), 0.0),
        (("model", "unk_token"), "<|endoftext|>"),
        (("model", "byte_fallback"), True),
        (("model", "fuse_unk"), True),
        (("model", "ignore_merges"), False),
        (("padding",), {"strategy": "BatchLongest", "direction": "Left", "pad_id": 0}),
        (("version",), "1.0"),
        (("decoder",), None),
    ],
)
def test_settings_without_effect(tmp_path, where, value):
    """All bytes are tokens, so there is nothing to replace."""
    peer = theirs(BYTE_LEVEL)
    path = tmp_path / "tokenizer.json"
    content = changed(json.loads(peer.to_str()), where, value)
    if where == ("padding",):
        content["padding"] |= PADDING | value
    path.write_text(json.dumps(content))
    peer = tokenizers.Tokenizer.from_file(str(path))
    tokenizer = Tokenizer.load(path)
    for text in CORPUS:
        assert tokenizer.encode(text) == peer.encode(text).ids


SPLIT = ("pre_tokenizer", "pretokenizers", 0)
SECOND = ("pre_tokenizer", "pretokenizers", 1)
DIGITS = {"type": "Digits", "individual_digits": True}
WRITTEN = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
PREFIXED = {"type": "ByteLevel", "add_prefix_space": True, "use_regex": False}
GPT2_SPLIT = {"type": "Split", "pattern": {"Regex": ENCODER_PY}, "behavior": "Isolated"}
REMOVED = {"behavior": "Removed", "invert": True}
PADDING = {
    "strategy": "BatchLongest",
    "direction": "Right",
    "pad_to_multiple_of": None,
    "pad_id": 0,
    "pad_type_id": 0,
    "pad_token": "<pad>",
}
TOKEN = {"SpecialToken": {"id": "<|e|>", "type_id": 0}}
ROBERTA = {"type": "RobertaProcessing", "sep": ["<|e|>", 3], "cls": ["<|e|>", 3]}


def template(single, token=None):
    special = {} if token == {} else {"<|e|>": token or {"ids": [3], "tokens": ["<|e|>"]}}
    kind = "TemplateProcessing"
    return {"type": kind, "single": single, "pair": [], "special_tokens": special}


@pytest.mark.parametrize(
    ("where", "value", "culprit"),
    [
        (("version",), "2.0", "version"),
        (("truncation",), {"max_length": 5}, "truncation"),
        (("normalizer",), {"type": "Lowercase"}, "the normalizer is 'Lowercase'"),
        (("normalizer",), {"type": "NFC", "surprise": 1}, "surprise"),
        (("normalizer",), {"type": ["NFC"]}, "NFC"),
        (("normalizer",), "NFC", "NFC"),
        (("normalizer",), {"type": "Sequence"}, "normalizers"),
        (("normalizer",), {"type": "Sequence", "normalizers": [None]}, "None"),
        (("normalizer",), {"type": "Sequence", "normalizers": [{"type": "Nmt"}]}, "Nmt"),
        (("normalizer",), {"type": "Sequence", "normalizers": [{"type": "NFC"}] * 17}, "at most"),
        (("padding",), {"strategy": {"Fixed": 5}}, "the padding says 'strategy'"),
        (("padding",), PADDING | {"pad_to_multiple_of": 8}, "pad_to_multiple_of"),
        (("padding",), 5, "padding"),
        (("post_processor",), {"type": "Other"}, "'Other'"),
        (("post_processor",), {"type": "Sequence", "processors": 5}, "processors of the post_pro"),
        (("post_processor",), {"type": "Sequence", "processors": [{"type": "X"}]}, "'X'"),
        (("post_processor",), template([]), "leaves out the text"),
        (("post_processor",), template([SEQUENCE, SEQUENCE]), "Sequence A once"),
        (("post_processor",), template([{"Sequence": {"id": "B", "type_id": 0}}]), "Sequence A"),
        (("post_processor",), template([TOKEN, SEQUENCE], {}), "adds None, which differs"),
        (
            ("post_processor",),
            template([TOKEN, SEQUENCE], {"ids": [2], "tokens": ["<|e|>"]}),
            "ids",
        ),
        (
            ("post_processor",),
            template([TOKEN, SEQUENCE], {"ids": [0], "tokens": ["a"]}),
            "differs",
        ),
        (("post_processor",), template([TOKEN, SEQUENCE], {"ids": [], "tokens": []}), "differs"),
        (("post_processor",), template(5), "single"),
        (("post_processor",), {"type": "Sequence", "processors": [ROBERTA] * 2}, "twice"),
        (("post_processor",), ROBERTA | {"sep": ["<|e|>", 4]}, "'<|e|>', 4.*differs"),
        (("decoder",), {"type": "WordPiece"}, "WordPiece"),
        (("surprise",), 1, "surprise"),
        (("model",), None, "model"),
        (("model", "type"), "Unigram", "Unigram"),
        (("model", "dropout"), 0.1, "dropout"),
        (
            ("model", "unk_token"),
            "<unk>",
            "'unk_token': '<unk>' for the 254 bytes that are not tok",
        ),
        (("model", "continuing_subword_prefix"), "##", "continuing_subword_prefix"),
        (("model", "end_of_word_suffix"), "</w>", "end_of_word_suffix"),
        (("model", "byte_fallback"), True, "'byte_fallback': True for the 254 bytes"),
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
        (("added_tokens", 0, "id"), None, "the id None"),
        (("added_tokens", 0, "id"), True, "the id True"),
        (("added_tokens", 0, "content"), "", "token 4 is 0 bytes"),
        (("added_tokens", 0, "content"), None, "None"),
        (("pre_tokenizer",), None, "pre_tokenizer"),
        (("pre_tokenizer",), {"type": "Whitespace"}, "Whitespace"),
        (("pre_tokenizer",), {"type": "ByteLevel"}, "add_prefix_space"),
        (("pre_tokenizer",), {"type": "ByteLevel", "add_prefix_space": 1}, "add_prefix_space"),
        (("pre_tokenizer", "pretokenizers"), [], "Sequence"),
        (("pre_tokenizer", "pretokenizers"), 5, "pretokenizers of the pre_tokenizer is 5"),
        (("pre_tokenizer", "pretokenizers"), [5], "Sequence' with 5"),
        (("pre_tokenizer", "pretokenizers"), [{"type": "Digits"}], "'Digits' at the end"),
        (("pre_tokenizer", "pretokenizers"), [WRITTEN, WRITTEN], "pre_tokenizer 1 .*'ByteLevel'"),
        (("pre_tokenizer", "pretokenizers"), [DIGITS] * 16 + [WRITTEN], "more than 16 parts"),
        (("pre_tokenizer", "pretokenizers"), [GPT2_SPLIT, PREFIXED], "'add_prefix_space': True"),
        (SPLIT, {"type": "Digits"}, "individual_digits"),
        (SPLIT, DIGITS | {"individual_digits": 1}, "individual_digits"),
        (SPLIT, DIGITS | {"surprise": 1}, "surprise"),
        ((*SPLIT, "type"), "Punctuation", "Punctuation"),
        ((*SPLIT, "behavior"), "Removed", "Removed"),
        ((*SPLIT, "behavior"), "MergedWithNext", "MergedWithNext"),
        ((*SPLIT, "behavior"), "Contiguous", "Contiguous"),
        (
            SPLIT,
            GPT2_SPLIT | REMOVED | {"pattern": {"Regex": "a+"}},
            "removes the text that its pat",
        ),
        (SPLIT, GPT2_SPLIT | REMOVED | {"pattern": {"String": "a"}}, "removes the text"),
        ((*SPLIT, "pattern"), {"String": ""}, "empty string"),
        ((*SPLIT, "pattern"), {"String": "gpt2"}, "name of another"),
        ((*SPLIT, "pattern"), {"String": "\ud800"}, "differently"),
        ((*SPLIT, "pattern"), {"String": " ", "Regex": " "}, "as a Regex or a String"),
        ((*SPLIT, "pattern"), {"String": 5}, "as a Regex or a String"),
        ((*SPLIT, "pattern"), "x", "pattern"),
        ((*SPLIT, "pattern", "Regex"), reference.CL100K_PATTERN, r"\{1,3\}"),
        ((*SPLIT, "pattern", "Regex"), r"^\S+|\s+", r"\^"),
        ((*SPLIT, "pattern", "Regex"), "gpt2", "name of another"),
        ((*SPLIT, "pattern", "Regex"), "o200k", "name of another"),
        ((*SECOND, "use_regex"), 1, "use_regex"),
    ],
)
def test_unsupported_settings_are_named(tmp_path, tiny, where, value, culprit):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(tiny))
    load_tokenizer_json(path)
    path.write_text(json.dumps(changed(tiny, where, value)))
    assert regex.search(culprit, refusal(load_tokenizer_json, path).removeprefix(str(path)))


def test_ids_of_added_tokens(tmp_path, tiny, caplog):
    path = tmp_path / "tokenizer.json"
    entry = tiny["added_tokens"][0]
    entries = [entry, entry | {"content": "<x>", "id": 4}, entry | {"content": "<y>", "id": 5}]
    path.write_text(json.dumps(changed(tiny, ["added_tokens"], entries)))
    vocabulary = load_tokenizer_json(path)
    assert tokenizers.Tokenizer.from_file(str(path)).encode("<x><y><|e|>").ids == [4, 5, 3]
    assert encode(vocabulary, "<x><y><|e|>") == [4, 5, 3]
    # They are not in the model, so `tokenizers` ignores the ids of the file and takes the next.
    for ids in ([3, 9, 11], [3, 11, 9], [2, 4, 4], [3, 4, 9]):
        numbered = [entry | {"id": i} for entry, i in zip(entries, ids, strict=True)]
        path.write_text(json.dumps(changed(tiny, ["added_tokens"], numbered)))
        assert tokenizers.Tokenizer.from_file(str(path)).encode("<x><y><|e|>").ids == [4, 5, 3]
        caplog.clear()
        assert encode(load_tokenizer_json(path), "<x><y><|e|>") == [4, 5, 3]
        assert "as in Hugging Face" in caplog.text
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
