"""The chat template beside a tokenizer.json."""

import json
from dataclasses import replace
from functools import partial

import pytest

from tests.tokenizer.formats.vocabularies import TINY, refusal, trained
from tilth.data import tokenize
from tilth.executors import Executor
from tilth.tokenizer import Tokenizer
from tilth.tokenizer.formats import load, save, save_tokenizer_json

JINJA = "{% for m in messages %}<|im_start|>{{ m['content'] }}{% endfor %}é\n"


@pytest.fixture
def folder(tmp_path):
    save_tokenizer_json(TINY, tmp_path / "tokenizer.json")
    return tmp_path


def test_where_it_is_found(folder):
    assert load(folder).chat_template is None
    config = folder / "tokenizer_config.json"
    for value, expected in [
        (JINJA, JINJA),
        ([{"name": "tool", "template": "x"}, {"name": "default", "template": JINJA}], JINJA),
        ([{"name": "tool", "template": "x"}], None),
        ([5, {}], None),
        (5, None),
        (None, None),
    ]:
        config.write_text(json.dumps({"chat_template": value, "model_max_length": 1e30}))
        assert load(folder).chat_template == expected
    config.write_text(json.dumps({"chat_template": "older"}))
    assert load(folder / "tokenizer.json").chat_template == "older"
    (folder / "chat_template.jinja").write_text(JINJA)
    assert Tokenizer.load(folder).chat_template == JINJA
    # It does not change the identity. A file with another name has none.
    assert load(folder) == TINY
    assert load(folder).fingerprint == TINY.fingerprint
    (folder / "tokenizer.json").rename(folder / "other.json")
    assert load(folder / "other.json").chat_template is None


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[" * 100_000])
def test_damaged_config(folder, content):
    (folder / "tokenizer_config.json").write_bytes(content)
    assert "tokenizer_config.json is " in refusal(load, folder)
    (folder / "tokenizer_config.json").write_bytes(b"[]")
    assert load(folder) == TINY


def test_it_is_written_into_a_folder(folder, tmp_path_factory, caplog):
    (folder / "chat_template.jinja").write_text(JINJA)
    tokenizer = Tokenizer.load(folder)
    out = tmp_path_factory.mktemp("out")
    tokenizer.save(out)
    assert (out / "chat_template.jinja").read_text() == JINJA
    assert Tokenizer.load(out).chat_template == JINJA
    with pytest.raises(FileExistsError, match="already exists"):
        tokenizer.save(out)
    tokenizer.save(out, overwrite=True)
    (out / "tokenizer.json").unlink()
    with pytest.raises(FileExistsError, match=r"chat_template\.jinja already exists"):
        tokenizer.save(out)
    assert not (out / "tokenizer.json").exists(), "both files or none"
    save(tokenizer.vocabulary, out / "two files")
    found = load(out / "two files", special_tokens=[*TINY.special_tokens])
    assert (found, found.chat_template) == (TINY, JINJA)
    caplog.clear()
    save(tokenizer.vocabulary, out / "other.json")
    assert "other.json does not store the chat template" in caplog.text
    # Without one, no file.
    save(replace(tokenizer.vocabulary, chat_template=None), tmp_path_factory.mktemp("x") / "y")


def test_every_way_to_save_has_one_rule(folder, tmp_path_factory, caplog):
    """`tokenizer.save("b/tokenizer.json")` dropped it without a note."""
    tokenizer = Tokenizer.from_vocabulary(replace(TINY, chat_template=JINJA))
    for write in (tokenizer.save, partial(save, tokenizer.vocabulary)):
        out = tmp_path_factory.mktemp("out")
        write(out / "tokenizer.json")
        assert Tokenizer.load(out / "tokenizer.json").chat_template == JINJA
        assert not caplog.text
        write(out / "other.json")
        assert "other.json does not store the chat template" in caplog.text
        caplog.clear()
        (out / "tokenizer.json").unlink()
        with pytest.raises(FileExistsError, match=r"chat_template\.jinja already exists"):
            write(out / "tokenizer.json")
        assert not (out / "tokenizer.json").exists()


def test_a_data_folder_has_only_the_tokenizer(tmp_path):
    """Its manifest lists the files."""
    (tmp_path / "a.txt").write_text("ab ba<|endoftext|>ab")
    vocabulary = trained("gpt2", ["<|endoftext|>"])
    tokenizer = Tokenizer.from_vocabulary(replace(vocabulary, chat_template=JINJA))
    for executor in (None, Executor(workers=1)):
        data = tokenize(
            tmp_path / "a.txt", tokenizer, tmp_path / "data", executor=executor, overwrite=True
        )
        assert not [*data.folder.rglob("*.jinja")]
        assert Tokenizer.load(data.folder) == tokenizer
