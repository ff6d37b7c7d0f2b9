"""Definitions of an index: one field in either spelling, and everything that is wrong with another."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest
from jsonschema import Draft202012Validator

from pcdc.api import compile as compile_in_memory
from pcdc.diagnostics import SchemaError, render_text
from pcdc.indexing.definition import Entries
from pcdc.indexing.pairs import Lookup
from pcdc.indexing.parse import parse_index_file
from pcdc.parse import catalogs_of, is_index_file, parse_file, parse_mapping

DIALECT = Draft202012Validator(json.loads(files("pcdc").joinpath("dialect.json").read_bytes()))
INDEX = {"index": True}
TOWNS = "Paris\nRome\nOslo\n"


@pytest.fixture
def write(tmp_path):
    def to(declared, name="towns.json"):
        (tmp_path / "towns.txt").write_text(TOWNS)
        (tmp_path / "towns.csv").write_text("id,name\n1,Paris\n2,Rome\n3,Paris\n")
        path = tmp_path / name
        path.write_text(json.dumps(declared), encoding="utf-8")
        return path

    return to


def accepted(path):
    index, diagnostics = parse_index_file(path)
    assert index is not None, render_text(diagnostics)
    DIALECT.validate(json.loads(path.read_text()))
    return index


def codes(found):
    index, diagnostics = found
    assert index is None
    return [d.code for d in diagnostics]


CATALOG = {"x-catalog": {"source": "towns.txt"}, "description": "Which town?"}
SETUP = {
    **INDEX,
    "instructions": "Find the town.",
    "temperature": 2,
    "examples": [{"context": "Fjords.", "answers": {"town": "Oslo"}}],
    "ignore": {"PCDC525": "few"},
}


def test_both_spellings_of_one_index_are_one_definition(write):
    short = accepted(write({"x-pcdc": SETUP, "town": CATALOG}))
    properties = {"town": {"type": "string", **CATALOG}}
    long = accepted(write({"type": "object", "x-pcdc": SETUP, "properties": properties}))
    shared = {"$ref": "#/$defs/town", "description": "Which town?"}
    defs = {"town": {"type": "string", "x-catalog": {"source": "towns.txt"}}}
    referred = {"type": "object", "x-pcdc": SETUP, "properties": {"town": shared}, "$defs": defs}
    assert short == long == accepted(write(referred))
    assert (short.name, short.field, short.question) == ("towns", "town", "Which town?")
    assert (short.instructions, short.temperature) == ("Find the town.", 2.0)
    assert short.examples == (("Fjords.", "Oslo"),)
    assert [i.code for i in short.ignored] == ["PCDC525"]


def test_written_choices_are_entries_as_those_of_a_catalog_are(write):
    labels = [f"town {n}" for n in range(300)]
    for key in ("choices", "enum"):
        index = accepted(write({"x-pcdc": INDEX, "town": {key: labels, "description": "?"}}))
        assert list(index.entries.labels) == labels
        assert index.entries.ids is index.entries.labels
        assert index.entries.locate(1).column > index.entries.locate(0).column
        assert index.catalogs == ()


def test_an_index_needs_no_question_and_says_where_its_field_is(write):
    index = accepted(write({"x-pcdc": INDEX, "town": {"x-catalog": {"source": "towns.txt"}}}))
    assert index.question == ""
    assert (index.location.line, index.location.column) == (1, 29)


def test_the_catalog_of_an_index_is_named_for_those_who_wait_for_changes(write):
    path = write({"x-pcdc": INDEX, "town": CATALOG})
    (use,) = catalogs_of(path)
    assert (use.path, use.index) == (path.parent / "towns.txt", True)
    assert accepted(path).catalogs == (use,)
    (other,) = catalogs_of(write({"town": CATALOG}))
    assert not other.index


@pytest.mark.parametrize(
    ("declared", "is_one"),
    [
        ({"x-pcdc": {"index": True}}, True),
        ({"x-pcdc": {"index": True}, "a": 1, "b": []}, True),
        ({"x-pcdc": {"index": False}, "a": {}}, False),
        ({"x-pcdc": {"index": 1}, "a": {}}, False),
        ({"index": {"x-pcdc": True}}, False),
        ([{"x-pcdc": {"index": True}}], False),
    ],
)
def test_a_file_says_itself_whether_it_declares_an_index(write, declared, is_one):
    assert is_index_file(write(declared)) == is_one


def test_the_dialect_takes_long_lists_and_one_field_of_an_index_only():
    many = {"a": {"choices": [str(n) for n in range(300)]}}
    assert DIALECT.is_valid({"x-pcdc": INDEX, **many})
    assert not DIALECT.is_valid(many)
    typed = {"type": "object", "x-pcdc": INDEX}
    assert DIALECT.is_valid({**typed, "properties": many})
    assert not DIALECT.is_valid({**typed, "properties": {**many, "b": {"choices": ["x", "y"]}}})
    assert not DIALECT.is_valid({"x-pcdc": {**INDEX, "scoring": "trie"}, **many})
    assert not DIALECT.is_valid({"x-pcdc": INDEX, "a": {"enum": ["x", 1]}})


def test_what_is_no_file_and_no_json_declares_no_index(tmp_path):
    (tmp_path / "a.json").write_text('{"x-pcdc": {"index": true}')
    assert not is_index_file(tmp_path / "a.json")
    assert not is_index_file(tmp_path / "b.json")


def test_a_schema_is_asked_for_and_an_index_is_given_or_the_other_way_round(write):
    declared = {"x-pcdc": INDEX, "town": {"choices": ["a", "b"]}}
    schema, (told,) = parse_file(write(declared))
    assert (schema, told.code, told.location.column) == (None, "PCDC240", 2)
    assert "pcdc index" in told.help
    assert codes(parse_mapping(declared)) == ["PCDC240"]
    with pytest.raises(SchemaError, match="PCDC240"):
        compile_in_memory(declared)
    assert codes(parse_index_file(write({"town": {"choices": ["a", "b"]}}))) == ["PCDC241"]
    assert codes(parse_index_file(write(["a", "b"]))) == ["PCDC241"]


def test_too_many_choices_of_a_schema_name_the_index_as_the_way_out(write):
    _, (many,) = parse_file(write({"a": {"choices": [str(n) for n in range(256)], "description": "?"}}))
    assert many.code == "PCDC213"
    assert '`"x-pcdc": {"index": true}`' in many.help
    assert "pcdc index" in many.help


def test_ids_are_of_an_index_only(write):
    field = {"x-catalog": {"source": "towns.csv", "value": "name", "id": "id"}, "description": "?"}
    index = accepted(write({"x-pcdc": INDEX, "town": field}))
    assert (index.entries.labels, index.entries.ids) == (["Paris", "Rome", "Paris"], ["1", "2", "3"])
    _, (told,) = parse_file(write({"town": field}))
    assert (told.code, told.fact) == ("PCDC230", "has an `id`")
    text = {"x-catalog": {"source": "towns.txt", "id": "id"}}
    assert codes(parse_index_file(write({"x-pcdc": INDEX, "town": text}))) == ["PCDC230"]


@pytest.mark.parametrize(
    ("setup", "fields", "expected"),
    [
        ({}, {}, ["PCDC202"]),
        ({}, {"a": CATALOG, "b": CATALOG}, ["PCDC242"]),
        ({"scoring": "identify"}, {"a": CATALOG}, ["PCDC243"]),
        ({"temperature": 0}, {"a": CATALOG}, ["PCDC201"]),
        ({"temprature": 1}, {"a": CATALOG}, ["PCDC205"]),
        ({"ignore": {"PCDC245": "why"}}, {"a": CATALOG}, ["PCDC239"]),
        ({}, {"a": {"type": "boolean"}}, ["PCDC215", "PCDC215"]),
        ({}, {"a": {"type": "string"}}, ["PCDC208"]),
        ({}, {"a": {"choices": ["x"]}}, ["PCDC212"]),
        ({}, {"a": {"choices": ["x", "y", "x"]}}, ["PCDC245"]),
        ({}, {"a": {"choices": ["x", 2]}}, ["PCDC215"]),
        ({}, {"a": {"type": "string", "choices": ["x", 2]}}, ["PCDC215"]),
        ({}, {"a": {"choices": ["x", {"value": "y", "description": "z"}]}}, ["PCDC243"]),
        ({}, {"a": {"anyOf": [CATALOG, {"type": "null"}]}}, ["PCDC243"]),
        ({}, {"a": {"anyOf": [CATALOG, CATALOG]}}, ["PCDC243"]),
        ({}, {"a": {"type": "number", **CATALOG}}, ["PCDC215"]),
        ({}, {"a": {"type": ["string", "null"], **CATALOG}}, ["PCDC215"]),
        ({}, {"a": {"x-catalog": {"source": "none.txt"}}}, ["PCDC101"]),
        ({}, {"a": {"x-catalog": {"source": "towns.txt", "value": "x"}}}, ["PCDC230"]),
        ({}, {"a": {"x-catalog": {"source": "towns.csv"}}}, ["PCDC230"]),
        ({}, {"a\u200b": CATALOG}, ["PCDC204"]),
        ({}, {"x-catalog": {"source": "towns.txt"}, "a": CATALOG}, ["PCDC226"]),
    ],
)
def test_what_is_no_index_is_refused_with_its_code(write, setup, fields, expected):
    assert codes(parse_index_file(write({"x-pcdc": INDEX | setup, **fields}))) == expected


def test_everything_that_is_wrong_is_told_at_once(write):
    setup = {**INDEX, "scoring": "trie", "examples": [{"context": "x", "answers": {"town": "rome"}}]}
    declared = {"x-pcdc": setup, "town": {"x-catalog": {"source": "towns.csv", "value": "name"}}}
    assert sorted(codes(parse_index_file(write(declared)))) == ["PCDC236", "PCDC243", "PCDC245"]


@pytest.mark.parametrize(
    ("answer", "help"),
    [
        ("paris", 'did you mean "Paris"?'),
        ("Pariss", 'did you mean "Paris"?'),
        ("Par", 'did you mean "Paris"?'),
        ("2", 'that is an id; write its label "Rome"'),
        ("Bern", 'write a label as the catalog has it, such as "Paris", "Rome"'),
        (2, "write the label as text, as the catalog has it"),
    ],
)
def test_an_example_is_answered_with_a_label(write, answer, help):
    field = {"x-catalog": {"source": "towns.csv", "value": "name", "id": "id"}}
    setup = {**INDEX, "examples": [{"context": "x", "answers": {"town": answer}}]}
    index, (told,) = parse_index_file(write({"x-pcdc": setup, "town": field}))
    assert (index, told.code, told.help) == (None, "PCDC236", help)


def test_a_label_among_very_many_is_found_by_what_it_nearly_is():
    labels = [
        f"{prefix}{n}-{suffix}" for n in range(20_000) for prefix, suffix in (("ab", "yz"), ("cd", "wx"))
    ]
    lookup = Lookup(Entries(labels, labels, lambda _: None), ["cd7-wx"])
    assert labels[lookup.find("cd7-wx")] == "cd7-wx"
    assert lookup.find("AB19999-YZ") == 'did you mean "ab19999-yz"?'
    assert lookup.find("ab19999_yz") == 'did you mean "ab19999-yz"?'


def test_a_definition_without_an_index_is_read_as_ever(write):
    schema, diagnostics = parse_file(write({"x-pcdc": {"index": False}, "town": CATALOG}))
    assert diagnostics == []
    assert [c.label for c in schema.fields[0].choices] == ["Paris", "Rome", "Oslo"]
