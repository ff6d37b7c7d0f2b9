"""Definitions declared from Python: StructuredSchema and FieldDefinition."""

from __future__ import annotations

import copy
import enum
import json
import subprocess
import sys
from collections import UserDict, UserList
from dataclasses import dataclass

import numpy as np
import pytest
from pcdc_runtime.artifact import Candidate, CompiledField

from pcdc import FieldDefinition, SchemaError, StructuredSchema
from pcdc.schema import NotCompiledError

REFERENCE = {
    "priority": {
        "type": "enum",
        "choices": ["P0_CRITICAL", "P1_HIGH", "P2_NORMAL", "P3_LOW"],
        "description": "Urgency tier based on customer business impact",
    },
    "requires_escalation": {
        "type": "boolean",
        "description": "Whether an on-call engineer must be notified",
    },
}
TARIFF = {
    "name": "tariff",
    "field_type": "enum",
    "description": "Harmonized System code",
    "choices": ["0101.21", "0101.29", "8471.30"],
}


@dataclass(frozen=True)
class Compiled:
    """What `bind` reads of an artifact: its fields by name."""

    fields: tuple[CompiledField, ...]

    def field(self, name):
        return next((f for f in self.fields if f.name == name), None)


def compiled(definition, ids):
    candidates = tuple(
        Candidate(str(c), c, "", i, len(i) == 1, (n, n + 1))
        for n, (c, i) in enumerate(zip(definition.choices, ids, strict=True))
    )
    return CompiledField(definition.name, "enum", definition.description, 0, 0, candidates)


def refusal(declared):
    with pytest.raises(SchemaError) as caught:
        StructuredSchema(declared)
    return caught.value


def test_the_reference_s_schema_is_accepted_as_it_stands():
    structured = StructuredSchema(REFERENCE)
    assert [f.name for f in structured.schema.fields] == ["priority", "requires_escalation"]
    assert structured.diagnostics == ()
    assert structured.schema.name == "schema"


def test_field_definitions_and_the_mapping_are_one_schema():
    definitions = [
        FieldDefinition(
            name=name, field_type=f["type"], description=f["description"], choices=f.get("choices", ())
        )
        for name, f in REFERENCE.items()
    ]
    assert StructuredSchema(definitions).schema == StructuredSchema(REFERENCE).schema


@pytest.mark.parametrize(
    "declared",
    [
        REFERENCE,
        {"f": {"enum": ["a", 1, None, True], "description": "d"}},
        {"f": {"choices": [{"value": "a", "description": "A"}, "b"]}, "g": {"type": ["boolean", "null"]}},
    ],
)
def test_the_definitions_of_a_schema_declare_it_again(declared):
    structured = StructuredSchema(declared)
    assert StructuredSchema(structured.fields).schema == structured.schema


def test_choices_may_come_from_anything_that_has_an_order():
    class Code(enum.StrEnum):
        A = "a"
        B = "b"

    class Number(enum.Enum):
        ONE = 1
        TWO = 2

    for choices in (
        ["a", "b"],
        ("a", "b"),
        iter(["a", "b"]),
        {"a": 1, "b": 2}.keys(),
        Code,
        np.array(["a", "b"]),
    ):
        field = StructuredSchema(
            [FieldDefinition(name="f", field_type="enum", choices=choices)]
        ).schema.fields[0]
        assert [c.value for c in field.choices] == ["a", "b"]
        assert {type(c.value) for c in field.choices} == {str}
    for choices in (Number, np.array([1, 2]), range(1, 3)):
        field = StructuredSchema(
            [FieldDefinition(name="f", field_type="enum", choices=choices)]
        ).schema.fields[0]
        assert [c.value for c in field.choices] == [1, 2]
        assert {type(c.value) for c in field.choices} == {int}


def test_any_mapping_is_read_and_none_is_changed():
    declared = UserDict(copy.deepcopy(REFERENCE))
    before = copy.deepcopy(declared.data)
    assert StructuredSchema(declared).schema == StructuredSchema(REFERENCE).schema
    assert declared.data == before


@pytest.mark.parametrize(
    ("choices", "code"),
    [
        ({"a", "b"}, "PCDC108"),
        (["a", object()], "PCDC108"),
        (["a", float("nan")], "PCDC108"),
        (["a", 10**5000], "PCDC108"),
        (["a", b"b"], "PCDC108"),
        (["a", "\ud800"], "PCDC228"),
        ("ab", "PCDC201"),
        ({"a": 1}, "PCDC201"),
        (3, "PCDC201"),
        (["a", "a"], "PCDC219"),
        (iter(["a"]), "PCDC212"),
    ],
)
def test_choices_without_a_json_form_or_an_order_are_refused(choices, code):
    error = refusal([FieldDefinition(name="f", field_type="enum", choices=choices)])
    assert code in [d.code for d in error.diagnostics]


@pytest.mark.parametrize(
    ("declared", "code"),
    [
        (3, "PCDC202"),
        (None, "PCDC202"),
        ({1: {"type": "boolean"}}, "PCDC108"),
        ({"f\ud800": {"type": "boolean"}}, "PCDC228"),
        ([], "PCDC202"),
        ([{"name": "f"}], "PCDC202"),
        (UserList(["f"]), "PCDC108"),
        (dict, "PCDC108"),
    ],
)
def test_what_is_no_definition_is_refused(declared, code):
    assert [d.code for d in refusal(declared).diagnostics] == [code]


def test_a_mapping_that_holds_itself_is_refused():
    declared = {"f": {}}
    declared["f"]["f"] = declared
    assert [d.code for d in refusal(declared).diagnostics] == ["PCDC107"]


def test_report_21_two_definitions_of_one_name_are_an_error_with_both_positions():
    definitions = [FieldDefinition(name=n, field_type="boolean") for n in ("a", "b", "a")]
    (error,) = [d for d in refusal(definitions).diagnostics if d.severity == "error"]
    assert error.code == "PCDC106"
    assert "position 1 and again at 3" in error.fact


def test_every_mistake_is_in_the_exception_and_in_its_text():
    error = refusal({"a": {"type": "string"}, "b": {"choices": ["x"]}, "c": {"type": "bool"}})
    assert [d.code for d in error.diagnostics] == ["PCDC208", "PCDC212", "PCDC251", "PCDC210"]
    assert all(d.location is None for d in error.diagnostics)
    assert [line for line in str(error).splitlines() if line.startswith("error[")] == [
        'error[PCDC208]: field "a" is free text; a field has a list of answers',
        'error[PCDC212]: field "b" has 1 choice; at least 2',
        'error[PCDC210]: field "c" has the unknown type "bool"; fields are `boolean` or `enum`',
    ]


def test_the_exception_survives_a_copy():
    error = refusal({"a": {"type": "string"}})
    assert copy.deepcopy(error).diagnostics == error.diagnostics


def test_tokens_are_refused_before_compilation_and_known_after_it():
    tariff = FieldDefinition(**TARIFF)
    structured = StructuredSchema([tariff])
    for ask in (tariff.has_multi_token_candidates, tariff.candidate_token_ids):
        with pytest.raises(NotCompiledError, match="tariff"):
            ask()
    structured.bind(Compiled((compiled(tariff, [(5, 6), (5, 7), (8,)]),)))
    assert tariff.has_multi_token_candidates()
    assert tariff.candidate_token_ids() == ((5, 6), (5, 7), (8,))
    structured.bind(Compiled((compiled(tariff, [(5,), (7,), (8,)]),)))
    assert not tariff.has_multi_token_candidates()


def test_the_fields_of_a_mapping_can_be_asked_for_tokens_too():
    structured = StructuredSchema({"f": {"choices": ["a", "b"]}})
    (definition,) = structured.fields
    structured.bind(Compiled((compiled(definition, [(1,), (2, 3)]),)))
    assert definition.has_multi_token_candidates()


def test_two_definitions_alike_keep_their_own_tokens():
    first, second = FieldDefinition(**TARIFF), FieldDefinition(**TARIFF)
    StructuredSchema([first]).bind(Compiled((compiled(first, [(1,), (2,), (3,)]),)))
    with pytest.raises(NotCompiledError):
        second.candidate_token_ids()


def test_a_schema_never_imports_pydantic_or_mlx():
    code = f"""
import sys
from pcdc import StructuredSchema
StructuredSchema({json.dumps(REFERENCE)!s})
print(sorted(m for m in ("pydantic", "mlx", "transformers", "typer") if m in sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert done.stdout.strip() == "[]"
