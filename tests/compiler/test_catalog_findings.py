"""What a catalog's declaration and rows get wrong is told all at once, with a help that fits a catalog."""

from __future__ import annotations

import json

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
