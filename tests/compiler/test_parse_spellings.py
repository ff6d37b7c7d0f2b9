"""Every way to declare a field, and that the ways agree."""

from __future__ import annotations

import enum
import json
from importlib.resources import files
from typing import Literal

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from pcdc import StructuredSchema
from pcdc.diagnostics import render_text
from pcdc.parse import MAX_FIELDS, parse_file, parse_mapping

DIALECT = json.loads(files("pcdc").joinpath("dialect.json").read_bytes())


def accepted(definition):
    schema, diagnostics = parse_mapping(definition)
    assert schema is not None, render_text(diagnostics)
    return schema


def only_field(definition):
    (field,) = accepted(definition).fields
    return field


def values(definition):
    return [choice.value for choice in only_field(definition).choices]


# Labels that nothing can be said against, so that the law below meets accepted definitions only.
LABEL = st.from_regex(r"[a-z]{1,3}[0-9]{0,2}", fullmatch=True)
NOTE = st.from_regex(r"[A-Za-z開]{1,8}", fullmatch=True) | st.just("")
NUMBER = st.integers(-1000, 1000)
CHOICES = st.lists(
    st.tuples(LABEL | NUMBER, NOTE), min_size=2, max_size=6, unique_by=lambda choice: str(choice[0])
)
FIELDS = st.dictionaries(LABEL, st.tuples(NOTE, st.none() | CHOICES), min_size=1, max_size=4)
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "instructions": NOTE,
        "scoring": st.sampled_from(["joint", "identify", "trie"]),
        "temperature": st.floats(0.01, 100) | st.integers(1, 9),
    },
)


def shorthand(fields, setup):
    def field(note, choices):
        if choices is None:
            return {"type": "boolean", "description": note}
        listed = [{"value": v, "description": d} if d else v for v, d in choices]
        return {"type": "enum", "choices": listed, "description": note}

    return {"x-pcdc": setup, **{name: field(*declared) for name, declared in fields.items()}}


def json_schema(fields, setup):
    defs = {}

    def field(name, note, choices):
        if choices is None:
            return {"type": "boolean", "description": note, "title": name, "default": False}
        if any(d for _, d in choices):
            return {"oneOf": [{"const": v, "description": d} for v, d in choices], "description": note}
        defs[name] = {"enum": [v for v, _ in choices], "description": "of the definition"}
        return {"$ref": f"#/$defs/{name}", **({"description": note} if note else {"description": " "})}

    properties = {name: field(name, *declared) for name, declared in fields.items()}
    return {"type": "object", "x-pcdc": setup, "properties": properties, "$defs": defs}


@given(FIELDS, SETTINGS)
@settings(max_examples=100)
def test_both_spellings_of_one_definition_are_one_schema(fields, setup):
    fields = {name: (note or "?", choices) for name, (note, choices) in fields.items()}
    short, long = shorthand(fields, setup), json_schema(fields, setup)
    assert accepted(short) == accepted(long)
    for definition in (short, long):
        Draft202012Validator(DIALECT).validate(definition)


def test_the_dialect_is_itself_a_json_schema():
    Draft202012Validator.check_schema(DIALECT)


def test_a_file_and_a_mapping_of_one_content_are_one_schema_and_only_the_file_has_places(tmp_path):
    definition = {"a": {"choices": ["x", {"value": "y", "description": "Y"}], "description": "d"}}
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(definition), encoding="utf-8")
    schema, _ = parse_file(path)
    assert schema == accepted(definition)
    (field,) = schema.fields
    assert (field.location.line, field.location.column) == (1, 2)
    assert field.choices[0].location.column == 20
    assert only_field(definition).location is None


class Severity(enum.Enum):
    LOW = "low"
    HIGH = "high"


class Team(enum.StrEnum):
    """Who owns it?"""

    WEB = "web"
    OPS = "ops"


class Level(enum.IntEnum):
    ONE = 1
    TWO = 2


class Ticket(pydantic.BaseModel):
    """A docstring for developers."""

    severity: Severity
    owner: Team | None = None
    described: Team = pydantic.Field(default=Team.WEB, description="Kept beside the reference?")
    kind: Literal["bug", "wish"]
    mixed: Literal["x", 1, True, None]
    urgent: bool = True
    known: bool | None = None
    level: Level
    either: Severity | Team


def test_report_24_a_pydantic_model_means_what_its_annotations_say():
    schema = accepted(Ticket)
    assert {field.name: tuple(c.value for c in field.choices) for field in schema.fields} == {
        "severity": ("low", "high"),
        "owner": ("web", "ops", None),
        "described": ("web", "ops"),
        "kind": ("bug", "wish"),
        "mixed": ("x", 1, True, None),
        "urgent": (True, False),
        "known": (True, False, None),
        "level": (1, 2),
        "either": ("low", "high", "web", "ops"),
    }
    described = {field.name: field.description for field in schema.fields}
    assert described["owner"] == "Who owns it?"
    assert described["described"] == "Kept beside the reference?"
    assert {f.name for f in schema.fields if f.type == "boolean"} == {"urgent", "known"}
    assert schema.instructions == ""


def test_a_pydantic_model_and_its_written_schema_are_one_schema(tmp_path):
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(Ticket.model_json_schema()), encoding="utf-8")
    assert parse_file(path)[0] == accepted(Ticket)


def test_settings_reach_a_pydantic_model_through_its_config():
    class Configured(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(json_schema_extra={"x-pcdc": {"scoring": "trie"}})
        urgent: bool

    assert accepted(Configured).scoring == "trie"


class Node(pydantic.BaseModel):
    urgent: bool
    parent: Node | None = None


def test_a_recursive_model_is_found_through_its_reference_and_its_nesting_refused():
    _, diagnostics = parse_mapping(Node)
    assert [d.code for d in diagnostics if d.severity == "error"] == ["PCDC207"]


def test_a_model_that_cannot_describe_itself_is_a_diagnostic():
    class Raises:
        @staticmethod
        def model_json_schema():
            raise RuntimeError("no schema here")

    schema, (diagnostic,) = parse_mapping(Raises)
    assert schema is None
    assert diagnostic.code == "PCDC108"
    assert "no schema here" in diagnostic.fact


@pytest.mark.parametrize("place", ["$defs", "definitions"])
def test_report_24_references_resolve_in_both_places(place):
    definition = {
        place: {"A/b~c d": {"enum": ["x", "y"]}},
        "properties": {"f": {"$ref": f"#/{place}/A~1b~0c%20d", "description": "d"}},
    }
    assert values(definition) == ["x", "y"]
    assert only_field(definition).description == "d"


def test_a_reference_may_go_through_another_field_and_through_a_list():
    definition = {
        "properties": {
            "a": {"anyOf": [{"enum": ["x", "y"]}, {"const": "z"}]},
            "b": {"$ref": "#/properties/a/anyOf/0"},
            "c": {"allOf": [{"$ref": "#/properties/a"}], "description": "d"},
        }
    }
    listed = {f.name: [c.value for c in f.choices] for f in accepted(definition).fields}
    assert listed == {"a": ["x", "y", "z"], "b": ["x", "y"], "c": ["x", "y", "z"]}


def test_report_27_one_list_shared_by_three_fields_is_harmless():
    shared = {"enum": ["x", "y"]}
    definition = {"properties": {n: {"$ref": "#/$defs/S"} for n in "abc"}, "$defs": {"S": shared}}
    assert len(accepted(definition).fields) == 3
    assert len(accepted(dict.fromkeys("abc", shared)).fields) == 3


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ({"type": "boolean"}, [True, False]),
        ({"type": "boolean", "enum": [False, True]}, [False, True]),
        ({"enum": [True, False]}, [True, False]),
        ({"type": ["boolean", "null"]}, [True, False, None]),
        ({"type": "boolean", "choices": [True, False, None]}, [True, False, None]),
        ({"anyOf": [{"type": "boolean"}, {"type": "null"}]}, [True, False, None]),
        ({"type": "boolean", "oneOf": [{"const": True}, {"const": False}]}, [True, False]),
        ({"type": "boolean", "choices": [{"value": True, "description": "y"}, False]}, [True, False]),
    ],
)
def test_report_23_a_boolean_is_native_and_has_no_third_label_unless_null_is_declared(field, expected):
    found = only_field({"f": field})
    assert found.type == "boolean"
    assert [c.value for c in found.choices] == expected
    assert [type(c.value) for c in found.choices] == [type(v) for v in expected]


def test_report_23_text_that_reads_like_a_boolean_stays_text():
    found = only_field({"f": {"type": "string", "enum": ["true", "false"]}})
    assert found.type == "enum"
    assert [c.value for c in found.choices] == ["true", "false"]


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ({"type": "integer", "enum": [0, 1, 3]}, [0, 1, 3]),
        ({"type": "number", "enum": [0.5, 1]}, [0.5, 1]),
        ({"type": ["string", "integer"], "enum": ["a", 1]}, ["a", 1]),
        ({"enum": [0, False]}, [0, False]),
        ({"enum": [1, True, "x", None]}, [1, True, "x", None]),
    ],
)
def test_report_22_values_keep_their_json_type(field, expected):
    found = values({"f": field})
    assert found == expected
    assert [type(v) for v in found] == [type(v) for v in expected]


def test_null_is_called_not_stated_and_both_literals_spell_it():
    null = only_field({"f": {"enum": ["x", "y", None]}}).choices[-1]
    assert (null.value, null.label, null.literals) == (None, "not stated", ('"not stated"', "null"))


def test_literals_are_json_of_the_label():
    choices = only_field({"f": {"enum": ['say "hi"', "開\n", True, 3, 1.5]}}).choices
    assert [c.literals for c in choices] == [
        ('"say \\"hi\\""',),
        ('"開\\n"',),
        ("true", '"true"'),
        ("3",),
        ("1.5",),
    ]


def test_descriptions_of_choices_are_kept_in_every_spelling():
    expected = [("a", "first"), ("b", "second"), ("c", "")]
    spellings = [
        {"choices": [{"value": "a", "description": "first"}, {"value": "b", "description": "second"}, "c"]},
        {
            "oneOf": [
                {"const": "a", "description": "first"},
                {"const": "b", "title": "second"},
                {"const": "c"},
            ]
        },
        {
            "anyOf": [
                {"const": "a", "description": "first", "title": "A"},
                {"$ref": "#/$defs/b"},
                {"enum": ["c"]},
            ]
        },
    ]
    for spelling in spellings:
        found = only_field({"$defs": {"b": {"const": "b", "description": "second"}}, "f": spelling})
        assert [(c.value, c.description) for c in found.choices] == expected
        assert found.description == ""


def test_null_keeps_its_description_too():
    null = only_field({"f": {"anyOf": [{"enum": ["a"]}, {"type": "null", "description": "no word of it"}]}})
    assert null.choices[-1].description == "no word of it"


def test_a_default_and_other_annotations_change_nothing():
    plain = {"f": {"enum": ["x", "y"], "description": "d"}}
    notes = {"default": "z", "title": "T", "examples": ["z"], "deprecated": True, "x-owner": {"team": 1}}
    schema, diagnostics = parse_mapping({"f": {**plain["f"], **notes, "$comment": "c"}})
    assert schema == accepted(plain)
    assert diagnostics == []


def test_an_unknown_keyword_is_named_and_ignored():
    schema, (diagnostic,) = parse_mapping({"f": {"enum": ["x", "y"], "description": "d", "colour": 1}})
    assert schema is not None
    assert (diagnostic.code, diagnostic.severity) == ("PCDC253", "warning")
    assert "`colour` at /f/colour" in diagnostic.fact


@pytest.mark.parametrize("required", [[], ["f"]])
@pytest.mark.parametrize("open_", [True, False])
def test_required_and_additional_properties_change_nothing(required, open_):
    properties = {"f": {"type": "boolean", "description": "d"}}
    definition = {"properties": properties, "required": required, "additionalProperties": open_}
    assert accepted(definition) == accepted(properties)


@pytest.mark.parametrize("name", ["properties", "definitions", "required", "$price", "a/b", "開心", "x-ray"])
def test_the_short_spelling_takes_any_field_name(name):
    assert only_field({name: {"enum": ["x", "y"]}}).name == name


@pytest.mark.parametrize(
    "name", ["type", "$ref", "enum", "choices", "x-pcdc", "properties", "$schema", "oneOf"]
)
def test_the_long_spelling_takes_even_keywords_as_field_names(name):
    assert only_field({"type": "object", "properties": {name: {"enum": ["x", "y"]}}}).name == name


def test_reports_6_14_codes_and_characters_special_elsewhere_are_kept_verbatim(tmp_path):
    labels = ["0101.21", "8471.30", "{}", "{0}", "%s", "{{x}}", "$HOME", "a|b", 'say "hi"', "line\nbreak"]
    labels += ["C:\\new", "Dr. Smith", "</s>", "a ", "null", "NA", "no", "-1"]
    path = tmp_path / "schema.json"
    path.write_text(json.dumps({"f": {"choices": labels, "description": "{{x}} %s"}}), encoding="utf-8")
    (field,) = parse_file(path)[0].fields
    assert [c.label for c in field.choices] == labels
    assert [json.loads(c.literals[0]) for c in field.choices] == labels
    assert field.description == "{{x}} %s"


def test_report_17_255_choices_and_1000_fields_are_accepted():
    assert len(only_field({"f": {"enum": [f"c{i}" for i in range(255)]}}).choices) == 255
    assert len(accepted({f"f{i}": {"type": "boolean"} for i in range(MAX_FIELDS)}).fields) == MAX_FIELDS


def test_report_17_a_missing_description_is_a_warning():
    structured = StructuredSchema({"f": {"type": "boolean"}, "g": {"type": "boolean", "description": "d"}})
    assert [(d.code, d.subject) for d in structured.diagnostics] == [("PCDC251", 'field "f"')]
