"""Compare splitting with tiktoken and Hugging Face, which have an older Unicode version."""

import random
import subprocess
import sys

import pytest
import regex
import tiktoken
from tokenizers import Regex, pre_tokenizers

from tests.tokenizer.texts import ALPHABET
from tilth.tokenizer import reference, split, splitting
from tilth.tokenizer.splitting import CustomSplitter

ALL = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000)

# Letters and numbers that are new in Unicode 17 and 18; both peers have Unicode 16.
NEW_LETTERS = """
    558 58b-58c 88f c5c cdc 208f 209d-209f a7ce-a7cf a7d2 a7d4 a7dd a7e2 a7f1 ab6c-ab6d 107bb-107bf
    10940-10959 10ec5-10ec7 10ed9-10eee 11b0a 11db0-11ddb 11df1 16ea0-16eb8 16ebb-16ed3 16ff2-16ff3
    187f8-187ff 18cd6-18cda 18d09-18d20 18d80-18df2 18e00-19191 191a0-191d2 1b123-1b128 1b168 1d6a6
    1df1f-1df24 1df2b-1df81 1df90-1df96 1dfcd-1dfff 1e6c0-1e6de 1e6e0-1e6e2 1e6e4-1e6e5 1e6e7-1e6ed
    1e6f0-1e6f4 1e6fe-1e6ff 2b73a-2b73f 2b81e 2cea2-2cead 323b0-33479 3d000-3fc3f"""
NEW_NUMBERS = "11de0-11de9 1246f 12475-1247f 12550-12686 16ff4-16ff6"


def characters(ranges):
    found = set()
    for each in ranges.split():
        first, _, last = each.partition("-")
        found |= {chr(c) for c in range(int(first, 16), int(last or first, 16) + 1)}
    return found


NEW = characters(NEW_LETTERS) | characters(NEW_NUMBERS)


def matched_by_tiktoken(pattern):
    """Tiktoken drops unmatched text: the rest are the members of the class."""
    byte_ranks = {bytes([byte]): byte for byte in range(256)}
    encoding = tiktoken.Encoding(
        "bytes", pat_str=pattern, mergeable_ranks=byte_ranks, special_tokens={}
    )
    return set(encoding.decode_bytes(encoding.encode_ordinary(ALL)).decode())


def matched_by_hugging_face(pattern):
    splitter = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    return set("".join(piece for piece, _ in splitter.pre_tokenize_str(ALL)))


@pytest.mark.parametrize("matched", [matched_by_tiktoken, matched_by_hugging_face])
@pytest.mark.parametrize(
    ("pattern", "belongs", "newer"),
    [
        (r"\p{L}", reference.is_letter, characters(NEW_LETTERS)),
        (r"\p{N}", reference.is_number, characters(NEW_NUMBERS)),
        (r"\s", reference.is_space, set()),
    ],
)
def test_classes_of_all_code_points(matched, pattern, belongs, newer):
    ours = {character for character in ALL if belongs(character)}
    theirs = matched(pattern)
    assert theirs <= ours
    assert ours - theirs == newer


def hugging_face_splitter(pattern):
    if pattern == "gpt2":
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    oniguruma = (
        reference.CL100K_PATTERN.replace("?+", "?").replace("++", "+").replace("*+", "*")
    ).replace("{1,3}+", "{1,3}")
    return pre_tokenizers.Split(Regex(oniguruma.replace("$", r"\z")), "isolated")


@pytest.mark.parametrize("pattern", ["gpt2", "cl100k"])
def test_pieces_of_random_texts(pattern):
    compiled = regex.compile(reference.PATTERNS[pattern])
    splitter = hugging_face_splitter(pattern)
    generator = random.Random(0)
    old = sorted(set(ALL) - NEW)
    for number in range(3000):
        characters = ALPHABET + "SLVERDMTſ\r\n" if number % 2 else generator.choices(old, k=10)
        text = "".join(generator.choices([*characters, *" \n'1a"], k=40))
        theirs = [text[a:b] for _, (a, b) in splitter.pre_tokenize_str(text)]
        assert split(text, pattern) == theirs == compiled.findall(text)


@pytest.mark.parametrize("pattern", ["gpt2", "cl100k"])
def test_every_code_point_in_context(pattern):
    compiled = regex.compile(reference.PATTERNS[pattern])
    for character in ALL:
        text = f"{character}a{character}{character} 1{character}\n{character}!'{character}"
        assert split(text, pattern) == compiled.findall(text), hex(ord(character))


def test_a_custom_pattern_keeps_unmatched_text():
    assert split("low, lower", r"\w+") == ["low", ", ", "lower"]
    assert split("", r"\w+") == []


def test_a_missing_package_is_named():
    program = "import sys; sys.modules['regex'] = None\nimport tilth\ntilth.split('a', r'\\w')"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert "tilth[patterns]" in done.stderr.splitlines()[-1]


def test_backtracking_has_a_timeout(monkeypatch):
    """Two more letters take five times as long; 20 letters take 6 s."""
    monkeypatch.setattr(splitting, "SECONDS_PER_TEXT", 0.05)
    with pytest.raises(ValueError, match="backtracks too long at character 2 of a text"):
        split("cc" + "a" * 100, pattern=r"(?:a|a|aa)+?b|\s|\S")
    with pytest.raises(
        ValueError, match=r"aa\)\+\?b.* backtracks too long at character 3 of a text"
    ):
        split("cc " + "a" * 100, pattern=(r"\w+", r"(?:a|a|aa)+?b"))


def test_a_long_text_is_within_the_timeout(monkeypatch):
    monkeypatch.setattr(splitting, "SECONDS_PER_TEXT", 0)
    text = "ab cd efg 123 naïve " * 20_000
    pieces = CustomSplitter("gpt2", {}).split(text, allow_special=False)
    assert [piece for piece, _ in pieces] == split(text)


@pytest.mark.parametrize("operation", ["a-z&&[^b]", "a-z--b", "a||b", "a~~b", "a[bc]"])
def test_operations_on_sets_are_refused(operation):
    """`regex` reads them as characters, and tiktoken (but for ||) as operations."""
    for pattern in (rf"\w+|[{operation}]", rf"[^\]{operation}]+?|\w"):
        with pytest.raises(ValueError, match=r"has '.+' in a set, which is an operation on sets"):
            split("a text", pattern)
        with pytest.raises(ValueError, match="escape the characters"):
            CustomSplitter(("gpt2", pattern), {})


def test_sets_without_operations():
    for pattern in (r"[[:alpha:]]+|\w", r"\[a--b\]|\w", r"[\[&\&|\|\-\-]|\w", r"\w--|[a-z-]||b"):
        pieces = [each[0] for each in regex.finditer(pattern, "a--b [a--b] |&&-[") if each[0]]
        assert [piece for piece in split("a--b [a--b] |&&-[", pattern) if piece in pieces] == pieces
