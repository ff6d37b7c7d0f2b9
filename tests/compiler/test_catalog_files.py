"""Choices read from files: every cell is text, rows keep their order, what is wrong has its row."""

from __future__ import annotations

import json
import os

import pytest

from pcdc.cache import input_record
from pcdc.diagnostics import render_text
from pcdc.parse import catalogs_of, parse_file, parse_mapping
from pcdc.schema import FieldDefinition, SchemaError, StructuredSchema
from pcdc.table import Table


@pytest.fixture
def parsed(tmp_path):
    """Parses a field with this catalog beside these files: name to text or bytes."""

    def parse(catalog, files, **more):
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        definition = {"team": {"description": "Which team?", "x-catalog": catalog, **more}}
        (tmp_path / "schema.json").write_text(json.dumps(definition), encoding="utf-8")
        return parse_file(tmp_path / "schema.json")

    return parse


def choices(found):
    schema, diagnostics = found
    assert schema is not None, render_text(diagnostics)
    return [(c.value, c.description) for c in schema.fields[0].choices]


def errors(found):
    schema, diagnostics = found
    assert schema is None
    return [d for d in diagnostics if d.severity == "error"]


def error(found):
    (one,) = errors(found)
    return one


TABLE = "code,label,active\nB,Billing,yes\nA,Accounts,no\nT,Tech,yes\n"
CODE = {"source": "teams.csv", "value": "code"}
OBJECTS = [
    {"code": "B", "label": "Billing", "active": True},
    {"code": "A", "label": "Accounts", "active": False},
    {"code": "T", "label": "Tech", "active": True},
]


@pytest.mark.parametrize(
    ("catalog", "content", "expected"),
    [
        ({"source": "teams.txt"}, "B\nA\nT\n", [("B", ""), ("A", ""), ("T", "")]),
        ({**CODE}, TABLE, [("B", ""), ("A", ""), ("T", "")]),
        ({**CODE, "description": "label"}, TABLE, [("B", "Billing"), ("A", "Accounts"), ("T", "Tech")]),
        ({**CODE, "where": {"active": "yes"}}, TABLE, [("B", ""), ("T", "")]),
        ({"source": "teams.tsv", "value": "code"}, "code\tn\nB\t1\nA\t2\n", [("B", ""), ("A", "")]),
        ({"source": "teams.json"}, '["B", "A"]', [("B", ""), ("A", "")]),
        ({"source": "teams.json"}, '["B", {"value": "A", "description": "x"}]', [("B", ""), ("A", "x")]),
        (
            {"source": "t.json", "value": "code", "description": "label", "where": {"active": True}},
            json.dumps(OBJECTS),
            [("B", "Billing"), ("T", "Tech")],
        ),
        ({"source": "t.jsonl"}, '"B"\n {"value": "A"} \n', [("B", ""), ("A", "")]),
        (
            {"source": "t.jsonl", "value": "code", "where": {"active": False, "label": "Accounts"}},
            "\n".join(map(json.dumps, [*OBJECTS, {**OBJECTS[1], "code": "X"}])),
            [("A", ""), ("X", "")],
        ),
    ],
)
def test_choices_stand_in_the_order_of_their_source(parsed, catalog, content, expected):
    assert choices(parsed(catalog, {catalog["source"]: content})) == expected


def test_report_19_every_cell_is_text_and_none_is_dropped(parsed):
    """Field report 19."""
    rows = ["0101.21", "00060", "NA", "null", "017", "1e5", "TRUE", "2024-01-02", " x"]
    found = parsed(CODE, {"teams.csv": "code\n" + "\n".join(rows)})
    assert [value for value, _ in choices(found)] == rows
    empty = error(parsed(CODE, {"teams.csv": "label,code\nx,A\ny,\nz,B\n"}))
    assert (empty.code, empty.location.line, empty.location.column) == ("PCDC216", 3, 3)
    assert empty.location.path.endswith("teams.csv")


def test_quoted_cells_hold_separators_quotes_and_line_breaks(parsed):
    table = 'label,code\n"a, ""b""\r\nc",A\nplain "x",B\n'
    found = parsed({**CODE, "description": "label"}, {"teams.csv": table})
    assert choices(found) == [("A", 'a, "b"\r\nc'), ("B", 'plain "x"')]
    twice = parsed(CODE, {"teams.csv": 'label,code\n"a, ""b""\nc",A\nx,A\n'})
    assert (error(twice).code, error(twice).location.line, error(twice).location.column) == ("PCDC219", 4, 3)


@pytest.mark.parametrize("name", ["t.txt", "t.csv", "t.json", "t.jsonl"])
def test_report_29_marks_and_line_ends_are_no_part_of_a_choice(parsed, name):
    """Field report 29."""
    text = {"t.txt": "B\nA\n", "t.csv": "code\nB\nA\n", "t.json": '["B",\n"A"]\n', "t.jsonl": '"B"\n"A"\n'}[
        name
    ]
    catalog = {"source": name, **({"value": "code"} if name == "t.csv" else {})}
    plain = text.encode()
    forms = [plain, b"\xef\xbb\xbf" + plain, plain.replace(b"\n", b"\r\n"), plain.rstrip(b"\n")]
    forms.append(b"\xef\xbb\xbf" + plain.replace(b"\n", b"\r"))
    schemas = [parsed(catalog, {name: form})[0] for form in forms]
    assert [c.label for c in schemas[0].fields[0].choices] == ["B", "A"]
    assert len({input_record(schema, "f", "t")["key"] for schema in schemas}) == 1


def test_report_29_other_encodings_are_refused_with_their_place(parsed):
    """Field report 29."""
    wide = error(parsed({"source": "t.txt"}, {"t.txt": "a\nb\n".encode("utf-16")}))
    assert (wide.code, wide.limit) == ("PCDC104", "catalogs are UTF-8")
    bad = error(parsed({"source": "t.txt"}, {"t.txt": b"ok\nA\xffB\n"}))
    assert (bad.code, bad.location.line, bad.location.column) == ("PCDC104", 2, 2)
    assert "offset 4" in bad.fact


@pytest.mark.parametrize(
    ("name", "content", "code", "place"),
    [
        ("t.txt", b"a\0b\nc\n", "PCDC218", (1, 1)),
        ("t.txt", b"\0a\nc\n", "PCDC218", (1, 1)),
        ("t.csv", b"v\na\nb\0c\n", "PCDC218", (3, 1)),
        ("t.json", b'["a", "b\0"]', "PCDC105", (1, 9)),
    ],
)
def test_a_nul_is_a_character_that_cannot_be_seen_and_no_other_encoding(parsed, name, content, code, place):
    columns = {"value": "v"} if name == "t.csv" else {}
    found = error(parsed({"source": name, **columns}, {name: content}))
    assert (found.code, found.location.line, found.location.column) == (code, *place)
    assert "U+0000" in found.fact


def test_a_cell_that_is_too_long_is_told_as_that(parsed):
    content = 'v\na\n"' + "b" * 140_000
    found = error(parsed({"source": "t.csv", "value": "v"}, {"t.csv": content}))
    assert (found.code, found.location.line) == ("PCDC109", 3)
    assert found.fact == "has a cell of more than 131,072 characters"
    assert found.help == "shorten it (a label has at most 2,000 characters), or close its quotes"


@pytest.mark.parametrize("header", [",", "code,label"])
def test_a_column_that_is_not_there_is_told_with_where_columns_are_named(parsed, header):
    found = error(parsed({"source": "t.csv", "value": "name"}, {"t.csv": f"{header}\na,b\nc,d\n"}))
    assert (found.code, found.help) == ("PCDC231", "the first row names the columns")


def test_what_helps_against_a_deep_nest_is_said_of_what_nests(parsed):
    deep = error(parsed({"source": "t.json"}, {"t.json": "[" * 100}))
    assert (deep.code, deep.help) == ("PCDC107", "a catalog is an array of texts or flat objects")
    deep = error(parsed({"source": "t.jsonl"}, {"t.jsonl": '"a"\n"b"\n' + "[" * 100}))
    assert (deep.code, deep.help) == ("PCDC107", "a line is a text or a flat object")


@pytest.mark.parametrize("breaker", ["\u2028", "\x0b", "\x0c", "\x85"])
def test_only_line_breaks_end_a_line(parsed, breaker):
    found = parsed({"source": "t.txt"}, {"t.txt": f"a{breaker}b\nc\n"})
    assert [d.code for d in errors(found)] == ["PCDC218"]


@pytest.mark.parametrize(
    ("catalog", "content", "code", "place", "words"),
    [
        ({"source": "t.txt"}, "a\n\nb\n", "PCDC216", (2, 1), "is empty"),
        ({"source": "t.txt"}, "a\nb\n  \n", "PCDC216", (3, 1), "only blanks"),
        ({"source": "t.txt"}, "a\nb\n\n", "PCDC216", (3, 1), "is empty"),
        ({"source": "t.txt"}, "a\nb\na\n", "PCDC219", (3, 1), "choice 1 again"),
        ({"source": "t.txt"}, "a\n" + "b" * 2001, "PCDC217", (2, 1), "2001 characters"),
        ({**CODE, "source": "t.csv"}, "code,label\na,x\nb\nc,y\n", "PCDC109", (3, 1), "has 1 cell"),
        ({**CODE, "source": "t.csv"}, "code,label\na,x\nb,y, z\nc,y\n", "PCDC109", (3, 1), "has 3 cells"),
        ({**CODE, "source": "t.csv"}, "code,label\na,x\n\nc,y\n", "PCDC109", (3, 1), "blank line"),
        ({**CODE, "source": "t.csv"}, 'code\na\nb\n"c\nd\n', "PCDC109", (4, 1), "unexpected end of data"),
        ({**CODE, "source": "t.csv"}, 'code\na\n"b"x\n', "PCDC109", (3, 1), "expected after"),
        ({**CODE, "source": "t.csv"}, "", "PCDC109", (1, 1), "is empty"),
        ({**CODE, "source": "t.csv"}, "\ncode\na\nb\n", "PCDC109", (1, 1), "is empty"),
        ({"source": "t.json"}, '["a",\n 3, "b"]', "PCDC232", (2, 2), "is a number"),
        ({"source": "t.json"}, '["a", null, "b"]', "PCDC232", (1, 7), "is null"),
        ({"source": "t.json"}, '["a", ["b"], "c"]', "PCDC232", (1, 7), "is an array"),
        ({"source": "t.json"}, '["a", "b", {"valeu": "c"}]', "PCDC109", (1, 12), 'has no "value"'),
        ({"source": "t.json"}, '[{"value": "a", "description": 3}, "b"]', "PCDC232", (1, 32), "description"),
        ({"source": "t.json"}, '{"a": 1}', "PCDC105", (1, 1), "is an object"),
        ({"source": "t.json"}, '["a", "b"', "PCDC105", (1, 10), "where a comma"),
        ({"source": "t.json"}, '["a", {"value": "b", "value": "c"}]', "PCDC106", (1, 22), "declared twice"),
        ({"source": "t.json"}, "", "PCDC105", (1, 1), "is empty"),
        ({"source": "t.json"}, "[" * 5000, "PCDC107", (1, 65), "nested too deep"),
        ({"source": "t.jsonl"}, '"a"\n' + '{"a":' * 5000, "PCDC107", (2, 321), "nested too deep"),
        ({"source": "t.jsonl"}, '"a"\n"b" "c"\n', "PCDC105", (2, 5), "goes on with"),
        ({"source": "t.jsonl"}, '"a"\n\n"b"\n', "PCDC105", (2, 1), "is blank"),
        ({"source": "t.jsonl"}, '"a"\n{"value":\n"b"}\n', "PCDC105", (2, 1), "more than one line"),
        ({"source": "t.jsonl"}, '"a"\n{"value": 7}\n"c"\n', "PCDC232", (2, 11), "is a number"),
        ({"source": "t.jsonl"}, '"a"\n"b\n', "PCDC105", (2, 3), "ends before its value"),
    ],
)
def test_what_is_wrong_with_a_row_stands_in_the_catalog_at_its_place(
    parsed, catalog, content, code, place, words
):
    found = error(parsed(catalog, {catalog["source"]: content}))
    assert found.location.path.endswith(catalog["source"])
    assert (found.code, (found.location.line, found.location.column)) == (code, place)
    assert words in found.fact


def test_all_rows_that_are_wrong_are_told_at_once(parsed):
    found = errors(parsed(CODE, {"teams.csv": "code,label\na,x\n,y\nb\na,z\n"}))
    assert [(d.code, d.location.line) for d in found] == [("PCDC216", 3), ("PCDC109", 4), ("PCDC219", 5)]
    assert "choice 4 of" in found[2].subject


def test_choices_that_look_alike_are_told_with_their_row(parsed):
    _, found = parsed({"source": "t.txt"}, {"t.txt": "Billing\nTech\nbilling\n"})
    assert [(d.code, d.severity, d.location.line) for d in found] == [("PCDC252", "warning", 3)]


@pytest.mark.parametrize(
    ("catalog", "code", "keyword", "help"),
    [
        ({"source": "teams.csv", "value": "cod"}, "PCDC231", "cod", "did you mean `code`?"),
        ({**CODE, "description": "Label"}, "PCDC231", "Label", "did you mean `label`?"),
        ({**CODE, "where": {"activ": "yes"}}, "PCDC231", {"activ": "yes"}, "did you mean `active`?"),
        ({**CODE, "where": {"active": 1}}, "PCDC230", {"active": 1}, "in quotes"),
        ({"source": "teams.csv"}, "PCDC230", "teams.csv", 'add `"value": "code"`'),
        ({"source": "t.json", "value": "codes"}, "PCDC231", "codes", "did you mean `code`?"),
        ({"source": "t.json", "value": "code", "where": {"x": 1}}, "PCDC231", {"x": 1}, ""),
        ({"source": "teams.xlsx"}, "PCDC230", "teams.xlsx", ""),
        ({"source": "teams.yaml"}, "PCDC230", "teams.yaml", ""),
        ({"source": "teams"}, "PCDC230", "teams", ""),
        ({"source": "https://host/teams.csv"}, "PCDC230", "https://host/teams.csv", "into a file first"),
        ({"source": "t.txt", "value": "code"}, "PCDC230", "code", "leave it out"),
        (
            {"source": "teams.csv", "value": "code", "query": "select 1"},
            "PCDC230",
            "select 1",
            "leave it out",
        ),
        ({"source": " "}, "PCDC230", " ", "a path"),
        ({"value": "code"}, "PCDC230", {"value": "code"}, "a path"),
        ({"source": 3}, "PCDC201", 3, ""),
        ({**CODE, "where": {"active": ["yes"]}}, "PCDC201", ["yes"], ""),
        ({**CODE, "wher": {}}, "PCDC205", None, "did you mean `where`?"),
        ({"source": "missing.csv", "value": "x"}, "PCDC101", "missing.csv", "relative to the definition"),
        ({"source": "folder.csv", "value": "x"}, "PCDC101", "folder.csv", "relative to the definition"),
        ({"source": "pipe.txt"}, "PCDC101", "pipe.txt", "relative to the definition"),
        ({"source": "/dev/zero.txt/../../dev/null.txt"}, "PCDC101", "/dev/zero.txt/../../dev/null.txt", ""),
        ({"source": "a\u0000b.txt"}, "PCDC101", "a\u0000b.txt", ""),
    ],
)
def test_what_a_definition_asks_wrongly_is_told_where_it_is_asked(
    parsed, tmp_path, catalog, code, keyword, help
):
    (tmp_path / "folder.csv").mkdir()
    os.mkfifo(tmp_path / "pipe.txt")
    files = {"teams.csv": TABLE, "t.txt": "a\nb\n", "t.json": json.dumps(OBJECTS)}
    found = error(parsed(catalog, files))
    assert (found.code, found.location.path) == (code, str(tmp_path / "schema.json"))
    assert help in found.help
    text = (tmp_path / "schema.json").read_text(encoding="utf-8")
    if keyword is not None:
        assert text[found.location.column - 1 :].startswith(json.dumps(keyword))


def test_a_column_that_stands_twice_cannot_be_named(parsed):
    found = error(parsed(CODE, {"teams.csv": "code,code\na,b\n"}))
    assert (found.code, "stands 2 times" in found.fact) == ("PCDC231", True)


@pytest.mark.parametrize("kind", ["txt", "csv", "json", "jsonl"])
def test_report_17_beyond_the_limit_rows_are_counted_and_not_listed(parsed, kind):
    """Field report 17."""
    values = [f"{i:06}" for i in range(100_000)]
    content = {
        "txt": "\n".join(values),
        "csv": "code\n" + "\n".join(values),
        "json": json.dumps(values),
        "jsonl": "\n".join(map(json.dumps, values)),
    }[kind]
    catalog = {"source": f"t.{kind}", **({"value": "code"} if kind == "csv" else {})}
    found = error(parsed(catalog, {f"t.{kind}": content}))
    assert (found.code, found.fact, found.limit) == ("PCDC213", "has 100000 choices", "at most 255")
    assert "split the decision" in found.help
    assert found.location.path.endswith("schema.json")
    assert len(render_text([found])) < 1000


def test_the_limit_counts_the_rows_that_are_wanted(parsed):
    rows = [f"{i},{'yes' if i % 2 else 'no'}" for i in range(510)]
    catalog = {**CODE, "where": {"active": "yes"}}
    assert len(choices(parsed(catalog, {"teams.csv": "code,active\n" + "\n".join(rows)}))) == 255
    more = parsed(catalog, {"teams.csv": "code,active\n" + "\n".join([*rows, "x,yes"])})
    assert error(more).fact == "has 256 choices"


def test_of_very_many_wrong_rows_the_first_are_named_and_the_rest_counted(parsed):
    found = errors(parsed(CODE, {"teams.csv": "code,label\n" + "a;b\n" * 900}))
    assert [d.code for d in found].count("PCDC109") == 21
    assert any(d.fact == "has 880 more rows that cannot be read" for d in found)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.txt", "a\nb\n" + "\n" * 3000),
        ("t.csv", "v\na\nb\n" + "c,d\n" * 3000),
        ("t.jsonl", '"a"\n"b"\n' + "{\n" * 3000),
        ("t.json", '["a", "b"' + ", 1" * 3000 + "]"),
    ],
)
def test_a_catalog_of_wrong_rows_is_not_read_to_its_end(parsed, monkeypatch, name, content):
    added, add = list[object](), Table.add
    monkeypatch.setattr(Table, "add", lambda *args: (added.append(args), add(*args))[1])
    found = errors(parsed({"source": name, **({"value": "v"} if name == "t.csv" else {})}, {name: content}))
    assert (len(added), len(found)) == (1003, 21)
    assert found[-1].fact == "has more than 1,000 rows that cannot be read"


def test_a_file_over_the_size_limit_is_not_read(parsed):
    found = error(parsed({"source": "t.txt"}, {"t.txt": b"a" * (8 * 1024 * 1024 + 1)}))
    assert (found.code, found.limit) == ("PCDC102", "at most 8388608 bytes")


def test_paths_are_relative_to_the_definition(parsed, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert len(choices(parsed({"source": "lists/a.txt"}, {"lists/a.txt": "a\nb\n"}))) == 2
    (tmp_path.parent / "above.txt").write_text("c\nd\ne\n", encoding="utf-8")
    assert len(choices(parsed({"source": "../above.txt"}, {}))) == 3
    assert len(choices(parsed({"source": str(tmp_path / "lists" / "a.txt")}, {}))) == 2


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"type": "string"}, None),
        ({"type": "enum"}, None),
        ({"type": "boolean"}, "PCDC215"),
        ({"type": ["string", "null"]}, "PCDC215"),
        ({"enum": ["a"]}, "PCDC211"),
        ({"type": "str"}, "PCDC210"),
    ],
)
def test_the_values_of_a_catalog_are_text_and_its_only_choices(parsed, more, code):
    found = parsed({"source": "t.txt"}, {"t.txt": "a\nb\n"}, **more)
    assert [d.code for d in found[1]] == ([] if code is None else [code])


def test_a_union_adds_to_a_catalog_and_a_reference_shares_it(tmp_path):
    (tmp_path / "t.txt").write_text("a\nb\na\n", encoding="utf-8")
    catalog = {"type": "string", "x-catalog": {"source": "t.txt"}}
    union = {"description": "?", "anyOf": [catalog, {"type": "null"}, {"const": "b"}]}
    shared = {"description": "?", "$ref": "#/$defs/T"}
    definition = {"$defs": {"T": catalog}, "f": union, "g": shared, "h": shared}
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(definition), encoding="utf-8")
    found = errors(parse_file(path))
    again = {(d.subject, d.location.path.rpartition("/")[2], d.location.line) for d in found}
    assert again == {
        ('choice 3 of field "f"', "t.txt", 3),
        ('choice 5 of field "f"', "schema.json", 1),
    }
    (tmp_path / "t.txt").write_text("a\nc\n", encoding="utf-8")
    schema, _ = parse_file(path)
    assert [c.value for c in schema.fields[0].choices] == ["a", "c", None, "b"]
    assert [(use.field, use.path, use.source) for use in schema.catalogs] == [
        (name, tmp_path / "t.txt", str(tmp_path / "t.txt")) for name in "fgh"
    ]


def test_a_definition_names_its_catalogs_whatever_else_is_wrong(tmp_path):
    path = tmp_path / "schema.json"
    definition = {
        "type": "object",
        "properties": {
            "a": {"x-catalog": {"source": "missing.txt"}},
            "b": {"type": "what"},
            "c": {"x-catalog": {"source": "sqlite:///x.db", "query": "q", "changes": "select 1"}},
            "d": {"x-catalog": {"sauce": "x"}},
        },
    }
    path.write_text(json.dumps(definition), encoding="utf-8")
    assert parse_file(path)[0] is None
    assert [(u.field, u.path, u.source, u.changes, u.query) for u in catalogs_of(path)] == [
        ("a", tmp_path / "missing.txt", str(tmp_path / "missing.txt"), None, ""),
        ("c", None, "sqlite:///x.db", "select 1", "q"),
    ]
    path.write_text('{"a": ', encoding="utf-8")
    assert catalogs_of(path) == ()


def test_catalogs_do_not_tell_two_schemas_apart(tmp_path, parsed):
    written = parse_mapping({"team": {"description": "Which team?", "choices": ["a", "b"]}})[0]
    read = parsed({"source": "t.txt"}, {"t.txt": "a\nb\n"})[0]
    assert read.catalogs
    assert (read, hash(read)) == (written, hash(written))
    assert input_record(read, "f", "t") == input_record(written, "f", "t")


def test_from_python_a_catalog_is_refused_with_a_way_out():
    declared = {"team": {"description": "?", "x-catalog": {"source": "t.txt"}}}
    with pytest.raises(SchemaError) as refused:
        StructuredSchema(declared)
    (found,) = refused.value.diagnostics
    assert (found.code, "needs a definition file" in found.fact) == ("PCDC226", True)
    rows = iter(["a", "b"])
    assert StructuredSchema([FieldDefinition("team", "enum", "?", rows)]).schema.fields[0].choices


@pytest.mark.parametrize("source", ["postgresql:u:S3cret@h/d.csv", "postgresql:/u:S3cret@h/d.json"])
def test_a_mistyped_url_that_ends_like_a_file_is_refused_without_its_password(parsed, source):
    found = parsed({"source": source, "value": "code"}, {})
    assert [d.code for d in errors(found)] == ["PCDC230"]
    assert "S3cret" not in render_text(found[1])
