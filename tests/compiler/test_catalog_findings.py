"""What a catalog's declaration and rows get wrong is told all at once, with a help that fits a catalog."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pcdc.parse import parse_file


@pytest.fixture
def found(tmp_path):
    """The findings for a field with this catalog beside these files."""

    def find(catalog, files, **more):
        for name, content in files.items():
            (tmp_path / name).write_text(content, encoding="utf-8")
        definition = {"team": {"description": "Which team?", "x-catalog": catalog, **more}}
        path = tmp_path / "schema.json"
        path.write_text(json.dumps(definition), encoding="utf-8")
        return parse_file(path)[1]

    return find


def written_at(told):
    """The definition from a finding's place on."""
    return Path(told.location.path).read_text(encoding="utf-8")[told.location.column - 1 :]


TABLE = "code,label,active\nB,Billing,yes\nA,Accounts,no\nT,Tech,yes\n"
OBJECTS = json.dumps([{"code": c, "label": c, "active": "yes"} for c in "AB"])


@pytest.mark.parametrize(("name", "content"), [("t.csv", TABLE), ("t.json", OBJECTS)])
def test_all_columns_that_are_not_there_are_told_at_once(found, name, content):
    asked = {"value": "cod", "description": "lable", "where": {"activ": "yes"}}
    told = found({"source": name, **asked}, {name: content})
    assert [(d.code, d.help) for d in told] == [
        ("PCDC231", f"did you mean `{right}`?") for right in ("code", "label", "active")
    ]


def test_every_bad_line_of_json_is_told_and_the_rest_counted(found):
    lines = ['"a"', '{"valu": "x"}', "{bad", "3", "", '{"value": 4}', '{"value":', '"b"}', "null", '"a"']
    told = found({"source": "t.jsonl"}, {"t.jsonl": "\n".join(lines) + "\n"})
    assert [(d.code, d.location.line) for d in told] == [
        ("PCDC109", 2),
        ("PCDC105", 3),
        ("PCDC232", 4),
        ("PCDC105", 5),
        ("PCDC232", 6),
        ("PCDC105", 7),
        ("PCDC232", 9),
        ("PCDC219", 10),
    ]
    many = found({"source": "t.jsonl"}, {"t.jsonl": "{bad\n" * 50})
    assert len(many) == 21
    assert any(d.fact == "has 30 more rows that cannot be read" for d in many)


def test_all_variables_that_are_not_set_are_named(found, monkeypatch):
    monkeypatch.setenv("U3", "x")
    source = "postgresql+psycopg://${U1}:${U3}@host/${U2}"
    (told,) = found({"source": source, "query": "select a from t order by a"}, {})
    assert (told.code, "variables U1, U2, which are not set" in told.fact) == ("PCDC111", True)
    monkeypatch.setenv("U4", source)
    (told,) = found({"source": "${U4}", "query": "select a from t order by a"}, {})
    assert "variables U1, U2, which are not set" in told.fact


def test_each_blank_line_is_told_once_with_a_help_for_lines(found):
    told = found({"source": "t.txt"}, {"t.txt": "ops\nsales\n\n  \n\n"})
    assert [(d.code, d.location.line, d.help) for d in told] == [
        ("PCDC216", line, "remove the empty line") for line in (3, 4, 5)
    ]


def test_empty_cells_are_no_duplicates_of_each_other(found):
    told = found({"source": "t.csv", "value": "b"}, {"t.csv": "a,b\n1,\n2,\n3,x\n"})
    assert [(d.code, d.location.line) for d in told] == [("PCDC216", 2), ("PCDC216", 3)]
    assert all(d.help.endswith("or remove the row") for d in told)


@pytest.mark.parametrize(
    ("catalog", "content", "fact", "at"),
    [
        ({"where": {"active": "maybe"}}, TABLE, "0 of 3 rows match `where`", {"active": "maybe"}),
        ({"where": {"active": "no"}}, TABLE, "1 of 3 rows match `where`", {"active": "no"}),
        ({}, "code\n", "has no rows", "t.csv"),
        ({}, "code\nB\n", "has 1 row", "t.csv"),
    ],
)
def test_too_few_rows_are_told_where_the_catalog_asks(found, catalog, content, fact, at):
    (told,) = found({"source": "t.csv", "value": "code", **catalog}, {"t.csv": content})
    assert (told.code, told.subject, told.fact) == ("PCDC212", 'catalog of field "team"', fact)
    assert written_at(told).startswith(json.dumps(at))
    assert ("`where`" in told.help, "add rows" in told.help) == ("where" in catalog, True)


def test_one_row_is_enough_beside_another_choice(tmp_path):
    (tmp_path / "t.txt").write_text("a\n", encoding="utf-8")
    catalog = {"type": "string", "x-catalog": {"source": "t.txt"}}
    path = tmp_path / "schema.json"
    path.write_text(json.dumps({"f": {"description": "?", "anyOf": [catalog, {"type": "null"}]}}))
    assert parse_file(path)[1] == []


@pytest.mark.parametrize(
    ("source", "help"),
    [
        ("t.cvs", "did you mean `.csv`?"),
        ("t.jsn", "did you mean `.json`?"),
        ("t.xyz", "write its rows to a CSV file"),
        ("${FOLDER}/t.csv", "variables are for the URLs of databases only"),
        ("${FOLDER}/t", "variables are for the URLs of databases only"),
    ],
)
def test_a_source_that_is_nearly_right_is_told_what_was_meant(found, source, help):
    (told,) = found({"source": source, "value": "code"}, {})
    assert help in told.help


@pytest.mark.parametrize(
    ("column", "help"), [("lable", "did you mean `label`?"), ("zz", 'the columns are "code", "label"')]
)
def test_a_query_that_fails_is_told_at_the_query_with_the_columns_that_there_are(
    found, tmp_path, column, help
):
    with closing(sqlite3.connect(tmp_path / "ops.db")) as database:
        database.execute("create table teams (code text, label text)")
    query = f"select {column} from teams order by code"
    (told,) = found({"source": "sqlite:///ops.db", "query": query}, {})
    assert (told.code, told.help.startswith(help)) == ("PCDC110", True)
    assert written_at(told).startswith(json.dumps(query))
