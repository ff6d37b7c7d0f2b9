"""Warnings that a definition ignores: checked where they are declared, silent where they are told."""

from __future__ import annotations

import json

import pytest
from families import family_folder
from pcdc_runtime.codec import dumps
from pcdc_runtime.models import ModelFiles

from pcdc.build import build
from pcdc.cache import input_record
from pcdc.diagnostics import has_errors
from pcdc.emit import compile_schema
from pcdc.parse import parse_file, parse_mapping
from pcdc.prompt import load_target

FIELDS = {"open": {"type": "enum", "description": "Open?", "choices": ["open", "OPEN", "shut"]}}


def parsed(ignore):
    return parse_mapping({"x-pcdc": {"ignore": ignore}, **FIELDS})


def test_an_ignored_rule_is_kept_with_its_reason():
    schema, found = parsed({"PCDC252": " both are in use "})
    assert [(i.code, i.reason) for i in schema.ignored] == [("PCDC252", "both are in use")]
    assert not has_errors(found)


@pytest.mark.parametrize(
    ("ignore", "fact"),
    [
        ({"PCDC252": ""}, "gives no reason for PCDC252"),
        ({"PCDC252": " \t"}, "gives no reason for PCDC252"),
        ({"PCDC9999": "x"}, 'names "PCDC9999", which is no code'),
        ({"pcdc252": "x"}, 'names "pcdc252", which is no code'),
        ({"PCDC25": "x"}, 'names "PCDC25", a family of codes'),
        ({"PCDC252": {}}, "gives no reason for PCDC252"),
        ({"PCDC252": {"open": " "}}, 'gives no reason for PCDC252 of field "open"'),
        ({"PCDC252": {"opne": "x"}}, 'names field "opne" under PCDC252, which is no field'),
        ({"PCDC219": "x"}, "names PCDC219, choice declared twice, which is an error"),
    ],
)
def test_what_cannot_be_ignored_is_told_where_it_stands(tmp_path, ignore, fact):
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"x-pcdc": {"ignore": ignore}, **FIELDS}), encoding="utf-8")
    schema, found = parse_file(path)
    assert schema is None
    (error,) = [d for d in found if d.severity == "error"]
    assert (error.code, error.fact) == ("PCDC239", fact)
    assert (error.location.line, error.location.column > 20) == (1, True)


def test_a_misspelt_code_gets_a_suggestion():
    _, found = parsed({"pcdc252": "x"})
    assert [d.help for d in found if d.code == "PCDC239"] == ["did you mean `PCDC252`?"]


@pytest.mark.parametrize(
    "ignore", [["PCDC252"], {"PCDC252": 1}, {"PCDC252": None}, {"PCDC252": {"open": 1}}, "PCDC252"]
)
def test_a_list_of_codes_without_reasons_is_of_the_wrong_kind(ignore):
    schema, found = parsed(ignore)
    assert schema is None
    assert "PCDC201" in [d.code for d in found]


def test_what_is_ignored_changes_neither_the_schema_nor_its_key_nor_its_artifact():
    plain, _ = parse_mapping(FIELDS)
    quiet, _ = parsed({"PCDC252": "both are in use"})
    assert quiet.ignored
    assert quiet == plain
    target, _ = load_target(ModelFiles("smollm2", family_folder("smollm2")))
    record = (target.fingerprint, target.template_digest)
    assert input_record(quiet, *record) == input_record(plain, *record)
    assert dumps(compile_schema(quiet, target)[0]) == dumps(compile_schema(plain, target)[0])


def test_build_does_not_tell_an_ignored_warning(tmp_path):
    path, model = tmp_path / "a.json", str(family_folder("smollm2"))
    path.write_text(json.dumps(FIELDS), encoding="utf-8")
    assert [d.code for d in build([path], [model], tmp_path / "out").diagnostics] == ["PCDC252"]
    path.write_text(json.dumps({"x-pcdc": {"ignore": {"PCDC252": "known"}}, **FIELDS}), encoding="utf-8")
    report = build([path], [model], tmp_path / "out")
    assert report.diagnostics == ()
    assert [t.outcome for t in report.targets] == ["fresh"]


def test_a_family_is_no_misspelt_code():
    _, found = parsed({"PCDC5": "x"})
    (error,) = [d for d in found if d.code == "PCDC239"]
    assert error.limit == "a definition ignores single codes"
    assert error.help == "name the codes that you mean; `pcdc lint --ignore PCDC5` takes a family"


def test_build_tells_a_warning_of_every_field_but_those_it_is_ignored_for(tmp_path):
    path, model = tmp_path / "a.json", str(family_folder("smollm2"))
    ignore = {"PCDC252": {"open": "both are in use"}}
    fields = {**FIELDS, "other": FIELDS["open"]}
    path.write_text(json.dumps({"x-pcdc": {"ignore": ignore}, **fields}), encoding="utf-8")
    told = build([path], [model], tmp_path / "out").diagnostics
    assert [(d.code, d.subject) for d in told] == [("PCDC252", 'choice 2 of field "other"')]
