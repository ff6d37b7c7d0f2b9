"""Files that are given where a definition belongs are told for what they are, with what to do with them."""

from __future__ import annotations

import json

import pytest
from pcdc_runtime.artifact import OPENING
from pcdc_runtime.indexed.layout import INDEX_MAGIC

from pcdc.build import build
from pcdc.indexing.parse import parse_index_file
from pcdc.parse import parse_file
from pcdc.source import MAX_FILE_BYTES

FIELD = {"choices": ["Paris", "Rome"], "description": "Which town?"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("towns.txt", "Paris\nRome\n"),
        ("towns.txt", "Paris\n" * (MAX_FILE_BYTES // 6 + 1)),
        ("my towns.csv", "id,name\n1,Paris\n"),
        ("towns.TSV", "id\tname\n1\tParis\n"),
        ("towns.json", '\ufeff ["Paris", "Rome"]'),
        ("towns.jsonl", '"Paris"\n"Rome"\n'),
        ("towns.jsonl", '{"name": "Paris"}\n{"name": "Rome"}\n'),
    ],
)
def test_a_catalog_for_a_definition_is_told_with_the_command_that_takes_it(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    schema, (told,) = parse_file(path)
    assert (schema, told.code) == (None, "PCDC202")
    assert told.fact == "looks like a catalog, not like a definition"
    assert "pcdc index " in told.help
    assert '--question "..."' in told.help
    assert build([path], [], tmp_path / "out").diagnostics[-1:] == (told,)


@pytest.mark.parametrize("name", ["town.txt", "town.csv", "town.jsonl", "town.json", "town"])
def test_a_definition_is_one_whatever_its_name_ends_with(tmp_path, name):
    (tmp_path / name).write_text("\n" + json.dumps({"town": FIELD}, indent=1))
    assert parse_file(tmp_path / name)[1] == []
    (tmp_path / name).write_text('{\n"town": oops}')
    (told,) = parse_file(tmp_path / name)[1]
    assert told.code == "PCDC105"


@pytest.mark.parametrize(
    ("opening", "fact", "command"),
    [(INDEX_MAGIC, "is an index", "pcdc select"), (OPENING, "is an artifact", "pcdc run")],
)
@pytest.mark.parametrize("size", [100, MAX_FILE_BYTES + 1])
def test_what_a_build_wrote_is_told_with_the_command_that_asks_it(tmp_path, opening, fact, command, size):
    path = tmp_path / "towns.pcdx"
    path.write_bytes(opening + b"\xbb" * size)
    for read in (parse_file, parse_index_file):
        _, (told,) = read(path)
        assert (told.code, told.fact, command in told.help) == ("PCDC105", fact, True)


@pytest.mark.parametrize(
    ("declared", "code", "said"),
    [
        ({"x-pcdc": {"indx": True}, "town": FIELD}, "PCDC205", "did you mean `index`?"),
        ({"x-pcdc": {"index": "yes"}, "town": FIELD}, "PCDC201", "must be true or false"),
        ({"x-pcdc": True, "town": FIELD}, "PCDC201", "must be an object"),
        ({"x-pdcd": {"index": True}, "town": FIELD}, "PCDC205", "did you mean `x-pcdc`?"),
        ({"index": True, "town": FIELD}, "PCDC205", 'write `"x-pcdc": {"index": true}`'),
        (
            {"type": "object", "index": True, "properties": {"town": FIELD}},
            "PCDC205",
            'write `"x-pcdc": {"index": true}`',
        ),
    ],
)
def test_an_index_that_is_declared_amiss_is_told_so_and_not_as_a_schema(tmp_path, declared, code, said):
    path = tmp_path / "towns.json"
    path.write_text(json.dumps(declared))
    index, (told,) = parse_index_file(path)
    assert (index, told.code) == (None, code)
    assert said in (told.help, told.limit)
    assert parse_file(path)[1] == [told]


def test_a_field_may_be_called_index(tmp_path):
    path = tmp_path / "towns.json"
    path.write_text(json.dumps({"index": FIELD}))
    assert parse_file(path)[1] == []
    assert [d.code for d in parse_index_file(path)[1]] == ["PCDC241"]


def test_other_mistakes_of_the_settings_are_told_with_the_index_that_is_not_declared(tmp_path):
    path = tmp_path / "towns.json"
    path.write_text(json.dumps({"x-pcdc": {"scoring": 3}, "town": FIELD}))
    assert [d.code for d in parse_index_file(path)[1]] == ["PCDC241", "PCDC201"]
