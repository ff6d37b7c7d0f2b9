"""What cannot be a definition is refused: all of it at once, each with a code, a place and a way out."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pcdc.diagnostics import RULES, render_json, render_text
from pcdc.expand import MAX_LEVELS
from pcdc.parse import MAX_FIELDS, parse_file, parse_mapping


def errors(definition):
    schema, diagnostics = parse_mapping(definition)
    found = [d for d in diagnostics if d.severity == "error"]
    assert (schema is None) == bool(found)
    return found


def error(definition):
    (found,) = errors(definition)
    return found


def parsed_text(tmp_path, text):
    path = tmp_path / "schema.json"
    path.write_text(text, encoding="utf-8")
    return parse_file(path)


AB = {"enum": ["a", "b"]}


@pytest.mark.parametrize(
    ("field", "code", "help"),
    [
        ({"type": "object", "properties": {"x": AB}}, "PCDC207", "one flat field per question"),
        ({"properties": {"x": AB}}, "PCDC207", "one flat field per question"),
        ({"type": "object", "oneOf": [{"const": 1}, {"const": 2}]}, "PCDC207", "one flat field per question"),
        ({"type": "array", "items": AB}, "PCDC207", "one boolean field per item"),
        ({"items": AB}, "PCDC207", "one boolean field per item"),
        ({"type": "string"}, "PCDC208", "route it elsewhere"),
        ({"type": "string", "format": "date", "maxLength": 9}, "PCDC208", "route it elsewhere"),
        ({"type": ["string", "null"]}, "PCDC208", "route it elsewhere"),
        ({"type": "integer", "minimum": 0}, "PCDC208", "bucket the range"),
        ({"type": "number"}, "PCDC208", "bucket the range"),
        ({**AB, "if": {}}, "PCDC209", "two calls"),
        ({**AB, "dependentRequired": {}}, "PCDC209", "two calls"),
        ({"type": "enum"}, "PCDC211", '`"choices": [...]`'),
        ({}, "PCDC211", '`"choices": [...]`'),
        ({"type": "bool"}, "PCDC210", "`boolean`"),
        ({"type": "enumm", "choices": ["a", "b"]}, "PCDC210", "`enum`"),
        ({"choices": ["a", "b"], "enum": ["a", "b"]}, "PCDC211", "keep one"),
        ({"$ref": "#/f", "enum": ["a", "b"]}, "PCDC211", "keep one"),
        ({"choices": []}, "PCDC212", "none of the above"),
        ({"choices": ["only"]}, "PCDC212", "not stated"),
        ({"const": "only"}, "PCDC212", "not stated"),
        ({"type": "null"}, "PCDC212", "none of the above"),
        ({"type": "boolean", "enum": [True]}, "PCDC212", "leave the list out"),
        ({"choices": [f"c{i}" for i in range(256)]}, "PCDC213", "bucket"),
        ({"type": ["string", "null"], "enum": ["a", "b"]}, "PCDC215", "add null"),
        ({"choices": {"a": "A"}}, "PCDC201", ""),
        ({"choices": ["a", "b"], "description": 3}, "PCDC201", ""),
        ({"type": 3, "enum": ["a", "b"]}, "PCDC201", ""),
        ({"type": ["string", 3], "enum": ["a", "b"]}, "PCDC201", ""),
        ({"$ref": "http://example.org/x"}, "PCDC201", "$defs"),
        ({"$ref": "#/$defs/none"}, "PCDC223", "$defs"),
        ({"$ref": "#anchor"}, "PCDC223", "$defs"),
        ({"allOf": [AB, AB]}, "PCDC201", "merge"),
        ({"x-catalog": "codes.csv"}, "PCDC201", ""),
        ({"x-catalog": {"source": "codes.csv"}}, "PCDC226", "pass the choices"),
        (3, "PCDC201", ""),
        ({**AB, "nullable": True}, "PCDC206", "null"),
        ({**AB, "required": True}, "PCDC206", "always answered"),
        ({**AB, "not": {"const": "a"}}, "PCDC206", "remain"),
    ],
)
def test_report_26_what_a_field_cannot_be_is_refused_with_advice(field, code, help):
    found = error({"f": field})
    assert found.code == code
    assert found.subject == 'field "f"'
    assert help in found.help


@pytest.mark.parametrize(
    "keyword", ["pattern", "minLength", "format", "multipleOf", "contentEncoding", "items"]
)
def test_report_26_a_keyword_that_would_narrow_the_answers_is_named_by_its_pointer(keyword):
    found = error({"properties": {"a/b": {**AB, keyword: "x"}}})
    assert found.code == "PCDC206"
    assert f"`{keyword}` at /properties/a~1b/{keyword}" in found.fact


def test_report_26_the_pointer_of_a_shared_keyword_is_where_it_stands_and_it_is_told_once(tmp_path):
    shared = {"enum": ["a", "b"], "pattern": "a"}
    definition = {"properties": {n: {"$ref": "#/$defs/S"} for n in "xyz"}, "$defs": {"S": shared}}
    _, diagnostics = parsed_text(tmp_path, json.dumps(definition))
    (found,) = [d for d in diagnostics if d.severity == "error"]
    assert "/$defs/S/pattern" in found.fact
    assert found.subject == 'field "x"'


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("choises", "choices"),
        ("Choices", "choices"),
        ("enums", "enum"),
        ("oneof", "oneOf"),
        ("consts", "const"),
    ],
)
def test_report_26_a_misspelt_keyword_is_met_with_the_right_one(written, meant):
    found = error({"f": {written: ["a", "b"]}})
    assert (found.code, found.help) == ("PCDC205", f"did you mean `{meant}`?")
    assert error({"f": {**AB, "descripton": "d"}}).help == "did you mean `description`?"


def test_report_26_text_under_an_integer_type_is_an_error_for_each_choice():
    found = errors({"f": {"type": "integer", "enum": ["a", 1, 1.5, 2]}})
    assert [(d.code, d.fact) for d in found] == [
        ("PCDC215", 'has the choice "a"'),
        ("PCDC215", "has the choice 1.5"),
    ]


def test_report_23_text_under_a_boolean_type_is_an_error():
    found = errors({"f": {"type": "boolean", "enum": ["true", "false"]}})
    assert [d.code for d in found] == ["PCDC215", "PCDC215"]


@pytest.mark.parametrize("source", ["choices", "enum"])
@pytest.mark.parametrize("value", [{"a": 1}, [1], {}])
def test_report_22_objects_and_arrays_are_no_choices(source, value):
    found = error({"f": {source: [value, "x"]}})
    assert found.code == "PCDC214"
    assert found.subject == f'item 1 of `{source}` of field "f"'


def test_a_described_choice_is_checked_too():
    assert error({"f": {"choices": [{"value": [1]}, "x"]}}).code == "PCDC214"
    assert error({"f": {"choices": [{"value": "y", "description": 1}, "x"]}}).code == "PCDC201"
    found = error({"f": {"choices": [{"value": "y", "descripton": "d"}, "x"]}})
    assert "/f/choices/0/descripton" in found.fact
    assert found.help == "did you mean `description`?"


@pytest.mark.parametrize("field", [{"choices": ["a"] * 100_000}, {"oneOf": [{"const": 1}] * 100_000}])
def test_report_17_too_many_choices_are_a_count_and_not_a_list(field):
    found = error({"f": field})
    assert found.fact == "has 100000 choices"
    assert found.limit == "at most 255"
    assert "split" in found.help
    assert len(render_text([found])) < 500


def test_report_17_choices_are_counted_over_the_branches_of_a_union():
    field = {"anyOf": [{"enum": [f"a{i}" for i in range(200)]}, {"enum": [f"b{i}" for i in range(56)]}]}
    assert error({"f": field}).fact == "has 256 choices"


def test_report_17_the_number_of_fields_is_stated():
    found = error({f"f{i}": {"type": "boolean"} for i in range(MAX_FIELDS + 1)})
    assert found.code == "PCDC203"
    assert str(MAX_FIELDS) in found.limit


@pytest.mark.parametrize(
    ("defs", "cycle"),
    [
        ({"A": {"$ref": "#/$defs/A"}}, "#/$defs/A -> #/$defs/A"),
        ({"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}, "#/$defs/A -> #/$defs/B -> #/$defs/A"),
        ({"A": {"anyOf": [{"const": 1}, {"$ref": "#/$defs/A"}]}}, "#/$defs/A -> #/$defs/A"),
        ({"A": {"allOf": [{"$ref": "#/$defs/A"}]}}, "#/$defs/A -> #/$defs/A"),
    ],
)
def test_report_27_a_reference_cycle_is_named(defs, cycle):
    found = error({"properties": {"f": {"$ref": "#/$defs/A"}}, "$defs": defs})
    assert found.code == "PCDC224"
    assert cycle in found.fact


def test_report_27_a_cycle_at_the_top_is_named():
    found = errors({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}})
    assert [d.code for d in found] == ["PCDC224"]


@pytest.mark.parametrize("last", [AB, {"oneOf": [{"const": i} for i in range(255)]}])
def test_report_27_a_multiplying_bomb_is_counted_without_being_built(last):
    defs = {f"L{i}": {"anyOf": [{"$ref": f"#/$defs/L{i + 1}"}] * 9} for i in range(40)}
    found = error({"properties": {"f": {"$ref": "#/$defs/L0"}}, "$defs": {**defs, "L40": last}})
    assert found.code == "PCDC225"
    defs = {f"L{i}": {"anyOf": [{"$ref": f"#/$defs/L{i + 1}"}] * 9} for i in range(8)}
    found = error({"properties": {"f": {"$ref": "#/$defs/L0"}}, "$defs": {**defs, "L8": last}})
    assert found.fact == f"has {9**8 * len(next(iter(last.values())))} choices"


def test_report_27_a_long_chain_of_references_ends_at_a_stated_depth():
    defs = {f"L{i}": {"$ref": f"#/$defs/L{i + 1}"} for i in range(5000)}
    found = error({"properties": {"f": {"$ref": "#/$defs/L0"}}, "$defs": defs})
    assert found.code == "PCDC225"
    assert str(MAX_LEVELS) in found.limit


@pytest.mark.parametrize(
    ("definition", "code"),
    [
        ({}, "PCDC202"),
        ({"properties": {}}, "PCDC202"),
        ({"type": "object"}, "PCDC202"),
        ([], "PCDC202"),
        ("text", "PCDC202"),
        ({"type": "string", "enum": ["a", "b"]}, "PCDC201"),
        ({"type": "object", "properties": []}, "PCDC201"),
        ({"properties": {"f": AB}, "required": ["ff"]}, "PCDC227"),
        ({"properties": {"f": AB}, "required": "f"}, "PCDC201"),
        ({"properties": {"f": AB}, "required": [1]}, "PCDC201"),
        ({"properties": {"f": AB}, "additionalProperties": AB}, "PCDC201"),
        ({"properties": {"f": AB}, "minProperties": 1}, "PCDC206"),
        ({"properties": {"f": AB}, "oneOf": [{"required": ["f"]}]}, "PCDC206"),
        ({"properties": {"f": AB}, "dependentSchemas": {}}, "PCDC209"),
        ({"properties": {"f": AB}, "requierd": ["f"]}, "PCDC205"),
        ({"properties": {"f": AB}, "x-pcd": {}}, "PCDC205"),
        ({"f": AB, "x-pcd": {}}, "PCDC205"),
        ({"f": AB, "x-catalog": {"f": "codes.csv"}}, "PCDC226"),
        ({"properties": {"f": AB}, "x-catalog": {"f": "codes.csv"}}, "PCDC226"),
        ({"$ref": "#/$defs/M", "$defs": {"M": 3}}, "PCDC201"),
        ({"$ref": "#/$defs/M"}, "PCDC223"),
    ],
)
def test_what_a_definition_cannot_be_is_refused(definition, code):
    assert error(definition).code == code


@pytest.mark.parametrize(
    ("setup", "code", "words"),
    [
        ({"temperature": 0}, "PCDC201", "`temperature` is 0; must be above 0"),
        ({"temperature": -1.5}, "PCDC201", "-1.5"),
        ({"temperature": "hot"}, "PCDC201", "must be a number"),
        ({"temperature": True}, "PCDC201", "must be a number"),
        ({"temperature": 10**400}, "PCDC201", "must be finite"),
        ({"scoring": "fast"}, "PCDC201", 'must be one of "joint", "identify", "trie"'),
        ({"instructions": ["x"]}, "PCDC201", "must be text"),
        ({"instruction": "x"}, "PCDC205", "did you mean `instructions`?"),
        ({"seed": 1}, "PCDC205", "instructions, scoring, temperature"),
        ("joint", "PCDC201", "must be an object"),
    ],
)
def test_settings_are_checked(setup, code, words):
    found = error({"f": AB, "x-pcdc": setup})
    assert found.code == code
    assert found.subject == "`x-pcdc`"
    assert words in render_text([found])


@pytest.mark.parametrize(
    ("name", "fact"),
    [
        ("", "no visible name"),
        ("  ", "no visible name"),
        ("n" * 201, "201 characters"),
        ("a\nb", "U+000A"),
        ("a\u200bb", "U+200B ZERO WIDTH SPACE"),
        ("\u202eab", "U+202E RIGHT-TO-LEFT OVERRIDE"),
    ],
)
def test_a_field_name_is_short_visible_text(name, fact):
    found = error({name: AB})
    assert found.code == "PCDC204"
    assert fact in found.fact
    assert errors({"n" * 200: AB}) == []


def test_every_mistake_is_told_at_once_in_file_order(tmp_path):
    text = json.dumps(
        {
            "x-pcdc": {"scoring": "fast"},
            "a": {"type": "string"},
            "b": {"choises": ["x", "y"]},
            "c": {"choices": ["x", "x", ""], "description": 3},
            "d": {"type": "bool"},
        },
        indent=1,
    )
    _, diagnostics = parsed_text(tmp_path, text)
    found = [d for d in diagnostics if d.severity == "error"]
    assert [d.code for d in found] == [
        *("PCDC201", "PCDC208", "PCDC205", "PCDC219", "PCDC216", "PCDC201", "PCDC210"),
    ]
    places = [(d.location.line, d.location.column) for d in diagnostics]
    assert places == sorted(places)
    assert all(d.excerpt for d in diagnostics)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(max_size=3)
            | st.sampled_from(
                [
                    "type",
                    "enum",
                    "choices",
                    "const",
                    "oneOf",
                    "anyOf",
                    "allOf",
                    "$ref",
                    "properties",
                    "required",
                ]
            )
            | st.sampled_from(
                ["x-pcdc", "x-catalog", "description", "items", "$defs", "temperature", "value"]
            ),
            inner | st.sampled_from(["#", "#/f", "object", "boolean", "enum", "string", "null"]),
            max_size=4,
        )
    ),
    max_leaves=15,
)


@given(JSON)
@settings(max_examples=300)
def test_no_python_value_raises_and_every_refusal_can_be_printed(value):
    schema, diagnostics = parse_mapping({"f": value})
    assert (schema is None) == any(d.severity == "error" for d in diagnostics)
    assert all(d.severity == RULES[d.code].severity for d in diagnostics)
    render_text(diagnostics).encode()
    render_json(diagnostics).encode("ascii")
