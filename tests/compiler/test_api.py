"""The Python interface: every way to declare a schema, and the reference's own snippets."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum

import pydantic
import pytest
from command_line import ENVIRONMENT
from families import family_folder
from pcdc_runtime.codec import dumps, read
from tiny import write_tiny

import pcdc
from pcdc import api
from pcdc.build import build
from pcdc.diagnostics import SchemaError
from pcdc.parse import parse_mapping
from pcdc.schema import FieldDefinition, NotCompiledError, StructuredSchema

MODEL = str(family_folder("smollm2"))
PRIORITY = ["P0_CRITICAL", "P1_HIGH", "P2_NORMAL", "P3_LOW"]
DECLARED = {
    "priority": {"type": "enum", "choices": PRIORITY, "description": "How urgent?"},
    "page": {"type": "boolean", "description": "Must somebody be paged?"},
}


class Priority(StrEnum):
    P0 = "P0_CRITICAL"
    P1 = "P1_HIGH"
    P2 = "P2_NORMAL"
    P3 = "P3_LOW"


class Ticket(pydantic.BaseModel):
    priority: Priority = pydantic.Field(description="How urgent?")
    page: bool = pydantic.Field(description="Must somebody be paged?")


def definitions():
    return [
        FieldDefinition(name="priority", field_type="enum", description="How urgent?", choices=PRIORITY),
        FieldDefinition(name="page", field_type="boolean", description="Must somebody be paged?"),
    ]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return str(write_tiny(tmp_path_factory.mktemp("models") / "tiny"))


@pytest.mark.parametrize(
    "declare",
    [
        lambda: StructuredSchema(DECLARED),
        lambda: Ticket,
        definitions,
        lambda: (d for d in definitions()),
        lambda: parse_mapping(DECLARED)[0],
    ],
    ids=["StructuredSchema", "pydantic", "definitions", "iterator", "Schema"],
)
def test_every_way_to_declare_a_schema_gives_the_same_artifact(declare):
    assert pcdc.compile(declare(), MODEL).digest == pcdc.compile(DECLARED, MODEL).digest


def test_one_field_definition_is_a_schema():
    artifact = pcdc.compile(definitions()[0], MODEL)
    assert [f.name for f in artifact.fields] == ["priority"]


def test_compile_gives_the_bytes_that_build_writes_and_writes_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    artifact = pcdc.compile(DECLARED, MODEL, name="support")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "support.json").write_text(json.dumps(DECLARED))
    build([tmp_path / "support.json"], [MODEL], tmp_path)
    path = tmp_path / "support.smollm2.pcdc"
    assert path.read_bytes() == dumps(artifact)
    assert read(path).digest == artifact.digest


def test_every_mistake_is_raised_at_once():
    with pytest.raises(SchemaError) as caught:
        pcdc.compile({"a": {"type": "enum", "choices": ["x"]}, "b": {"type": "text"}}, MODEL)
    assert len([d for d in caught.value.diagnostics if d.severity == "error"]) == 2


def test_what_only_the_model_refuses_is_a_schema_error_too():
    with pytest.raises(SchemaError, match="PCDC3"):
        pcdc.compile({"a": {"type": "enum", "choices": ["<|im_end|>", "x"], "description": "?"}}, MODEL)


def test_field_definitions_know_their_tokens_after_compilation_and_not_before():
    priority, page = fields = definitions()
    with pytest.raises(NotCompiledError):
        priority.candidate_token_ids()
    artifact = pcdc.compile(StructuredSchema(fields), MODEL)
    assert priority.has_multi_token_candidates()
    for definition, compiled in zip((priority, page), artifact.fields, strict=True):
        single = all(c.is_single_token for c in compiled.candidates)
        assert definition.has_multi_token_candidates() == (not single)
        assert definition.candidate_token_ids() == tuple(c.ids for c in compiled.candidates)


def test_a_schema_seen_before_is_compiled_once_per_model(tiny, monkeypatch):
    calls = []
    compile_schema = api.compile_schema
    monkeypatch.setattr(api, "compile_schema", lambda *a: calls.append(a) or compile_schema(*a))
    for context in ("one", "two"):
        pcdc.run_parallel_generation(context, {"once": DECLARED["page"]}, tiny)
        pcdc.run_parallel_generation(context, StructuredSchema({"once": DECLARED["page"]}), tiny)
    assert len(calls) == 1


def test_a_model_is_loaded_once_for_all_schemas(tiny):
    first = api._engine(StructuredSchema({"one": DECLARED["page"]}).schema, tiny)
    second = api._engine(StructuredSchema({"two": DECLARED["page"]}).schema, tiny)
    assert first is not second
    assert first.model is second.model


def test_the_result_is_the_callers_own(tiny):
    first = pcdc.run_parallel_generation("text", DECLARED, tiny)
    kept = first["parsed_json"]["page"]["value"]
    first["parsed_json"].clear()
    first["field_telemetry"]["priority"]["top_choices"].clear()
    second = pcdc.run_parallel_generation("text", DECLARED, tiny)
    assert second["parsed_json"]["page"]["value"] == kept
    assert len(second["field_telemetry"]["priority"]["top_choices"]) == 4


def test_the_argument_decides_the_temperature_as_published(tiny):
    warm = {**DECLARED, "x-pcdc": {"temperature": 2.0}}
    runs = [
        pcdc.run_parallel_generation("text", *a) for a in ((DECLARED, tiny), (warm, tiny), (warm, tiny, 0.5))
    ]
    assert [r["temperature"] for r in runs] == [1.0, 1.0, 0.5]
    assert len({r["parsed_json"]["priority"]["value"] for r in runs}) == 1
    assert runs[0]["parsed_json"]["priority"]["prob"] == runs[1]["parsed_json"]["priority"]["prob"]
    assert runs[2]["parsed_json"]["priority"]["prob"] > runs[0]["parsed_json"]["priority"]["prob"]


def test_threads_get_the_answers_of_their_own_contexts(tiny):
    contexts = [f"ticket number {n}" for n in range(8)]

    def probability(context):
        return pcdc.run_parallel_generation(context, DECLARED, tiny)["parsed_json"]["priority"]["prob"]

    alone = [probability(context) for context in contexts]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(probability, contexts))
    assert together == alone
    assert len(set(alone)) > 1


def test_importing_pcdc_loads_next_to_nothing():
    code = "import sys; before = set(sys.modules); import pcdc; print(*set(sys.modules) - before)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    loaded = [n for n in done.stdout.split() if n.partition(".")[0] not in sys.stdlib_module_names]
    assert loaded == ["pcdc"]


@pytest.mark.parametrize("name", pcdc.__all__)
def test_every_public_name_is_there_and_documented(name):
    assert getattr(pcdc, name).__doc__
    assert name in dir(pcdc)


def test_a_name_that_is_not_public_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = pcdc.nothing


# Sections 6 and 7 of the reference, but for the import line and the context.
SNIPPETS = """
from pcdc import StructuredSchema, FieldDefinition, run_parallel_generation

context = "The payment gateway is failing for half of our checkouts. We are on the enterprise plan."

schema = StructuredSchema({
    "priority": {
        "type": "enum",
        "choices": ["P0_CRITICAL", "P1_HIGH", "P2_NORMAL", "P3_LOW"],
        "description": "Urgency tier based on customer business impact"
    },
    "requires_escalation": {
        "type": "boolean",
        "description": "Whether an on-call engineer must be notified"
    },
    "department": {
        "type": "enum",
        "choices": ["BILLING", "INFRASTRUCTURE", "SECURITY", "PRODUCT_SUPPORT"],
        "description": "Target handling department"
    }
})

tariff = FieldDefinition(
    name="tariff_classification",
    field_type="enum",
    description="Harmonized System 6-digit tariff category code",
    choices=["0101.21", "0101.29", "8471.30", "8517.12", "8542.31"]  # up to 255
)

result = run_parallel_generation(context, schema)
print(result["elapsed_ms"], result["sequential_forward_passes"])
print(result["parsed_json"])

send_for_human_review = apply_automatically = print
result = run_parallel_generation(context, schema)
for name, field in result["parsed_json"].items():
    if field["prob"] < 0.75:
        send_for_human_review(name, field["value"], field["prob"])
    else:
        apply_automatically(name, field["value"])

import json
print(json.dumps(result, allow_nan=False))
"""


def test_the_references_snippets_run_as_they_stand_on_the_embedded_model():
    done = subprocess.run(
        [sys.executable, "-c", SNIPPETS], env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[2:5]] == ["priority", "requires_escalation", "department"]
    result = json.loads(lines[-1])
    published = [
        "mode", "elapsed_ms", "prefill_ms", "suffix_eval_ms", "sequential_forward_passes", "is_valid_json",
        "schema_match", "parsed_json", "field_telemetry",
    ]  # fmt: skip
    assert list(result)[: len(published)] == published
    assert result["parsed_json"]["requires_escalation"]["value"] in (True, False)
    assert result["model"] == "smollm2-135m"
    assert result["is_valid_json"]
    assert result["schema_match"]
