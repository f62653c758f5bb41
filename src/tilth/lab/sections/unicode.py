"""Section 1: text as bytes."""

from collections import Counter

from tilth.lab.sections.section import Made, Setting, own_command
from tilth.lab.texts import documents_of
from tilth.report.lab_file import Lab, Table

ENCODINGS = ("utf-8", "utf-16-le", "utf-32-le")
SAMPLE_BYTES = 1_000_000
WRONG_INPUT = "牛".encode()
UNDECODABLE = b"\xc3\x28"


def decode_bytes_one_by_one(data: bytes) -> str:
    """Decode each byte alone, the wrong decoder of the handout.

    >>> decode_bytes_one_by_one(b"cow")
    'cow'
    """
    return "".join(bytes([byte]).decode("utf-8") for byte in data)


def made(setting: Setting) -> Made:
    """Show characters as bytes, and the texts in three encodings."""
    samples = {
        name: "".join(documents_of(data, "train", min(SAMPLE_BYTES, setting.max_bytes)))
        for name, data in setting.texts
    }
    sizes = {
        name: [len(text.encode(encoding)) for encoding in ENCODINGS]
        for name, text in samples.items()
    }
    ratios = [
        f"For {name}, UTF-16 needs {two / one:.2f} times and UTF-32 {four / one:.2f} times the "
        "bytes of UTF-8."
        for name, (one, two, four) in sizes.items()
    ]
    zeros = {name: _share_of_zeros(text.encode("utf-16-le")) for name, text in samples.items()}
    character = chr(0)
    facts = (
        ("chr(0)", "the character U+0000, NUL"),
        ("repr(chr(0))", repr(character)),
        ("print(chr(0))", "writes the character itself; a terminal shows nothing"),
        ('"this is a test" + chr(0) + "string"', repr("this is a test" + character + "string")),
        ("len of that string", str(len("this is a test" + character + "string"))),
        ("decoder of single bytes", _error_of_wrong_decoder()),
        (f"{UNDECODABLE!r} as UTF-8", _error_of(UNDECODABLE)),
    )
    tables = (
        Table("Characters and bytes", ("expression", "result"), facts),
        Table(
            "The texts of this run in three encodings, in bytes",
            ("text", *ENCODINGS, "zero bytes in UTF-16"),
            tuple((name, *sizes[name], f"{zeros[name]:.0%}") for name in sizes),
        ),
    )
    answer = (
        f"{' '.join(ratios)} A character may be several bytes, so single bytes cannot be decoded, "
        "and some pairs of bytes are not a character at all."
    )
    lab = Lab("unicode", "", answer, own_command(setting, "unicode"), tables=tables)
    return Made.of(lab, "unicode")


def _share_of_zeros(data: bytes) -> float:
    """Return the share of zero bytes."""
    return Counter(data)[0] / max(1, len(data))


def _error_of_wrong_decoder() -> str:
    try:
        decode_bytes_one_by_one(WRONG_INPUT)
    except UnicodeDecodeError as error:
        return f"fails on {WRONG_INPUT!r} (牛): {error.reason}"
    raise AssertionError("a lead byte alone is not UTF-8")


def _error_of(data: bytes) -> str:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"UnicodeDecodeError: {error.reason} at byte {error.start}"
    raise AssertionError("these bytes are not UTF-8")
