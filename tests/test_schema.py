"""The schema checker: strict types, limits, bounded sentences, round trips, JSON schemas."""

import json
import math
import sys
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilth import schema
from tilth.schema import FileName, Length, Pattern, Range, Sha256, Unicode


@dataclass(frozen=True)
class Inner:
    """A table in a table."""

    size: Annotated[int, Range(at_least=1, at_most=10**6)]
    """The number of rows."""
    names: tuple[str, ...] = ()
    """Names of the columns."""

    def __post_init__(self) -> None:
        schema.check(self, "inner")


@dataclass(frozen=True)
class Outer:
    """A record with a field of each kind."""

    name: Unicode
    inner: Inner
    rate: Annotated[float, Range(above=0.0, below=1.0)] = 0.5
    kind: Literal["small", "large"] = "small"
    flag: bool = False
    pair: tuple[float, float] = (0.0, 1.0)
    count: Annotated[int, Range(at_least=0)] | None = None
    table: dict[str, Inner] = field(default_factory=dict)
    either: int | str = 0
    anything: Any = None
    digest: Sha256 | None = None
    file: FileName = "a.txt"
    few: Annotated[list[int], Length(at_least=1, at_most=3)] = field(default_factory=lambda: [1])


@dataclass(frozen=True)
class Tree:
    """A recursive record."""

    branches: "tuple[Tree, ...]" = ()


BASE = {"name": "a", "inner": {"size": 3}}

inners = st.builds(
    Inner, st.integers(1, 10**6), st.lists(st.text(max_size=5), max_size=3).map(tuple)
)
outers = st.builds(
    Outer,
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    inners,
    rate=st.floats(0.0, 1.0, exclude_min=True, exclude_max=True),
    kind=st.sampled_from(["small", "large"]),
    flag=st.booleans(),
    pair=st.tuples(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9)),
    count=st.none() | st.integers(0, 2**70),
    table=st.dictionaries(st.text(max_size=5), inners, max_size=3),
    either=st.integers() | st.text(max_size=5),
    anything=st.none() | st.lists(st.integers(), max_size=3),
    digest=st.none() | st.just("0" * 64),
    few=st.lists(st.integers(), min_size=1, max_size=3),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


def refusal(values, *, kind=Outer, what="a record", extra="forbid"):
    with pytest.raises(ValueError) as caught:  # noqa: PT011, the sentence is looked at here
        schema.read(kind, values, what, extra=extra)
    sentence = str(caught.value)
    assert sentence.endswith((".", "?"))
    assert "\n" not in sentence
    assert len(sentence) < 700
    return sentence


def record_or_sentence(values):
    try:
        return schema.read(Outer, values, "a record")
    except ValueError as error:
        return str(error)


def accepts(rules, value):
    """Whether a JSON schema accepts a value: the part of the standard that we write."""
    kinds = {
        "object": isinstance(value, dict),
        "array": isinstance(value, list),
        "string": isinstance(value, str),
        "boolean": isinstance(value, bool),
        "integer": isinstance(value, int) and not isinstance(value, bool),
        "number": isinstance(value, int | float) and not isinstance(value, bool),
    }
    if "type" in rules and not kinds[rules["type"]]:
        return False
    if "enum" in rules and value not in rules["enum"]:
        return False
    if "anyOf" in rules and not any(accepts(each, value) for each in rules["anyOf"]):
        return False
    limits = {
        "minimum": lambda limit: value >= limit,
        "exclusiveMinimum": lambda limit: value > limit,
        "maximum": lambda limit: value <= limit,
        "exclusiveMaximum": lambda limit: value < limit,
        "minLength": lambda limit: len(value) >= limit,
        "maxLength": lambda limit: len(value) <= limit,
        "minItems": lambda limit: len(value) >= limit,
        "maxItems": lambda limit: len(value) <= limit,
        "required": lambda names: all(name in value for name in names),
    }
    if not all(check(rules[name]) for name, check in limits.items() if name in rules):
        return False
    if isinstance(value, dict) and "additionalProperties" in rules:
        known, more = rules.get("properties", {}), rules["additionalProperties"]
        return all(
            accepts(known.get(name, more or {}), item) and (name in known or more is not False)
            for name, item in value.items()
        )
    if isinstance(value, list) and "items" in rules:
        first, more = rules.get("prefixItems", []), rules["items"]
        return all(
            accepts(first[i] if i < len(first) else more, item)
            if i < len(first) or more is not False
            else False
            for i, item in enumerate(value)
        )
    return True


# --- round trips ----------------------------------------------------------------------------------


@given(outers)
def test_a_record_comes_back_from_json(record):
    values = json.loads(json.dumps(schema.plain(record)))
    again = schema.read(Outer, values, "a record")
    assert again == record
    assert repr(again) == repr(record)  # the types too: 1.0, not 1


@given(st.dictionaries(st.sampled_from([*Outer.__dataclass_fields__, "other"]), json_values))
def test_any_json_gives_a_record_or_one_sentence(changes):
    record = record_or_sentence({**BASE, **changes})
    if isinstance(record, str):
        assert "\n" not in record
        assert len(record) < 700
    else:
        assert schema.read(Outer, schema.plain(record), "a record") == record


def test_none_is_left_out_only_where_it_is_the_default():
    @dataclass(frozen=True)
    class Open:
        first: int | None
        second: int | None = None
        third: int | None = 3

    assert schema.plain(Open(None, None, None)) == {"first": None, "third": None}
    assert schema.read(Open, {"first": None, "third": None}, "it") == Open(None, None, None)


def test_flat_values_have_dotted_names():
    assert schema.flat({"a": 1, "b": {"c": {"d": 2}, "e": [3]}}) == {"a": 1, "b.c.d": 2, "b.e": [3]}


@given(outers)
def test_a_json_schema_accepts_every_record(record):
    assert accepts(schema.json_schema(Outer), json.loads(json.dumps(schema.plain(record))))


# --- types ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("name", 3, "name must be text, not 3."),
        ("name", "a\udcff", r"name 'a\udcff' is not Unicode; give it another name."),
        ("inner", 3, "inner must be a table, not 3."),
        ("inner", {}, "the key size is missing from the table inner; add it."),
        ("inner", {"size": True}, "inner.size must be a whole number, not True."),
        ("inner", {"size": 4.0}, "inner.size must be a whole number, not 4.0."),
        ("inner", {"size": np.ones(2)}, "inner.size must be a whole number, not array([1., 1.])."),
        ("inner", {"size": 0}, "inner.size must be at least 1, not 0."),
        ("inner", {"size": 10**6 + 1}, "inner.size must be at most 1000000, not 1000001."),
        ("inner", {"size": 10**50}, "inner.size must be at most 1000000, not an integer of 51 dig"),
        ("inner", {"size": 10**9999}, "not an integer of 10000 digits."),
        ("inner", {"size": 1, "names": [1]}, "inner.names[0] must be text, not 1."),
        ("inner", {"siz": 1}, "'siz' is not a key of the table inner; did you mean size?"),
        ("rate", "1", "rate must be a number, not '1'."),
        ("rate", True, "rate must be a number, not True."),
        ("rate", math.nan, "rate is nan; it must be finite."),
        ("rate", 10**400, "rate is inf; it must be finite."),
        ("rate", 0, "rate is 0; it must be above 0."),
        ("rate", 1.0, "rate is 1; it must be below 1."),
        ("kind", "smal", "kind 'smal' is unknown; choose one of small, large."),
        ("kind", 3, "kind 3 is unknown; choose one of small, large."),
        ("flag", 1, "flag must be true or false, not 1."),
        ("flag", None, "flag must be true or false, not None."),
        ("pair", [1.0], "pair must have 2 items, not 1."),
        ("pair", "ab", "pair must be a list, not 'ab'."),
        ("pair", [1, "b"], "pair[1] must be a number, not 'b'."),
        ("count", -1, "count must be at least 0, not -1."),
        ("table", [], "table must be a table, not []."),
        ("table", {"x": {"size": 0}}, "table.x.size must be at least 1, not 0."),
        ("table", {"\x1b[31m": 3}, r"table.\x1b[31m must be a table, not 3."),
        ("either", 1.5, "either must be a whole number or text, not 1.5."),
        ("digest", "0" * 63, "is not a SHA-256 in hexadecimal digits."),
        ("file", "../a", "file '../a' is not the name of a file; a path cannot leave the folder."),
        ("file", "..", "file '..' is not the name of a file"),
        ("file", "/etc/passwd", "is not the name of a file"),
        ("file", "a\0", "is not the name of a file"),
        ("file", "", "file must have at least 1 characters, not 0."),
        ("few", [], "few must have at least 1 items, not 0."),
        ("few", [1, 2, 3, 4], "few must have at most 3 items, not 4."),
        ("naem", "b", "'naem' is not a key of a record; did you mean name?"),
    ],
)
def test_wrong_values(name, value, sentence):
    assert sentence in refusal({**BASE, name: value})


@pytest.mark.parametrize("file", ["a", "..a", "...", "a..", "train.npy", " "])
def test_names_of_files(file):
    assert schema.read(Outer, {**BASE, "file": file}, "it").file == file


def test_numbers_become_pythons():
    record = Outer("a", Inner(np.int64(3)))
    schema.check(replaced := replace(record, rate=np.float32(0.5), pair=[1, np.float64(2)]))
    assert type(record.inner.size) is int
    assert repr(replaced.rate) == "0.5"
    assert repr(replaced.pair) == "(1.0, 2.0)"


def test_a_dataclass_passes_and_a_table_becomes_one():
    inner = Inner(3)
    assert schema.read(Outer, {"name": "a", "inner": inner}, "it").inner is inner
    record = Outer("a", {"size": 3})
    schema.check(record)
    assert record.inner == inner


def test_a_missing_key_and_a_wrong_whole():
    assert refusal({"inner": {"size": 1}}) == "the key name is missing from a record; add it."
    assert refusal([1]) == "a record must be a table, not [1]."


def test_unknown_keys_may_be_ignored_at_every_depth():
    values = {**BASE, "new": 1, "inner": {"size": 3, "new": 2}, "table": {"a": {"size": 1, "b": 1}}}
    assert "'new' is not a key of a record" in refusal(values)
    record = schema.read(Outer, values, "a record", extra="ignore")
    assert record == Outer("a", Inner(3), table={"a": Inner(1)})
    assert refusal({"new": 1}, extra="ignore") == "the key name is missing from a record; add it."


def test_an_annotation_without_a_checker_is_an_error_of_the_programmer():
    @dataclass
    class Strange:
        value: complex

    with pytest.raises(TypeError, match="complex"):
        schema.read(Strange, {"value": 1}, "it")


# --- values of any size ---------------------------------------------------------------------------


def nested(depth, end):
    for _ in range(depth):
        end = [end]
    return end


@pytest.mark.parametrize(
    "value",
    ["x" * 10**7, {"k" * 10**6: 1}, list(range(10**6)), nested(900, 1), {"a": nested(900, 1)}],
    ids=["text", "key", "list", "deep list", "deep table"],
)
@pytest.mark.parametrize("name", [*Outer.__dataclass_fields__, "other"])
def test_no_sentence_is_long(name, value):
    found = record_or_sentence({**BASE, name: value})
    assert isinstance(found, Outer) or len(found) < 700


def test_nesting_has_a_limit():
    assert schema.read(Outer, {**BASE, "anything": nested(60, 1)}, "it").anything == nested(60, 1)
    assert refusal({**BASE, "anything": nested(900, 1)}) == "anything is nested too deeply."
    tree = {}
    for _ in range(sys.getrecursionlimit() - 50):
        tree = {"branches": [tree]}
    assert refusal(tree, kind=Tree, what="a tree") == "a tree is nested too deeply."


# --- descriptions and JSON schemas ----------------------------------------------------------------


def test_descriptions_are_the_strings_after_the_fields():
    texts = {"size": "The number of rows.", "names": "Names of the columns."}
    assert schema.descriptions(Inner) == texts
    assert schema.descriptions(Outer) == {}

    @dataclass(frozen=True)
    class More(Inner):
        more: int = 0

    assert schema.descriptions(More) == texts


def test_a_json_schema():
    found = schema.json_schema(Outer)
    assert json.loads(json.dumps(found)) == found
    assert found["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert found["title"] == "Outer"
    assert found["description"] == "A record with a field of each kind."
    assert found["required"] == ["name", "inner"]
    assert found["additionalProperties"] is False
    assert found["properties"]["inner"] == {
        "type": "object",
        "description": "A table in a table.",
        "properties": {
            "size": {
                "type": "integer",
                "minimum": 1,
                "maximum": 10**6,
                "description": "The number of rows.",
            },
            "names": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Names of the columns.",
                "default": [],
            },
        },
        "required": ["size"],
        "additionalProperties": False,
    }
    properties = found["properties"]
    assert properties["rate"] == {
        "type": "number",
        "exclusiveMinimum": 0.0,
        "exclusiveMaximum": 1.0,
        "default": 0.5,
    }
    assert properties["kind"] == {"enum": ["small", "large"], "default": "small"}
    assert properties["flag"] == {"type": "boolean", "default": False}
    assert properties["pair"] == {
        "type": "array",
        "prefixItems": [{"type": "number"}, {"type": "number"}],
        "items": False,
        "minItems": 2,
        "default": [0.0, 1.0],
    }
    assert properties["count"] == {"type": "integer", "minimum": 0}
    assert properties["table"]["additionalProperties"] == properties["inner"]
    assert properties["either"] == {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "default": 0,
    }
    assert properties["anything"] == {}
    assert properties["few"]["maxItems"] == 3


def test_limits_of_a_union_hold_for_its_members():
    @dataclass(frozen=True)
    class Bounded:
        value: Annotated[int | None, Range(at_least=2)] = None

    assert refusal({"value": 1}, kind=Bounded) == "value must be at least 2, not 1."
    assert schema.json_schema(Bounded)["properties"]["value"] == {"type": "integer", "minimum": 2}


def test_many_choices_get_a_suggestion():
    names = [f"choice-{letter}" for letter in "abcdefghi"]
    assert schema.check_choice("it", "choice-a", names) == "choice-a"
    with pytest.raises(ValueError, match=r"^it 'Choice-B' is unknown; did you mean choice-b\?$"):
        schema.check_choice("it", "Choice-B", names)
    with pytest.raises(ValueError, match=r"^it 3 is unknown; choose one of choice-a, choice-b"):
        schema.check_choice("it", 3, names)


def test_a_derived_field_follows_where_it_is_none():
    @dataclass(frozen=True)
    class Shape:
        width: Annotated[int, Range(at_least=1)]
        inner: Annotated[int, Range(at_least=2)] = schema.derived(lambda shape: 2 * shape.width)

        def __post_init__(self) -> None:
            schema.check(self)

    assert Shape(3).inner == Shape(3, None).inner == replace(Shape(3, 9), inner=None).inner == 6
    assert schema.read(Shape, {"width": 3}, "it") == Shape(3, 6)
    assert schema.plain(Shape(3)) == {"width": 3, "inner": 6}
    assert refusal({"width": 3, "inner": 1}, kind=Shape) == "inner must be at least 2, not 1."
    assert refusal({"width": "3"}, kind=Shape) == "width must be a whole number, not '3'."
    found = schema.json_schema(Shape)
    assert found["required"] == ["width"]
    assert found["properties"]["inner"] == {"type": "integer", "minimum": 2}


def test_a_record_becomes_its_stricter_subclass():
    @dataclass(frozen=True)
    class Strict(Inner):
        more: int = field(kw_only=True)

    @dataclass(frozen=True)
    class Holder:
        inner: Strict

    with pytest.raises(ValueError, match="the key more is missing from the table inner; add it"):
        schema.check(Holder(Inner(3)))
    strict = Strict(3, more=1)
    assert schema.read(Holder, {"inner": strict}, "it").inner is strict


def test_a_pattern_matches_the_whole_string():
    pattern = Pattern("[a-z]+", "a word")
    pattern.check("name", "word")
    with pytest.raises(ValueError, match=r"^name 'word\\n' is not a word\.$"):
        pattern.check("name", "word\n")
