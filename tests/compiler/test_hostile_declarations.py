"""Arguments, texts and counts from Python that no schema should have: refused clearly, all of them."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from families import family_folder
from pcdc_runtime.errors import PcdcError

from pcdc import FieldDefinition, SchemaError, StructuredSchema, compile
from pcdc.parse import parse_mapping

OK = {"urgent": {"type": "boolean", "description": "Is it urgent?"}}
MODEL = str(family_folder("smollm2"))


def codes(declared):
    schema, problems = parse_mapping(declared)
    return schema, [p.code for p in problems if p.severity == "error"]


@pytest.mark.parametrize("name", [5, None, b"x", ["x"]])
def test_a_name_that_is_no_text_is_refused_as_that(name):
    with pytest.raises(PcdcError, match="argument `name`"):
        compile(OK, MODEL, name=name)


def test_a_name_that_is_no_unicode_is_refused_as_that():
    with pytest.raises(SchemaError, match="PCDC228"):
        compile(OK, MODEL, name="\ud800")


@pytest.mark.parametrize("model", [None, 1, b"x", ["x"], {}])
def test_a_model_that_is_no_name_is_refused_as_that(model):
    with pytest.raises(PcdcError, match=r"model is .*not a name"):
        compile(OK, model)


@pytest.mark.parametrize(
    "change",
    [
        {"name": np.array([1, 2])},
        {"field_type": np.array([1, 2])},
        {"description": np.array(["a", "b"])},
        {"choices": np.array([[1, 2], [3, 4]])},
        {"choices": 5},
    ],
)
def test_an_array_where_none_can_be_is_a_schema_error(change):
    given = {"name": "f", "field_type": "enum", "description": "?", "choices": ["a", "b"]} | change
    with pytest.raises(SchemaError):
        StructuredSchema([FieldDefinition(**given)])


def test_a_field_definition_cannot_be_changed():
    field = FieldDefinition("f", "enum", "Which?", ["a", "b"])
    schema = StructuredSchema([field])
    for attribute in ("name", "field_type", "description", "choices"):
        with pytest.raises(FrozenInstanceError):
            setattr(field, attribute, "other")
    compile(schema, MODEL)
    assert len(field.candidate_token_ids()) == 2


@pytest.mark.parametrize("char", "\ufffe\uffff\U0001ffff\ufdd0\u2028\u2029\ue000\U000f0000")
def test_a_character_that_shows_nothing_agreed_is_refused_in_choices_and_names(char):
    assert codes({"f": {"choices": [f"a{char}", "b"]}})[1] == ["PCDC218"]
    assert codes({f"f{char}": {"choices": ["a", "b"]}})[1] == ["PCDC204"]


def test_field_names_that_are_canonically_equal_are_refused():
    assert codes({"caf\u00e9": OK["urgent"], "cafe\u0301": OK["urgent"]})[1] == ["PCDC204"]


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_a_combining_keyword_at_the_top_is_no_field(keyword):
    schema, problems = parse_mapping({keyword: [{"type": "object"}]})
    assert (schema, [p.code for p in problems], problems[0].subject) == (None, ["PCDC206"], "definition")


@pytest.mark.parametrize(
    "declared",
    [
        {"f": {"type": "boolean", "description": "x" * 20_001}},
        {"f": {"choices": [{"value": "a", "description": "x" * 20_001}, "b"]}},
        {"x-pcdc": {"instructions": "x" * 20_001}, "f": {"type": "boolean"}},
    ],
)
def test_a_text_has_a_longest_length(declared):
    assert codes(declared) == (None, ["PCDC233"])


def test_a_definition_has_a_largest_number_of_choices_in_all():
    shared = {"$defs": {"c": {"enum": [f"c{i}" for i in range(250)]}}}
    fields = {f"f{i}": {"$ref": "#/$defs/c"} for i in range(80)}
    assert codes(shared | fields)[1] == []
    assert codes(shared | fields | {"one": {"$ref": "#/$defs/c"}}) == (None, ["PCDC234"])
