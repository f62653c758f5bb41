"""GGUF files: llama.cpp is the reference."""

import random
from dataclasses import replace

import numpy as np
import pytest

from tests.formats.models import (
    END,
    REFUSED,
    SHAPE,
    VARIANTS,
    LlamaCpp,
    config_of,
    model_of,
    random_weights,
    tokenizer_of,
    whole_characters,
)
from tilth.config import ModelConfig
from tilth.formats.gguf import PRE_TOKENIZERS, check_model, modelfile, write_gguf
from tilth.formats.model_files import ModelFiles
from tilth.generation import LanguageModel
from tilth.tokenizer import Tokenizer, train_tokenizer

PROMPT = [256, *b"Once upon a time"]
LETTERS = [*" \n\t\r  ''\"aAbZéß1234567890.,!?-_/\\()[]{}<>@#$%^&*+=~|:;"]
LETTERS += [*"中文字あアカ한글لماкириλμνÀÉ　\u00a0\u2003\u200b\u0301\u0e01\u0e31😀👍🏽½²٣"]
LETTERS += ["'s", "'S", "'ll", "'LL", "'ve", "\r\n", "\n\n", "  ", " Hello", "World", "camelCase"]


def texts(seed, count):
    chance = random.Random(seed)
    return ["".join(chance.choices(LETTERS, k=chance.randrange(1, 40))) for _ in range(count)]


def write(path, model, **options):
    with path.open("wb") as file:
        write_gguf(file, model, name="test", **options)
    return path


@pytest.fixture(scope="module")
def crossing():
    """A vocabulary whose tokens cross the ends of pieces: every other split gives other ids."""
    return train_tokenizer(
        texts=texts(1, 4000), vocab_size=2000, special_tokens=[END], pattern=r"[^\r\n]+|[\r\n]+"
    ).vocabulary


def tokenizer_with(vocabulary, pattern):
    is_whole_first = PRE_TOKENIZERS.get(pattern, ("", False))[1]
    return Tokenizer.from_vocabulary(
        replace(vocabulary, pattern=pattern, whole_piece_first=is_whole_first)
    )


def tiny(tokenizer):
    shape = SHAPE | {"vocab_size": tokenizer.vocab_size, "d_model": 32, "num_layers": 1}
    config = ModelConfig(**shape)
    return ModelFiles(config, random_weights(config), tokenizer, END)


@pytest.mark.parametrize("pattern", PRE_TOKENIZERS)
def test_llama_cpp_gives_our_ids(pattern, crossing, tmp_path):
    tokenizer = tokenizer_with(crossing, pattern)
    llama = LlamaCpp(write(tmp_path / "m.gguf", tiny(tokenizer)))
    for text in texts(2, 1000):
        assert llama.encode(text) == tokenizer.encode_ordinary(text), ascii(text)


@pytest.mark.parametrize(("pattern", "other"), [("gpt2", "qwen2"), ("llama3", "qwen2")])
def test_texts_tell_patterns_apart(pattern, other, crossing):
    one, two = (tokenizer_with(crossing, each) for each in (pattern, other))
    differing = [text for text in texts(2, 1000) if one.encode(text) != two.encode(text)]
    assert len(differing) > 20


@pytest.mark.parametrize("variant", VARIANTS)
def test_llama_cpp_chooses_our_greedy_tokens(variant, tmp_path):
    model = model_of(config_of(variant), seed=1)
    llama = LlamaCpp(write(tmp_path / "m.gguf", model))
    own = LanguageModel.from_weights(model.config, model.weights, model.tokenizer, end_token="none")
    stream = own.generate(PROMPT, temperature=0.0, max_tokens=256)
    list(stream)
    assert 256 not in stream.token_ids  # llama.cpp never chooses the end token; with this seed
    assert llama.greedy(PROMPT, 256) == stream.token_ids


@pytest.mark.parametrize("variant", ["untied", "qwen3"])
def test_q8_0_is_within_a_percent(variant, tmp_path):
    model = model_of(config_of(variant), whole_characters())
    ids = np.random.default_rng(0).integers(0, 256, 40).tolist()
    means = {}
    for name, options in {"F32": {}, "Q8_0": {"quantize": "q8_0"}}.items():
        llama = LlamaCpp(write(tmp_path / f"{name}.gguf", model, **options))
        found = [llama.log_probability(ids[:end], ids[end]) for end in range(1, len(ids))]
        means[name] = np.mean(found)
    own = LanguageModel.from_weights(model.config, model.weights, model.tokenizer)
    rows = own.decoder(1).extend([ids[:-1]], every=True)[0].astype(np.float64)
    rows -= np.log(np.exp(rows).sum(axis=1, keepdims=True))
    ours = np.mean(rows[np.arange(len(ids) - 1), ids[1:]])
    assert means["F32"] == pytest.approx(ours, abs=1e-4)
    assert means["Q8_0"] == pytest.approx(means["F32"], rel=0.01)


@pytest.mark.parametrize(
    "options",
    [{"dtype": "bfloat16"}, {"dtype": "float16"}]
    + [{"quantize": each} for each in ("q4_0", "q4_1", "q5_0", "q5_1")],
    ids=str,
)
def test_other_types_load_and_are_near(options, tmp_path):
    model = model_of(config_of("untied"), whole_characters())
    llama = LlamaCpp(write(tmp_path / "m.gguf", model, **options))
    own = LanguageModel.from_weights(model.config, model.weights, model.tokenizer)
    row = own.decoder(1).extend([PROMPT])[0, 0].astype(np.float64)
    expected = row[65] - np.log(np.exp(row).sum())
    assert llama.log_probability(PROMPT, 65) == pytest.approx(expected, abs=0.5)


def test_rows_without_a_token_are_padded(tmp_path):
    config = ModelConfig(**{**SHAPE, "vocab_size": 310})
    llama = LlamaCpp(write(tmp_path / "m.gguf", model_of(config)))
    assert llama.encode("the end") == tokenizer_of().encode("the end")


@pytest.mark.parametrize("name", REFUSED)
def test_variants_are_refused(name):
    with pytest.raises(ValueError, match=rf"llama\.cpp cannot express {name}"):
        check_model(ModelConfig(**{**SHAPE, **REFUSED[name]}), tokenizer_of())


@pytest.mark.parametrize("pattern", ["o200k", "tekken", r"\S+"])
def test_patterns_without_equal_pre_tokenizer_are_refused(pattern):
    with pytest.raises(ValueError, match="no pre-tokenizer for the pattern"):
        check_model(config_of("untied"), tokenizer_of(pattern=pattern))


def test_tokens_that_reveal_a_difference_are_refused(crossing):
    tokens = {i: bytes([i]) for i in range(256)} | {256: b"\n "}
    cl100k = Tokenizer(tokens, [(b"\n", b" ")], [END], pattern="cl100k")
    with pytest.raises(ValueError, match="crosses it, so ids would differ"):
        check_model(config_of("untied"), cl100k)
    # The contraction of a long s: a piece that ends in it, or one with the letters after it.
    for before in (b"", b"'"):
        tokens = {i: bytes([i]) for i in range(256)} | {256: b"\xc5\xbf", 257: b"'\xc5\xbf"}
        tokens[258] = before + b"\xc5\xbft"
        merges = [(b"\xc5", b"\xbf"), (b"'", b"\xc5\xbf"), (before + b"\xc5\xbf", b"t")]
        for pattern in ("cl100k", "llama3", "qwen2"):
            with pytest.raises(ValueError, match=r"contraction 'ſ \(long s\), and the token"):
                check_model(config_of("untied"), Tokenizer(tokens, merges, [END], pattern=pattern))
        check_model(config_of("untied"), Tokenizer(tokens, merges, [END], pattern="gpt2"))
    # b"ab" + b"c" is never reached: b"b" + b"c" comes first.
    tokens = {i: bytes([i]) for i in range(256)} | {256: b"bc", 257: b"ab", 258: b"abc"}
    merges = [(b"b", b"c"), (b"a", b"b"), (b"ab", b"c")]
    llama3 = Tokenizer(tokens, merges, [END], pattern="llama3")
    with pytest.raises(ValueError, match="merges do not make the token b'abc'"):
        check_model(config_of("untied"), llama3)
    nfc = Tokenizer.from_vocabulary(replace(tokenizer_of().vocabulary, normalizers=("NFC",)))
    with pytest.raises(ValueError, match=r"NFC, which llama\.cpp does not apply"):
        check_model(config_of("untied"), nfc)


def test_long_s_differs_where_a_token_crosses_it(tmp_path, monkeypatch):
    """The reason of the refusal: llama.cpp compares contractions with ASCII letters."""
    tokens = {i: bytes([i]) for i in range(256)} | {256: b"\xc5\xbf", 257: b"\xc5\xbft"}
    merges = [(b"\xc5", b"\xbf"), (b"\xc5\xbf", b"t")]
    for crossing, is_equal in ((False, True), (True, False)):
        count = 1 + crossing
        some = {i: token for i, token in tokens.items() if i < 256 + count}
        tokenizer = Tokenizer(some, merges[:count], [END], pattern="qwen2")
        with monkeypatch.context() as patch:
            patch.setattr("tilth.formats.gguf._crosses_long_s", lambda _: None)
            llama = LlamaCpp(write(tmp_path / f"{crossing}.gguf", tiny(tokenizer)))
        assert (llama.encode("'ſt") == tokenizer.encode("'ſt")) == is_equal
        assert llama.encode(" ſt'st") == tokenizer.encode(" ſt'st")


def test_equal_spellings_are_refused():
    tokens = {i: bytes([i]) for i in range(256)} | {256: END.encode(), 257: "Ġ".encode()}
    tokenizer = Tokenizer(tokens, [], {END: 256, "Ġ": 257})
    with pytest.raises(ValueError, match="two tokens are written 'Ġ' in GGUF"):
        check_model(config_of("untied"), tokenizer)


def test_widths_that_do_not_fit_blocks_are_refused():
    config = ModelConfig(**{**SHAPE, "d_ff": 80})
    with pytest.raises(ValueError, match="multiple of 32 weights, and the widths are 64, 80"):
        check_model(config, tokenizer_of(), "q8_0")


def test_float16_overflow_is_refused(tmp_path):
    model = model_of(config_of("untied"))
    model.weights["layers.0.ffn.w1.weight"][0, 0] = 1e6
    with pytest.raises(ValueError, match="beyond the range of float16"):
        write(tmp_path / "m.gguf", model, dtype="float16")


def test_missing_end_token_is_refused(tmp_path):
    model = replace(model_of(config_of("untied")), end_token="<|other|>")
    with pytest.raises(ValueError, match=r"no end token '<\|other\|>'"):
        write(tmp_path / "m.gguf", model)


def test_modelfile():
    text = modelfile("m.gguf", temperature=0.8, top_p=0.95, end_token=END)
    assert text.startswith("FROM ./m.gguf\n")
    assert "PARAMETER temperature 0.8\n" in text
    assert f'PARAMETER stop "{END}"\n' in text
    for token in ('a"b', "a\nb"):
        text = modelfile("m.gguf", temperature=1, top_p=1, end_token=token)
        assert text.endswith(f'PARAMETER stop """{token}"""\n')
    with pytest.raises(ValueError, match="cannot quote the end token"):
        modelfile("m.gguf", temperature=1, top_p=1, end_token='"""')
    with pytest.raises(ValueError, match="cannot name"):
        modelfile("m\nPARAMETER.gguf", temperature=1, top_p=1, end_token=END)
