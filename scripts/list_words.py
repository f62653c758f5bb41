"""List long sentences and banned phrases in the prose of the project; `make words` calls it.

    python scripts/list_words.py [PATH ...]

It reads comments, docstrings and messages in Python, comments in C++ and the text of Markdown; code
blocks are skipped. It prints one line for each finding and always exits with 0: a list to work
through, not a gate. Generated reports (docs/lab, docs/writeup.md) and the phrases of stories are
left out.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_PATHS = (
    *("src", "core", "docs", "tests", "bench", "scripts"),
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile"),
)
EXCLUDED = ("docs/lab/", "docs/writeup.md", "corpus/stories/", "tests/goldens/", "list_words.py")
MOST_WORDS = 30

BANNED = {
    r"what (enters|leaves)\b": "name the input and the output",
    r"(?<!there )\b(is|are|was|were) no (?!longer\b|more\b|less\b|fewer\b)": "write 'is not a'",
    r"\bwhoever\b": "name the subject",
    r"\bwhether what\b|\bwhat (lies|stands|comes)\b": "name the subject",
    r"\bwhere another is tried\b": "write 'instead'",
    r"\b(houses?|rooms?|doors?)\b(?! for)": "write 'package' or 'module'",
    r"\bwhere chance begins\b": "write 'random seed'",
    r"\bby chance\b": "write 'at random' or name the cause",
    r"\bto be had\b": "write 'available'",
    r"\bof (its|their|one's|his|her) own\b": "write 'separate', or leave it out",
    r"\bbeside it\b": "write 'next to it' or 'compared with it'",
    r"\bmend(s|ed|ing)?\b": "write 'fix'",
    r"\b(behold|held (equal )?by)\b": "write 'tested by'",
    r"\bso that\b[^.;]*\bneed not\b": "split the sentence",
    r"\bgoes? on (with|from|where|when)\b": "write 'continues'",
}
"""Regular expressions that DESIGN's section on words rules out, and the advice for each."""

Prose = tuple[int, str]
"""The number of its first line, and a paragraph."""


def python_prose(text: str) -> Iterator[Prose]:
    """Yield comments, docstrings and one-line strings of at least three words."""
    block: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            if block and token.start[0] != block[-1].start[0] + 1:
                yield from _comment(block)
                block = []
            block.append(token)
    yield from _comment(block)
    inside: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.JoinedStr):
            inside.update(map(id, node.values))
            parts = [p.value if isinstance(p, ast.Constant) else "N" for p in node.values]
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            inside.add(id(node.value))
            if isinstance(node.value.value, str):
                yield from paragraphs(node.value.value, node.lineno)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # A string of several lines is a program or a template, not a sentence.
            is_message = len(node.value.split()) > 2 and "\n" not in node.value.strip()
            if is_message and id(node) not in inside:
                yield node.lineno, node.value


def _comment(tokens: list[tokenize.TokenInfo]) -> Iterator[Prose]:
    if tokens:
        yield tokens[0].start[0], "\n".join(token.string.lstrip("# ") for token in tokens)


def cpp_prose(text: str) -> Iterator[Prose]:
    """Yield the comments, a block of `//` lines at a time."""
    for match in re.finditer(r"(?:^[ \t]*//[^\n]*\n)+|//[^\n]*", text, re.MULTILINE):
        lines = [re.sub(r"^\s*//+ ?", "", line) for line in match[0].splitlines()]
        yield from paragraphs("\n".join(lines), text[: match.start()].count("\n") + 1)


def paragraphs(text: str, line: int) -> Iterator[Prose]:
    """Yield the paragraphs, list items and table cells of Markdown; skip code blocks."""
    block: list[str] = []
    fenced = False
    for number, row in enumerate([*text.splitlines(), ""]):
        is_fence = row.strip().startswith("```")
        starts_item = re.match(r"\s*([-*|>]|\d+\.|#+) ?", row)
        is_code = fenced or is_fence or re.match(r"(\s{4,}\S|\s*(>>>|\.\.\.) )", row)
        if block and (not row.strip() or starts_item or is_code):
            for cell in "\n".join(block).split("|"):
                yield line + number - len(block), cell
            block = []
        fenced ^= is_fence
        if row.strip() and (not is_code or (block and not fenced)) and not is_fence:
            block.append(row.strip().lstrip("#"))


def findings(path: Path) -> Iterator[str]:
    """Yield `LINE: what is wrong: the sentence` for each finding in a file."""
    text = path.read_text("utf-8")
    if path.suffix in {".py", ".pyi"}:
        found = python_prose(text)
    elif path.suffix in {".cpp", ".hpp"}:
        found = cpp_prose(text)
    else:
        found = paragraphs(text, 1)
    for first, paragraph in found:
        for match in re.finditer(r"(?:[^.!?]|[.!?](?![*\"')]*(?:\s|$)))+", paragraph):
            sentence = re.sub(r"`[^`]*`", "CODE", match[0])
            line = first + paragraph[: match.start() + 1].count("\n")
            shown = " ".join(match[0].split())
            words = sum(any(c.isalnum() for c in word) for word in sentence.split())
            if words > MOST_WORDS:
                yield f"{line}: {words} words: {shown}"
            for pattern, advice in BANNED.items():
                if banned := re.search(pattern, " ".join(sentence.split()), re.IGNORECASE):
                    yield f"{line}: '{banned[0].strip()}' ({advice}): {shown}"


def files(paths: list[Path]) -> Iterator[Path]:
    """Yield the files below the paths that hold prose."""
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            is_prose = file.suffix in {".py", ".pyi", ".cpp", ".hpp", ".md"} or file == path
            if is_prose and not any(part in file.as_posix() for part in EXCLUDED):
                yield file


def main() -> None:
    """List the findings in the given paths, or in the whole project."""
    paths = [Path(word).resolve() for word in sys.argv[1:]] or [ROOT / p for p in DEFAULT_PATHS]
    count = 0
    for file in files(paths):
        name = file.relative_to(ROOT) if file.is_relative_to(ROOT) else file
        for finding in findings(file):
            print(f"{name}:{finding}")
            count += 1
    print(f"{count} findings", file=sys.stderr)


if __name__ == "__main__":
    main()
