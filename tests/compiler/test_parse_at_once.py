"""One mistake hides no other, and a refused word is answered with one that is accepted."""

from __future__ import annotations

import json

import pytest

from pcdc import FieldDefinition, SchemaError, StructuredSchema
from pcdc.parse import parse_file, parse_mapping

MIXED = ["", "y", "y", 3, None, {"k": 1}]


def found(field, **more):
    """Codes and subjects of a definition's errors; `field` is the one called f."""
    _, diagnostics = parse_mapping({"f": {"description": "d", **field}, **more})
    return [(d.code, d.subject) for d in diagnostics if d.severity == "error"]


def one(field):
    _, diagnostics = parse_mapping({"f": {"description": "d", **field}})
    return next(d for d in diagnostics if d.severity == "error")


def in_choices(value):
    return value


def in_branch(value):
    return {"const": value}


@pytest.mark.parametrize(
    ("source", "spelled", "refused"),
    [
        ("choices", in_choices, 'item 6 of `choices` of field "f"'),
        ("enum", in_choices, 'item 6 of `enum` of field "f"'),
        ("oneOf", in_branch, '`const` of field "f"'),
        ("anyOf", in_branch, '`const` of field "f"'),
    ],
)
def test_a_choice_that_cannot_be_read_hides_no_other_and_keeps_its_position(source, spelled, refused):
    items = [*map(spelled, MIXED), spelled("y")]
    assert found({source: items}) == [
        ("PCDC214", refused),
        ("PCDC216", 'choice 1 of field "f"'),
        ("PCDC219", 'choice 3 of field "f"'),
        ("PCDC219", 'choice 7 of field "f"'),
    ]


@pytest.mark.parametrize(
    ("field", "codes"),
    [
        ({"type": "strng", "enum": ["a", "a", ""]}, ["PCDC210", "PCDC219", "PCDC216"]),
        ({"type": 3, "enum": ["a", "a"]}, ["PCDC201", "PCDC219"]),
        ({"type": "integer", "enum": ["", 1, 1]}, ["PCDC215", "PCDC216", "PCDC219"]),
        ({"choices": [""]}, ["PCDC212", "PCDC216"]),
        ({"choices": [{"k": 1}]}, ["PCDC214", "PCDC212"]),
        ({"type": "enum", "enum": [[1], "a", "a"], "pattern": "x"}, ["PCDC206", "PCDC214", "PCDC219"]),
        ({"anyOf": [{"$ref": "#/none"}, {"enum": ["a", "a"]}]}, ["PCDC223", "PCDC219"]),
        ({"anyOf": [{"type": "object"}, {"enum": ["a", "", {}]}]}, ["PCDC207", "PCDC214", "PCDC216"]),
        (
            {"anyOf": [{"type": "strng", "enum": ["a", "a"]}, {"const": ""}]},
            ["PCDC210", "PCDC216", "PCDC219"],
        ),
        ({"type": ["string", "null"], "enum": ["a", "b", "b", {}]}, ["PCDC214", "PCDC219"]),
    ],
)
def test_what_is_wrong_with_a_field_is_told_together(field, codes):
    assert sorted(code for code, _ in found(field)) == sorted(codes)


@pytest.mark.parametrize("field", [{"anyOf": [{"$ref": "#/none"}]}, {"anyOf": [{"type": "string"}]}])
def test_a_branch_that_cannot_be_read_is_not_counted_as_too_few(field):
    assert len(found(field)) == 1


def test_a_field_that_cannot_be_read_hides_no_other_field(tmp_path):
    definition = {
        "a": {"choices": MIXED},
        "b": {"type": "text"},
        "c": {"oneOf": [{"const": ""}, {"const": [1]}]},
    }
    (tmp_path / "s.json").write_text(json.dumps(definition))
    _, diagnostics = parse_file(tmp_path / "s.json")
    told = [d.code for d in diagnostics if d.severity == "error"]
    assert told == ["PCDC216", "PCDC219", "PCDC214", "PCDC210", "PCDC216", "PCDC214"]


@pytest.mark.parametrize("wrap", [lambda fields: fields, lambda fields: {"properties": fields}])
def test_a_value_without_a_json_form_hides_nothing_and_causes_nothing(wrap):
    fields = {
        "a": {"choices": {"x", "y"}},
        "b": {"choices": [object(), "", "x", "x"]},
        "c": {"type": {"enum"}, "choices": ["x", "x"]},
        "d": {"description": b"d", "choices": [{"value": b"x"}, "x", "x"]},
        "e": b"e",
    }
    _, diagnostics = parse_mapping(wrap(fields))
    told = [d.code for d in diagnostics if d.severity == "error"]
    assert sorted(told) == ["PCDC108"] * 6 + ["PCDC216"] + ["PCDC219"] * 3


@pytest.mark.parametrize(
    "declared", [{"properties": b"x"}, {1: {}}, {"f": {"type": "boolean"}, "x-pcdc": b"x"}]
)
def test_a_value_without_a_json_form_is_the_only_thing_told(declared):
    _, diagnostics = parse_mapping(declared)
    assert [d.code for d in diagnostics if d.severity == "error"] == ["PCDC108"]


def test_a_list_that_holds_itself_twice_is_left_at_once():
    endless: list[object] = []
    endless += [endless, endless]
    _, diagnostics = parse_mapping({"f": {"choices": endless}})
    assert [d.code for d in diagnostics] == ["PCDC107"]


USE = "use `enum` and list the answers in `choices`, or `boolean` for true and false"


@pytest.mark.parametrize(
    ("field", "help"),
    [
        ({"type": "strng"}, USE),
        ({"type": "text"}, USE),
        ({"type": "str"}, USE),
        ({"type": "int"}, USE),
        ({"type": "list"}, USE),
        ({"type": "zzz"}, USE),
        ({"type": "text", "choices": ["a", "b"]}, USE),
        ({"type": "none"}, USE),
        ({"type": "boolen"}, "did you mean `boolean`?"),
        ({"type": "Boolean"}, "did you mean `boolean`?"),
        ({"type": "literal"}, "did you mean `enum`?"),
        ({"type": "strng", "enum": ["a", "b"]}, "did you mean `string`?"),
        ({"type": "text", "enum": ["a", "b"]}, "did you mean `string`?"),
        ({"type": "float", "const": 1.5}, "did you mean `number`?"),
        ({"type": "str", "oneOf": [{"const": "a"}, {"const": "b"}]}, "did you mean `string`?"),
        ({"type": ["enum", "none"], "choices": ["a", None]}, "did you mean `null`?"),
        ({"anyOf": [{"enum": ["a", "b"]}, {"type": "none"}]}, "did you mean `null`?"),
    ],
)
def test_an_unknown_type_is_answered_with_one_that_is_accepted_there(field, help):
    told = one(field)
    assert (told.code, told.help) == ("PCDC210", help)


def test_a_field_definition_of_a_text_type_is_pointed_to_enum():
    with pytest.raises(SchemaError) as caught:
        StructuredSchema([FieldDefinition("a", "text", "q", ["x"])])
    first, second = caught.value.diagnostics
    assert (first.code, first.help, second.code) == ("PCDC210", USE, "PCDC212")


@pytest.mark.parametrize("key", ["val", "Value", "vlaue", "values"])
def test_a_choice_whose_value_is_misspelt_is_met_with_the_right_word(key):
    told = one({"choices": [{key: "c"}, "a", "b"]})
    assert (told.code, told.subject) == ("PCDC205", 'item 1 of `choices` of field "f"')
    assert told.help == "did you mean `value`?"


@pytest.mark.parametrize("key", ["desc", "descr", "descripton", "Description", "des"])
@pytest.mark.parametrize("choice", [{"value": "z"}, {"const": "z"}])
def test_a_choices_description_is_never_lost_to_a_near_miss(key, choice):
    source = "choices" if "value" in choice else "oneOf"
    told = one({source: [{**choice, key: "q"}, {**choice, next(iter(choice)): "y"}]})
    assert (told.code, told.help) == ("PCDC205", "did you mean `description`?")


def test_both_misspelt_keys_of_a_choice_are_told():
    assert [code for code, _ in found({"choices": [{"val": "c", "desc": "q"}, "a", "a"]})] == [
        *("PCDC205", "PCDC205", "PCDC219")
    ]


def test_a_choices_title_explains_it_where_it_has_no_description():
    schema, _ = parse_mapping(
        {"f": {"choices": [{"value": "a", "title": "t"}, {"value": "b", "title": "t", "description": "d"}]}}
    )
    assert [c.description for c in schema.fields[0].choices] == ["t", "d"]
