"""All formats: damaged, missing and existing files."""

import doctest
import json
import os
import re
from contextlib import suppress
from dataclasses import replace

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from tests.tokenizer.formats.vocabularies import (
    BYTE_LEVEL,
    CORPUS,
    DATA,
    GPT2,
    KINDS,
    SPECIAL,
    TINY,
    changed,
    encode,
    examples,
    refusal,
    tiktoken_of,
)
from tilth.files import FileError
from tilth.tokenizer import Template, Tokenizer, formats
from tilth.tokenizer.formats import (
    chat_template,
    gpt2,
    huggingface,
    load,
    load_gpt2,
    load_tekken,
    load_tiktoken,
    load_tokenizer_json,
    oniguruma,
    reading,
    save,
    save_gpt2,
    save_tiktoken,
    save_tokenizer_json,
    tekken,
)
from tilth.tokenizer.formats import tiktoken as tiktoken_ranks
from tilth.tokenizer.vocabulary import Vocabulary


@pytest.mark.parametrize(
    "module",
    [chat_template, formats, gpt2, huggingface, oniguruma, reading, tekken, tiktoken_ranks],
    ids=lambda module: module.__name__,
)
def test_docstrings(module):
    assert doctest.testmod(module).failed == 0


LOADERS = {
    "tokenizer.json": load_tokenizer_json,
    "vocab.json": lambda path: load_gpt2(path, path),
    "x.tiktoken": lambda path: load_tiktoken(path, "gpt2"),
    "tekken.json": load_tekken,
}


@pytest.mark.parametrize("name", LOADERS)
def test_missing_and_special_files(tmp_path, name):
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


def test_missing_and_invalid_merges_file(tmp_path):
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
    """A file that is truncated at the end of a line cannot be recognised."""
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
                load(
                    path if name == "x.tiktoken" else tmp_path,
                    pattern="gpt2",
                    special_tokens=SPECIAL,
                )
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
def test_any_mutation_is_refused_or_loaded(tmp_path_factory, tiny, data):
    """Any value at any place: no exception except FileError."""
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
def test_deep_nesting_is_a_file_error(tmp_path, depth):
    for where in ("normalizer", "added_tokens", "model", "version", "pre_tokenizer", "config"):
        path = tmp_path / where
        path.write_text(f'{{"{where}": ' + '{"type": ' * depth + "[" * depth + "]" * depth)
        refusal(load_tokenizer_json, path)
        path.write_text(f'{{"{where}": ' + "[" * depth + "]" * depth + "}")
        refusal(load_tokenizer_json, path)


def test_existing_files_are_kept_without_overwrite(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    for write, paths in (
        (save_tokenizer_json, [first]),
        (save_tiktoken, [first]),
        (save_gpt2, [first, second]),
    ):
        first.write_text("mine")
        with pytest.raises(FileExistsError, match="already exists"):
            write(TINY, *paths)
        assert first.read_text() == "mine"
        write(TINY, *paths, overwrite=True)
        assert first.read_text() != "mine"
    first.unlink()
    with pytest.raises(FileExistsError, match="already exists"):
        save_gpt2(TINY, first, second)
    assert not first.exists(), "both files or none"


@pytest.mark.skipif(not DATA.is_dir(), reason="GPT-2's own files are not part of the project")
def test_files_of_gpt2(tmp_path):
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


def test_content_determines_the_format(tmp_path):
    """The name of a file has no effect; in a folder, a tokenizer.json says everything."""
    plain = replace(GPT2, special_tokens={}, tokens=dict(GPT2.tokens))
    save_tokenizer_json(plain, tmp_path / "odd.tiktoken")
    assert load(tmp_path / "odd.tiktoken") == plain
    save_tokenizer_json(plain, tmp_path / "no suffix")
    assert load(tmp_path / "no suffix") == plain
    save_tiktoken(GPT2, tmp_path / "ranks.tiktoken")
    (tmp_path / "ranks.txt").write_bytes((tmp_path / "ranks.tiktoken").read_bytes())
    ranks = load_tiktoken(tmp_path / "ranks.tiktoken", "gpt2")
    assert load(tmp_path / "ranks.txt", pattern="gpt2") == ranks
    (tmp_path / "folder").mkdir()
    save_tokenizer_json(plain, tmp_path / "folder" / "tokenizer.json")
    assert load(tmp_path / "folder") == plain
    vocab, merges = tmp_path / "folder" / "vocab.json", tmp_path / "folder" / "merges.txt"
    save_gpt2(plain, vocab, merges)
    assert load(tmp_path / "folder", special_tokens=["<x>"]) == plain
    (tmp_path / "folder" / "tokenizer.json").unlink()
    assert load(tmp_path / "folder", special_tokens=["<x>"]) == load_gpt2(vocab, merges, ["<x>"])
    assert "vocab.json; name its folder, which also has merges.txt" in refusal(load, vocab)
    (tmp_path / "ranks").mkdir()
    (tmp_path / "ranks.tiktoken").rename(tmp_path / "ranks" / "any.tiktoken")
    assert load(tmp_path / "ranks", pattern="gpt2") == ranks
    (tmp_path / "empty").mkdir()
    assert "empty has no tokenizer file" in refusal(load, tmp_path / "empty")


VARIANTS = KINDS | {
    "template": replace(GPT2, template=Template(("<|endoftext|>",), ("<récit>",))),
    "blank": replace(GPT2, add_prefix_space=True),
    "ranks": replace(GPT2, whole_piece_first=True),
}


@pytest.mark.parametrize("target", ["x.json", "x.tiktoken", "tekken.json", "folder"])
@pytest.mark.parametrize("name", VARIANTS)
def test_conversions_keep_ids_or_are_refused(tmp_path, name, target):
    vocabulary = VARIANTS[name]
    path = tmp_path / target
    try:
        save(vocabulary, path)
    except ValueError as error:
        assert re.fullmatch(r".* cannot represent .*; write a tokenizer\.json", str(error))  # noqa: PT017
        assert not any(tmp_path.iterdir())
        return
    given = {"pattern": vocabulary.pattern, "special_tokens": vocabulary.special_tokens}
    before, after = Tokenizer.from_vocabulary(vocabulary), Tokenizer.load(path, **given)
    for text in ["<|endoftext|>".join(CORPUS), "a <récit>\nb", ""]:
        assert after.encode(text) == before.encode(text)
        if target.endswith(".json"):
            framed = before.encode(text, add_special_tokens=True)
            assert after.encode(text, add_special_tokens=True) == framed


WORDPIECE = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "the", "##s"]


@pytest.mark.parametrize(
    ("name", "content", "culprit"),
    [
        ("tokenizer.model", b"\n\x0e\n\x05<unk>\x15\0\0\0\0\x18\2", "a SentencePiece model"),
        ("vocab.txt", "\n".join(WORDPIECE).encode(), "a WordPiece vocabulary"),
        ("tokenizer.json", b'{"model": {"type": "WordPiece", "vocab": {}}}', "a WordPiece model"),
        ("tokenizer.json", b'{"model": {"type": "Unigram", "vocab": []}}', "a Unigram model"),
        ("tokenizer.json", b'{"model": {"unk_id": 0, "vocab": []}}', "a Unigram model"),
        ("tokenizer.json", b'{"model": {"type": "WordLevel", "vocab": {}}}', "a WordLevel model"),
        (
            "tokenizer.json",
            b'{"model": {"type": "BPE", "byte_fallback": true, "vocab": {"<0x00>": 3}}}',
            "a SentencePiece BPE",
        ),
    ],
)
def test_other_kinds_of_tokenizers_are_named(tmp_path, name, content, culprit):
    (tmp_path / name).write_bytes(content)
    for path in (tmp_path, tmp_path / name):
        message = refusal(load, path)
        assert f"is {culprit}" in message
        assert message.endswith("; " + reading.ONLY_BYTE_LEVEL)


@pytest.mark.parametrize("name", ["a.json", "a.tiktoken", "folder"])
def test_suffix_determines_the_saved_format(tmp_path, name):
    save(GPT2, tmp_path / name)
    found = load(tmp_path / name, pattern="gpt2", special_tokens=GPT2.special_tokens)
    assert found.tokens == GPT2.tokens
    assert found.merges == GPT2.merges


@pytest.mark.parametrize("name", ["tokenizer.json", "ranks.tiktoken"])
def test_a_file_of_a_terabyte_is_refused(tmp_path, name):
    with (tmp_path / name).open("wb") as file:
        file.truncate(1 << 40)  # it takes no space on disk
    with pytest.raises(FileError, match="more than the"):
        load(tmp_path / name, pattern="gpt2")
