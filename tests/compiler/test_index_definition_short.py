"""The short way to an index: a catalog file, and what a command line asks of it."""

from __future__ import annotations

import json

import pytest

from pcdc.diagnostics import render_text
from pcdc.indexing.parse import parse_index_file
from pcdc.indexing.shortcut import definition_of_catalog
from pcdc.parse import parse_file

TABLE = "id,name\n1,Paris\n2,Rome\n3,Rome => Milan\n"


@pytest.fixture
def table(tmp_path):
    (tmp_path / "towns.csv").write_text(TABLE)
    return tmp_path / "towns.csv"


def accepted(found):
    index, diagnostics = found
    assert index is not None, render_text(diagnostics)
    assert diagnostics == []
    return index


def test_the_short_way_is_the_definition_that_says_the_same(table, monkeypatch):
    setup = {
        "index": True,
        "instructions": "Find it.",
        "examples": [{"context": "Seine", "answers": {"town": "Paris"}}],
    }
    catalog = {"source": "towns.csv", "value": "name", "id": "id"}
    written = {"x-pcdc": setup, "town": {"description": "Which?", "x-catalog": catalog}}
    (table.parent / "towns.json").write_text(json.dumps(written))
    asked = {"field": "town", "id": "id", "value": "name", "instructions": "Find it."}
    monkeypatch.chdir(table.parent)
    index = accepted(definition_of_catalog(table, "Which?", ["Seine => Paris"], **asked))
    assert index == accepted(parse_index_file(table.parent / "towns.json"))
    assert [use.path for use in index.catalogs] == [table]
    assert index.entries.locate(1).line == 3


def test_without_options_a_list_is_asked_nothing_under_the_name_of_its_file(tmp_path):
    (tmp_path / "towns.txt").write_text("Paris\nRome\n")
    index = accepted(definition_of_catalog(tmp_path / "towns.txt"))
    assert (index.name, index.field, index.question, index.examples) == ("towns", "answer", "", ())


@pytest.mark.parametrize(
    ("example", "pair"),
    [
        ("Seine => Paris", ("Seine", "Paris")),
        ("a => b => Paris", ("a => b", "Paris")),
        ("a => Rome => Milan", ("a", "Rome => Milan")),
        ("Paris => Rome => Rome", ("Paris => Rome", "Rome")),
    ],
)
def test_an_example_is_parted_at_the_last_arrow_that_a_label_follows(table, example, pair):
    index = accepted(definition_of_catalog(table, "?", [example], value="name"))
    assert index.examples == (pair,)


def test_examples_that_are_none_are_all_told_by_their_positions(table):
    examples = ["no arrow", "a => Paris", "a => Rome", "b => pariss", " => Rome", "c=>Rome", "d => 2"]
    index, diagnostics = definition_of_catalog(table, "?", examples, value="name", id="id")
    assert index is None
    assert [(d.code, d.subject, d.help) for d in diagnostics if d.code == "PCDC236"] == [
        ("PCDC236", 'example 4, field "answer"', 'did you mean "Paris"?'),
        ("PCDC236", 'example 7, field "answer"', 'that is an id; write its label "Rome"'),
    ]
    assert [(d.subject, d.fact) for d in diagnostics if d.code == "PCDC237"] == [
        ("example 1", 'has no " => "'),
        ("example 6", 'has no " => "'),
        ("example 3", "has the text of example 2"),
        ("example 5", "has a blank text"),
    ]


def test_columns_are_named_by_options(table):
    _, (missing,) = definition_of_catalog(table, "?")
    assert (missing.code, missing.help) == ("PCDC230", "name it with `--value`")
    _, wrong = definition_of_catalog(table, "?", value="nam", id="ident")
    assert [(d.code, d.subject) for d in wrong] == [("PCDC231", "`--value`"), ("PCDC231", "`--id`")]
    table.write_text(TABLE.replace(",", ";"))
    for asked in ({}, {"value": "name"}):
        _, (unsplit,) = definition_of_catalog(table, "?", **asked)
        assert 'the columns are "id;name"' in unsplit.limit
        assert unsplit.help.startswith("cells are separated by commas in .csv and by tabs in .tsv")
    table.write_text(TABLE + "4,Rome\n")
    _, (twice,) = definition_of_catalog(table, "?", value="name")
    assert twice.code == "PCDC245"
    assert "`--id`" in twice.help


@pytest.mark.parametrize("name", ["t.json", "t.jsonl"])
def test_objects_without_a_key_that_is_named_are_told_of_once_with_their_keys(tmp_path, name):
    rows = [json.dumps({"code": str(n), "title": f"t{n}"}) for n in range(100)]
    text = "\n".join(rows) if name.endswith("l") else f"[{','.join(rows)}]"
    (tmp_path / name).write_text(text)
    _, (unnamed,) = definition_of_catalog(tmp_path / name, "?")
    assert (unnamed.code, unnamed.fact) == ("PCDC230", "names no key for the value")
    assert (unnamed.limit, unnamed.help) == ('the keys are "code", "title"', "name it with `--value`")
    for settings in ({"index": True}, {}):
        declared = {"x-pcdc": settings, "a": {"description": "?", "x-catalog": {"source": name}}}
        (tmp_path / "definition.json").write_text(json.dumps(declared))
        parse = parse_index_file if settings else parse_file
        _, (unnamed,) = parse(tmp_path / "definition.json")
        assert (unnamed.code, unnamed.help) == ("PCDC230", 'add `"value": "code"`')


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("none.csv", None, "PCDC101"),
        ("a.xlsx", "x", "PCDC230"),
        ("a.txt", "Paris\n", "PCDC212"),
        ("a.json", '{"x-pcdc": {"index": true}}', "PCDC105"),
    ],
)
def test_what_is_no_catalog_is_told(tmp_path, name, content, code):
    if content is not None:
        (tmp_path / name).write_text(content)
    index, (told,) = definition_of_catalog(tmp_path / name, "?")
    assert (index, told.code) == (None, code)


def test_a_folder_is_no_catalog(tmp_path):
    _, (told,) = definition_of_catalog(tmp_path, "?")
    assert (told.code, told.fact) == ("PCDC101", "is no regular file")


def test_words_of_a_command_line_that_are_no_unicode_are_told(table):
    _, (told,) = definition_of_catalog(table, "Which \udcff?", value="name")
    assert (told.code, told.subject) == ("PCDC228", "`--question`")
    _, (told,) = definition_of_catalog(table, "?", ["\udcff => Paris"], value="name")
    assert told.code == "PCDC228"


def test_a_field_has_a_name_that_shows(table):
    _, (told,) = definition_of_catalog(table, "?", value="name", field=" ")
    assert told.code == "PCDC204"
