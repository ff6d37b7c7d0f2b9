"""When an artifact is stale: each input on its own, in one sentence, read from the artifact itself."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from families import family_folder
from pcdc_runtime.codec import dumps, loads
from pcdc_runtime.errors import ArtifactError
from pcdc_runtime.models import ModelFiles

from pcdc import cache
from pcdc.emit import compile_schema
from pcdc.prompt import load_target
from pcdc.schema import Choice, Field, Schema

MODEL = "smollm2"


def field(name, *labels, description="Which?", descriptions=()):
    described = itertools.zip_longest(labels, descriptions, fillvalue="")
    return Field(name, "enum", description, tuple(Choice(text, text, about) for text, about in described))


SCHEMA = Schema("support", (field("team", "BILLING", "TECH"), field("tone", "calm", "angry")), "Classify.")


@pytest.fixture(scope="module")
def target():
    found, problems = load_target(ModelFiles(MODEL, family_folder("smollm2")))
    assert problems == []
    return found


@pytest.fixture(scope="module")
def old(target):
    artifact, problems = compile_schema(SCHEMA, target)
    assert problems == []
    return loads(dumps(artifact))


def record_of(old, schema=SCHEMA):
    return cache.input_record(schema, old.fingerprint, old.inputs["template"])


def test_nothing_changed_means_fresh(old):
    decision = cache.decide(old, SCHEMA, MODEL, record_of(old))
    assert (decision.rebuild, decision.reason) == (False, "no input changed")


def test_where_a_field_was_written_does_not_matter(old):
    from pcdc.diagnostics import Location

    moved = replace(SCHEMA, fields=tuple(replace(f, location=Location("x", 9, 9)) for f in SCHEMA.fields))
    assert record_of(old, moved) == record_of(old)


@pytest.mark.parametrize(
    ("old_artifact", "word"),
    [(None, "no artifact yet"), (ArtifactError("x.pcdc", "does not match its checksum"), "checksum")],
)
def test_a_missing_or_damaged_artifact_is_built(old, old_artifact, word):
    decision = cache.decide(old_artifact, SCHEMA, MODEL, record_of(old))
    assert decision.rebuild
    assert word in decision.reason


def test_force_always_builds(old):
    assert cache.decide(old, SCHEMA, MODEL, record_of(old), force=True).rebuild


@pytest.mark.parametrize(
    ("part", "word"),
    [
        ("pcdc", "pcdc changed from"),
        ("prompt", "the prompt changed from"),
        ("tokenizer", "the tokenizer of smollm2 changed"),
        ("template", "the chat template of smollm2 changed"),
        ("scoring", "the scoring rule changed from other to joint"),
        ("key", "contradicts itself"),
    ],
)
def test_each_input_alone_makes_it_stale_and_is_named(old, part, word):
    """Field report 32."""
    before = replace(old, inputs={**old.inputs, part: "other"})
    decision = cache.decide(before, SCHEMA, MODEL, record_of(old))
    assert decision.rebuild
    assert word in decision.reason


def test_an_artifact_without_a_whole_record_is_stale(old):
    parts = {k: v for k, v in old.inputs.items() if k != "template"}
    assert (
        "no complete input record"
        in cache.decide(replace(old, inputs=parts), SCHEMA, MODEL, record_of(old)).reason
    )


def test_an_artifact_of_another_model_or_schema_is_never_fresh(old):
    assert cache.decide(old, SCHEMA, "other", record_of(old)).rebuild
    renamed = replace(SCHEMA, name="other")
    assert cache.decide(old, renamed, MODEL, record_of(old, renamed)).rebuild


@pytest.mark.parametrize("temperature", [2, 2.0, 0.1, 1e300, 3e-7])
def test_an_artifact_keeps_its_digest_when_it_is_loaded_whatever_number_the_temperature_is(
    target, temperature
):
    made, _ = compile_schema(replace(SCHEMA, temperature=temperature), target)
    loaded = loads(dumps(made))
    assert (loaded.digest, loaded.temperature) == (made.digest, float(temperature))


def test_a_whole_temperature_and_the_same_float_give_one_artifact(target):
    whole, fraction = (compile_schema(replace(SCHEMA, temperature=t), target)[0] for t in (2, 2.0))
    assert dumps(whole) == dumps(fraction)


TEAM, TONE = SCHEMA.fields


@pytest.mark.parametrize(
    ("schema", "changes"),
    [
        (replace(SCHEMA, instructions="Sort."), ["instructions changed"]),
        (replace(SCHEMA, temperature=2.0), ["temperature changed from 1 to 2"]),
        (replace(SCHEMA, fields=(TEAM,)), ["field tone removed"]),
        (replace(SCHEMA, fields=(*SCHEMA.fields, field("new", "a", "b"))), ["field new added"]),
        (replace(SCHEMA, fields=(TONE, TEAM)), ["fields reordered"]),
        (
            replace(SCHEMA, fields=(field("team", "BILLING", "TECH", description="Who?"), TONE)),
            ["field team: description changed"],
        ),
        (
            replace(SCHEMA, fields=(field("team", "BILLINH", "TECH"), TONE)),
            ["field team: choice 'BILLING' removed", "field team: choice 'BILLINH' added"],
        ),
        (replace(SCHEMA, fields=(field("team", "TECH", "BILLING"), TONE)), ["field team: choices reordered"]),
        (
            replace(SCHEMA, fields=(field("team", "BILLING", "TECH", descriptions=["money"]), TONE)),
            ["field team: description of choice 'BILLING' changed"],
        ),
        (
            replace(SCHEMA, fields=(Field("team", "boolean", "Which?", TEAM.choices), TONE)),
            ["field team: type changed from enum to boolean"],
        ),
    ],
)
def test_every_change_of_the_schema_is_stale_and_named(old, schema, changes):
    """Field report 32."""
    decision = cache.decide(old, schema, MODEL, record_of(old, schema))
    assert (decision.rebuild, decision.reason) == (True, "the schema changed")
    assert list(decision.changes) == changes


def test_choices_that_look_alike_but_differ_in_type_give_different_keys(old):
    def schema(*choices):
        return replace(SCHEMA, fields=(Field("n", "enum", "", choices),))

    kinds = [
        schema(Choice("1", "1"), Choice(2, "2")),
        schema(Choice(1, "1"), Choice(2, "2")),
        schema(Choice(1.0, "1.0"), Choice(2, "2")),
        schema(Choice(True, "true"), Choice(2, "2")),
        schema(Choice("true", "true"), Choice(2, "2")),
        schema(Choice(None, "not stated"), Choice(2, "2")),
        schema(Choice("not stated", "not stated"), Choice(2, "2")),
    ]
    assert len({record_of(old, s)["key"] for s in kinds}) == len(kinds)


def test_the_key_covers_every_part(monkeypatch):
    base = cache.input_record(SCHEMA, "a", "b")
    others = [cache.input_record(SCHEMA, "x", "b"), cache.input_record(SCHEMA, "a", "x")]
    others += [cache.input_record(replace(SCHEMA, scoring="trie"), "a", "b")]
    for name, value in (("__version__", "9"), ("PROMPT_VERSION", "9"), ("FORMAT_VERSION", 9)):
        with monkeypatch.context() as patch:
            patch.setattr(cache, name, value)
            others.append(cache.input_record(SCHEMA, "a", "b"))
    assert len({base["key"], *(o["key"] for o in others)}) == 1 + len(others)


def test_the_artifact_carries_the_record_it_was_made_from(old):
    assert old.inputs == record_of(old)
