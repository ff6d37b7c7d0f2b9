"""Reading definition files: encodings, line breaks, size, what is not a definition file at all."""

from __future__ import annotations

import codecs

import pytest

from pcdc.parse import parse_file
from pcdc.source import MAX_FILE_BYTES, SchemaSource

DEFINITION = (
    '{\n  "mood": {\n    "choices": ["开心", "难过", "普通"],\n    "description": "Which mood?"\n  }\n}\n'
)
PLAIN = DEFINITION.encode()


def parsed(tmp_path, data, name="schema.json"):
    path = tmp_path / name
    path.write_bytes(data)
    return parse_file(path)


def only(tmp_path, data, name="schema.json"):
    schema, (diagnostic,) = parsed(tmp_path, data, name)
    assert schema is None
    return diagnostic


@pytest.mark.parametrize(
    "data",
    [
        codecs.BOM_UTF8 + PLAIN,
        PLAIN.replace(b"\n", b"\r\n"),
        codecs.BOM_UTF8 + PLAIN.replace(b"\n", b"\r\n"),
        DEFINITION.replace("开心", r"\u5f00\u5fc3").replace("mood", r"\u006dood").encode(),
        PLAIN.replace(b"\n", b"").replace(b"  ", b"\t"),
    ],
    ids=["bom", "crlf", "bom and crlf", "escapes", "layout"],
)
def test_reports_12_29_the_same_content_in_other_bytes_is_an_equal_schema(tmp_path, data):
    schema, diagnostics = parsed(tmp_path, data)
    assert diagnostics == []
    assert schema == parsed(tmp_path, PLAIN)[0]
    assert [c.label for c in schema.fields[0].choices] == ["开心", "难过", "普通"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_report_29_utf_16_is_refused_plainly(tmp_path, encoding):
    diagnostic = only(tmp_path, DEFINITION.encode(encoding))
    assert diagnostic.code == "PCDC104"
    assert "UTF-16" in diagnostic.fact
    assert "UTF-8" in diagnostic.help


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
@pytest.mark.parametrize("bom", [b"", codecs.BOM_UTF8])
def test_report_29_a_bad_byte_has_its_offset_and_line(tmp_path, bom, newline):
    data = bom + PLAIN.replace(b"mood", b"mo\xffd").replace(b"\n", newline)
    diagnostic = only(tmp_path, data)
    assert diagnostic.code == "PCDC104"
    assert f"byte 0xFF at offset {data.index(0xFF)}" in diagnostic.fact
    assert (diagnostic.location.line, diagnostic.location.column) == (2, 6)


def test_report_29_the_column_of_a_bad_first_byte_does_not_count_the_mark(tmp_path):
    diagnostic = only(tmp_path, codecs.BOM_UTF8 + b"\xff")
    assert (diagnostic.location.line, diagnostic.location.column) == (1, 1)


@pytest.mark.parametrize("name", ["schema.yaml", "schema.yml", "SCHEMA.YAML"])
def test_report_18_a_yaml_file_is_refused_by_one_diagnostic(tmp_path, name):
    diagnostic = only(tmp_path, b"country:\n  choices: [DK, NO, SE]\n", name)
    assert diagnostic.code == "PCDC103"
    assert "JSON" in diagnostic.help


def test_a_missing_file_and_a_folder_are_diagnostics(tmp_path):
    for path in (tmp_path / "none.json", tmp_path, tmp_path / "a\0b.json"):
        schema, (diagnostic,) = parse_file(path)
        assert schema is None
        assert diagnostic.code == "PCDC101"


def test_report_57_one_bad_file_does_not_hide_the_other(tmp_path):
    (tmp_path / "bad.json").write_text("{", encoding="utf-8")
    (tmp_path / "good.json").write_bytes(PLAIN)
    results = {path.stem: parse_file(path) for path in sorted(tmp_path.iterdir())}
    assert results["bad"][0] is None
    assert results["good"][0] is not None


def test_a_file_of_the_largest_size_is_read_and_one_byte_more_is_not(tmp_path):
    schema, _ = parsed(tmp_path, PLAIN.ljust(MAX_FILE_BYTES))
    assert schema is not None
    diagnostic = only(tmp_path, PLAIN.ljust(MAX_FILE_BYTES + 1))
    assert diagnostic.code == "PCDC102"
    assert str(MAX_FILE_BYTES) in diagnostic.limit


def test_the_name_is_the_stem_unless_one_is_given(tmp_path):
    path = tmp_path / "triage.v2.json"
    path.write_bytes(PLAIN)
    assert parse_file(path)[0].name == "triage.v2"
    assert parse_file(path, "other")[0].name == "other"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ('"postgresql://u:p/w@x@host:1/d"', '"postgresql:******************"'),
        ('"mysql://u@h/d?Password=pw&x=1"', '"mysql:***********************"'),
        (r'"x://u:p\"w@h", "b@c"', '"x:**********", "b@c"'),
        (r'"x:\/\/u\u003ap\u0040h"', '"x:*******************"'),
        (r'"x\u003a//u:p@h"', r'"x\u003a*******"'),
        ("'source': 'x:u:p@h',", "'source': 'x:*******"),
        ('"x://u:p@h', '"x:*******'),
        ('"see http://host:80/x", "at": "12:30"', '"see http://host:80/x", "at": "12:30"'),
        ('"source": "a/b.csv"', '"source": "a/b.csv"'),
        ('"source": "sqlite:///shop.db"', '"source": "sqlite:///shop.db"'),
        ('"source": "sqlite:///shop.db?key=pw"', '"source": "************************"'),
        ('"source": "sqlite://u:p@/shop.db"', '"source": "*********************"'),
        ('"source" : "x: u:p@h", "query": "a:b"', '"source" : "********", "query": "a:b"'),
        (r'"\u0073ource":"u\u003ap"', r'"\u0073ource":"********"'),
    ],
)
def test_an_excerpt_never_shows_a_password(line, shown):
    text = "{\n" + line + "\n}"
    source = SchemaSource("s.json", text)
    for at in range(2, 2 + len(line)):
        first, caret = source.excerpt(at).splitlines()
        assert first == f"    2 | {shown}"
        assert len(caret) == len("    2 | ") + at - 1
