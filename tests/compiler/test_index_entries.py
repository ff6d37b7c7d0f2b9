"""Entries of an index: catalogs of any size as columns, judged by plain readings of the same files."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
import tempfile
import threading
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pcdc_runtime.visible import hidden

from pcdc.diagnostics import render_text
from pcdc.indexing import columns, definition, entries
from pcdc.indexing.parse import parse_index_file
from pcdc.uses import Uses

LABEL = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "Zs"]), min_size=1, max_size=8)
LABELS = st.lists(
    LABEL.filter(lambda label: label.strip() and not hidden(label)), min_size=2, max_size=20, unique=True
)


def parse(folder, catalog, files):
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    path = folder / "places.json"
    declared = {"x-pcdc": {"index": True}, "place": {"description": "Which?", "x-catalog": catalog}}
    path.write_text(json.dumps(declared), encoding="utf-8")
    return parse_index_file(path)


@pytest.fixture
def parsed(tmp_path):
    return lambda catalog, files: parse(tmp_path, catalog, files)


def accepted(found):
    index, diagnostics = found
    assert index is not None, render_text(diagnostics)
    assert diagnostics == []
    return index.entries


def errors(found):
    index, diagnostics = found
    assert index is None
    return diagnostics


def told(found):
    return [(d.code, d.location.line, d.location.column) for d in errors(found)]


def as_csv(rows):
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue()


@given(LABELS, st.sampled_from(["\n", "\r\n", "\r"]), st.booleans(), st.booleans())
@settings(max_examples=60)
def test_every_kind_of_file_gives_the_same_columns_in_the_order_of_its_rows(labels, ending, last, mark):
    ids = [f"id {n}" for n in range(len(labels))]
    objects = [{"key": i, "name": label} for i, label in zip(ids, labels, strict=True)]
    opening = b"\xef\xbb\xbf" if mark else b""
    files = {
        "a.txt": opening + (ending.join(labels) + (ending if last else "")).encode(),
        "a.csv": opening + as_csv([["key", "name"], *zip(ids, labels, strict=True)]).encode(),
        "a.json": opening + json.dumps(objects, ensure_ascii=last, indent=1).encode(),
        "a.jsonl": "\n".join(json.dumps(o, ensure_ascii=last) for o in objects).encode(),
        "b.json": json.dumps(labels).encode(),
    }
    named = {"value": "name", "id": "key"}
    with tempfile.TemporaryDirectory() as name:
        for source, given_ids in (("a.txt", 0), ("a.csv", 1), ("a.json", 1), ("a.jsonl", 1), ("b.json", 0)):
            found = accepted(parse(Path(name), {"source": source, **(named if given_ids else {})}, files))
            assert list(found.labels) == labels
            assert list(found.ids) == (ids if given_ids else labels)
            assert (found.ids is found.labels) == (not given_ids)


def test_places_are_those_of_the_labels_themselves(parsed):
    rows = [["id", "note", "name"], ["1", "two\nlines", "Rome"], ["2", '"', "Oslo"]]
    found = accepted(parsed({"source": "a.csv", "value": "name", "id": "id"}, {"a.csv": as_csv(rows)}))
    assert [(p.line, p.column) for p in map(found.locate, range(2))] == [(3, 8), (4, 8)]
    text = '[\n {"id": "1", "name": "Rome"},\n {"name": "Oslo",\n  "id": "2"}]'
    found = accepted(parsed({"source": "a.json", "value": "name", "id": "id"}, {"a.json": text}))
    assert [(p.line, p.column) for p in map(found.locate, range(2))] == [(2, 22), (3, 11)]
    found = accepted(parsed({"source": "a.txt"}, {"a.txt": "Rome\r\nOslo\r\n"}))
    assert [(p.line, p.column) for p in map(found.locate, range(2))] == [(1, 1), (2, 1)]


def test_a_file_that_changed_has_no_places_any_more(parsed, tmp_path):
    found = accepted(parsed({"source": "a.txt"}, {"a.txt": "Rome\nOslo\n"}))
    (tmp_path / "a.txt").write_text("Oslo\nRome\n")
    assert found.locate(0) is None


def test_field_report_titles_that_repeat_are_entries_of_their_own_where_there_are_ids(parsed):
    """A list of industries has 693 titles that stand twice, under codes of their own."""
    rows = [["code", "title"], *([str(n), f"Title {n % 1432}"] for n in range(2125))]
    files = {"naics.csv": as_csv(rows)}
    found = accepted(parsed({"source": "naics.csv", "value": "title", "id": "code"}, files))
    assert len(found) == 2125
    assert len(set(found.labels)) == 2125 - 693
    (without,) = errors(parsed({"source": "naics.csv", "value": "title"}, files))
    others = '"Title 1" on line 1435, "Title 2" on line 1436, ...'
    assert without.code == "PCDC245"
    assert (
        without.fact == f'has the label "Title 0", as that on line 2 has, and 692 more repeat one: {others}'
    )
    assert without.location.line == 1434
    assert "`id`" in without.help


@pytest.mark.parametrize(("count", "more"), [(2, ""), (3, ', and 1 more repeats one: "7" on line 4')])
def test_ids_that_repeat_are_one_finding_however_many(parsed, count, more):
    rows = [["id", "name"], *(["7", f"Town {n}"] for n in range(count))]
    (twice,) = errors(parsed({"source": "a.csv", "value": "name", "id": "id"}, {"a.csv": as_csv(rows)}))
    assert (twice.code, twice.fact) == ("PCDC244", f'has the id "7", as that on line 2 has{more}')


def test_where_keeps_rows_and_those_it_does_not_want_need_no_id(parsed):
    rows = [["id", "name", "kind"], ["1", "Rome", "city"], ["", "", "river"], ["3", "Oslo", "city"]]
    where = {"value": "name", "id": "id", "where": {"kind": "city"}}
    found = accepted(parsed({"source": "a.csv", **where}, {"a.csv": as_csv(rows)}))
    assert (found.labels, found.ids) == (["Rome", "Oslo"], ["1", "3"])
    objects = [
        {"id": "1", "name": "Rome", "size": 1},
        {"name": 5, "size": True},
        {"size": [1]},
        {"id": "3", "name": "Oslo", "size": 1.0},
    ]
    where = {"value": "name", "id": "id", "where": {"size": 1}}
    found = accepted(parsed({"source": "a.json", **where}, {"a.json": json.dumps(objects)}))
    assert found.labels == ["Rome", "Oslo"]


@pytest.mark.parametrize("name", ["a.csv", "a.json"])
def test_an_example_that_where_leaves_out_is_told_so(tmp_path, name):
    rows = [("Texas", "state"), ("Bayern", "land"), ("Utah", "state")]
    objects = [{"name": label, "kind": kind} for label, kind in rows]
    text = json.dumps(objects) if name == "a.json" else as_csv([["name", "kind"], *rows])
    (tmp_path / name).write_text(text)
    catalog = {"source": name, "value": "name", "where": {"kind": "state"}}
    examples = [
        {"context": f"in {label}", "answers": {"place": label}} for label in ("Texas", "Bayern", "Rom")
    ]
    declared = {"x-pcdc": {"index": True, "examples": examples}, "place": {"x-catalog": catalog}}
    (tmp_path / "definition.json").write_text(json.dumps(declared))
    left_out, unknown = errors(parse_index_file(tmp_path / "definition.json"))
    assert (left_out.code, unknown.code) == ("PCDC236", "PCDC236")
    assert ("`where` leaves it out" in left_out.help, "`where`" in unknown.help) == (True, False)


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_entries_are_no_index(parsed, count):
    (few,) = errors(parsed({"source": "a.txt"}, {"a.txt": "Rome\n" * count}))
    assert (few.code, few.fact) == ("PCDC212", "has 1 row" if count else "has no rows")


@pytest.mark.parametrize("kind", ["txt", "csv", "json", "jsonl"])
def test_more_entries_than_an_index_takes_are_told_once(parsed, monkeypatch, kind):
    monkeypatch.setattr(columns, "MAX_ENTRIES", 3)
    monkeypatch.setattr(entries, "MAX_ENTRIES", 3)
    names = ["a", "b", "c", "d"]
    files = {
        "a.txt": "\n".join(names),
        "a.csv": "value\n" + "\n".join(names),
        "a.json": json.dumps(names),
        "a.jsonl": "\n".join(json.dumps(n) for n in names),
    }
    catalog = {"source": f"a.{kind}", **({"value": "value"} if kind == "csv" else {})}
    (many,) = errors(parsed(catalog, files))
    assert (many.code, many.fact) == ("PCDC213", "has more than 3 rows")
    files = {
        name: text.replace("\nd", "").replace(', "d"', "").replace('\n"d"', "")
        for name, text in files.items()
    }
    assert len(accepted(parsed(catalog, files))) == 3


def test_a_hostile_file_of_line_ends_is_refused_before_it_is_split(parsed, monkeypatch):
    monkeypatch.setattr(columns, "MAX_ENTRIES", 100)
    (many,) = errors(parsed({"source": "a.txt"}, {"a.txt": "\n" * 1000}))
    assert many.code == "PCDC213"


def test_a_file_larger_than_an_index_takes_says_what_the_limit_is(parsed, monkeypatch):
    monkeypatch.setattr(entries, "MAX_CATALOG_BYTES", 5)
    (large,) = errors(parsed({"source": "a.txt"}, {"a.txt": "Rome\nOslo\n"}))
    assert large.code == "PCDC102"
    assert "1 GiB" in large.help


def test_a_catalog_may_be_larger_than_that_of_a_field(parsed):
    lines = [f"{n:07} {'x' * 100}" for n in range(90_000)]
    found = accepted(parsed({"source": "a.txt"}, {"a.txt": "\n".join(lines)}))
    assert list(found.labels) == lines


def test_json_is_as_strict_as_that_of_a_definition(parsed):
    texts = {
        '["a", "b" "c"]': ("PCDC105", 1, 11),
        '["a",\n "b",]': ("PCDC105", 2, 5),
        '["a", "\\ud800"]': ("PCDC105", 1, 8),
        '["a", "b", {"n": 1e999}]': ("PCDC105", 1, 18),
        '["a", "b", {"n": NaN}]': ("PCDC105", 1, 18),
        '["a", "b", {"value": "c", "value": "d"}]': ("PCDC106", 1, 27),
        '["a", "b"] 1': ("PCDC105", 1, 12),
        '{"a": 1}': ("PCDC105", 1, 1),
        "": ("PCDC105", 1, 1),
        '["a", "b"': ("PCDC105", 1, 10),
        '["a", ' + "[" * 5000: ("PCDC107", 1, 70),
    }
    for text, place in texts.items():
        assert told(parsed({"source": "a.json"}, {"a.json": text})) == [place], text


def test_half_a_character_is_found_among_whole_ones_spelled_in_halves(parsed):
    found = accepted(parsed({"source": "a.json"}, {"a.json": '["\\ud83d\\ude00", "b"]'}))
    assert found.labels[0] == "\U0001f600"
    lines = '"\\ud83d\\ude00"\n"\\ud83d"\n"b"\n'
    assert told(parsed({"source": "a.jsonl"}, {"a.jsonl": lines})) == [("PCDC105", 2, 2)]


def test_every_faulty_line_of_json_lines_is_told_and_no_rest_of_one(parsed):
    text = '"a"\n{"value": \n"b"}\n\n"c" d\n{"value": "e", "value": "f"}\n5\n'
    assert told(parsed({"source": "a.jsonl"}, {"a.jsonl": text})) == [
        ("PCDC105", 2, 1),
        ("PCDC105", 4, 1),
        ("PCDC105", 5, 5),
        ("PCDC106", 6, 16),
        ("PCDC232", 7, 1),
    ]


def test_labels_and_ids_that_nobody_can_see_are_told_with_their_places(parsed):
    rows = [["id", "name"], ["1", "a\u200bb"], ["2\u200b", "c"], ["\t", "d"], ["4", " "], ["5", "x" * 2001]]
    found = parsed({"source": "a.csv", "value": "name", "id": "id"}, {"a.csv": as_csv(rows)})
    assert told(found) == [
        ("PCDC218", 2, 3),
        ("PCDC246", 3, 1),
        ("PCDC246", 4, 1),
        ("PCDC216", 5, 3),
        ("PCDC217", 6, 3),
    ]


def test_joiners_between_letters_that_join_are_seen(parsed):
    word = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"
    assert accepted(parsed({"source": "a.txt"}, {"a.txt": f"{word}\nb\n"})).labels[0] == word


@pytest.mark.parametrize(
    ("catalog", "content"),
    [
        ({"source": "a.txt"}, "a\nb\n" + "\n" * 3000),
        ({"source": "a.txt"}, "a\r\nb\r\n" + " \r\n" * 3000),
        ({"source": "a.csv", "value": "v"}, "v\na\nb\n" + "c,d\n" * 3000),
        ({"source": "a.jsonl"}, '"a"\n"b"\n' + "{\n" * 3000),
        ({"source": "a.json"}, '["a", "b"' + ", 1" * 3000 + "]"),
    ],
    ids=["txt", "crlf", "csv", "jsonl", "json"],
)
def test_a_file_of_faulty_rows_is_not_read_to_its_end(parsed, monkeypatch, catalog, content):
    refused = list[object]()
    refuse = columns.Read.refuse
    monkeypatch.setattr(columns.Read, "refuse", lambda *args: (refused.append(args), refuse(*args))[1])
    found = errors(parsed(catalog, {catalog["source"]: content}))
    assert len(refused) == columns.MAX_FAULTY + 1
    assert len(found) == columns.TOLD + 1
    assert found[-1].fact == "has more than 1,000 rows that cannot be read"
    assert found[-1].limit == "the first 20 are named, and after as many it was not read on"


def test_as_many_faulty_rows_as_are_read_are_counted(parsed):
    content = "a\nb\n" + "\n" * columns.MAX_FAULTY
    found = errors(parsed({"source": "a.txt"}, {"a.txt": content}))
    assert found[-1].fact == "has 980 more rows that cannot be read"


def test_of_very_many_faulty_rows_the_first_are_told_and_how_many_there_are(parsed):
    rows = [["name"], *(["", "surplus"] for _ in range(100))]
    found = errors(parsed({"source": "a.csv", "value": "name"}, {"a.csv": as_csv(rows)}))
    assert len(found) == columns.TOLD + 1
    assert found[-1].fact == "has 80 more rows that cannot be read"


@pytest.mark.parametrize("data", [b"a\xff\n", "a\nb\n".encode("utf-16")])
def test_a_catalog_that_is_no_utf_8_is_told(parsed, data):
    (wrong,) = errors(parsed({"source": "a.txt"}, {"a.txt": data}))
    assert wrong.code == "PCDC104"


def table(folder, rows):
    with closing(sqlite3.connect(folder / "a.db")) as connection:
        connection.execute("create table place (id, name)")
        connection.executemany("insert into place values (?, ?)", rows)
        connection.commit()


QUERY = {"source": "sqlite:///a.db", "query": "select name, id from place order by rowid"}


def test_rows_of_a_database_are_entries_in_their_order_however_many(parsed, tmp_path):
    table(tmp_path, [(f"i{n}", f"n{n % 500}") for n in range(5000)])
    found = accepted(parsed({**QUERY, "id": "id"}, {}))
    assert found.labels == [f"n{n % 500}" for n in range(5000)]
    assert found.ids == [f"i{n}" for n in range(5000)]
    assert (found.locate(4999).line, found.locate(4999).column) == (5000, 0)


def test_rows_of_a_database_that_are_no_entries_are_told_with_their_rows(parsed, tmp_path):
    table(tmp_path, [("1", "Rome"), ("2", None), (3, "Oslo"), ("4", 5), ("1", "Bern")])
    found = errors(parsed({**QUERY, "id": "id"}, {}))
    assert [(d.code, d.location.line) for d in found] == [
        ("PCDC232", 2),
        ("PCDC232", 3),
        ("PCDC232", 4),
        ("PCDC244", 5),
    ]
    assert found[-1].fact == 'has the id "1", as row 1 has'


def test_a_query_is_asked_for_its_order_and_its_columns(parsed, tmp_path):
    table(tmp_path, [("1", "Rome"), ("2", "Oslo")])
    asked = {"source": "sqlite:///a.db", "query": "select name from place", "id": "ident"}
    assert [d.code for d in errors(parsed(asked, {}))] == ["PCDC254", "PCDC231"]


def test_a_change_in_any_row_of_a_query_is_noticed(tmp_path):
    table(tmp_path, [(str(n), f"n{n}") for n in range(3000)])
    path = tmp_path / "places.json"
    path.write_text(json.dumps({"x-pcdc": {"index": True}, "place": {"x-catalog": QUERY}}))
    answered = threading.Event()
    uses = Uses(0.0, answered.set)
    uses.files(path)
    answers = []
    for name in ("n2999", "other"):
        with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
            connection.execute("update place set name = ? where id = '2999'", [name])
            connection.commit()
        uses.ask([path], len(answers))
        assert answered.wait(30)
        answered.clear()
        answers.append(uses.answers(path))
    assert answers[0] != answers[1]


def test_the_limits_are_those_that_are_stated():
    assert (definition.MIN_ENTRIES, definition.MAX_ENTRIES) == (2, 10_000_000)
    assert entries.MAX_CATALOG_BYTES == 1024**3
