"""The four example schemas are valid, complete and have contexts to run them on; so is the example index."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pcdc.indexing.definition import IndexDefinition
from pcdc.indexing.parse import parse_index_file
from pcdc.parse import is_index_file, parse_file

SCHEMAS = Path(__file__).resolve().parents[2] / "schemas"
FIELDS = {"code_audit": 4, "fraud_routing": 4, "support_triage": 28, "tariff_classification": 1}
INDEX = SCHEMAS / "software_license.json"


def parsed(name):
    schema, diagnostics = parse_file(SCHEMAS / f"{name}.json")
    assert diagnostics == []
    return schema


def test_the_folder_holds_the_four_scenarios_of_the_reference_and_an_index():
    found = {path for path in SCHEMAS.glob("*.json") if not is_index_file(path)}
    assert {path.stem for path in found} == set(FIELDS)
    assert {*SCHEMAS.glob("*.json")} - found == {INDEX}


def test_the_index_has_more_entries_than_a_schema_can_and_an_id_for_each():
    index, diagnostics = parse_index_file(INDEX)
    assert diagnostics == []
    assert isinstance(index, IndexDefinition)
    assert index.question.endswith("?")
    assert len(index.entries) > 255
    assert len(set(index.entries.ids)) == len(index.entries)
    assert index.entries.ids is not index.entries.labels


@pytest.mark.parametrize("name", FIELDS)
def test_an_example_parses_without_a_diagnostic(name):
    schema = parsed(name)
    assert schema.name == name
    assert len(schema.fields) == FIELDS[name]


@pytest.mark.parametrize("name", FIELDS)
def test_every_description_asks_a_question(name):
    assert [field.name for field in parsed(name).fields if not field.description.endswith("?")] == []


def test_the_tariff_field_uses_all_255_choices_and_each_is_described():
    (field,) = parsed("tariff_classification").fields
    labels = [choice.label for choice in field.choices]
    assert len(labels) == 255
    assert labels == sorted(set(labels))
    assert all(re.fullmatch(r"(?!77|00)\d{2}\d{2}\.\d{2}", label) and label < "98" for label in labels)
    assert all(choice.description for choice in field.choices)


def test_the_triage_fields_mix_booleans_with_enums_of_three_to_twelve_choices():
    fields = parsed("support_triage").fields
    sizes = {len(field.choices) for field in fields if field.type == "enum"}
    assert sum(field.type == "boolean" for field in fields) >= 10
    assert min(sizes) == 3
    assert max(sizes) == 12


@pytest.mark.parametrize("name", FIELDS)
def test_every_example_has_realistic_contexts(name):
    contexts = sorted((SCHEMAS / "examples").glob(f"{name}.*.txt"))
    assert len(contexts) >= 2
    assert all(60 <= len(path.read_text(encoding="utf-8").split()) <= 250 for path in contexts)


def test_every_context_belongs_to_a_schema():
    names = {path.name.partition(".")[0] for path in (SCHEMAS / "examples").iterdir()}
    assert names == set(FIELDS)
