"""Fixtures for the tests of several formats."""

import json
from dataclasses import replace

import pytest

from tests.tokenizer.formats.vocabularies import TINY
from tilth.tokenizer.formats import (
    save_tokenizer_json,
)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny") / "tokenizer.json"
    save_tokenizer_json(replace(TINY, pattern="cl100k"), path)
    return json.loads(path.read_text())
