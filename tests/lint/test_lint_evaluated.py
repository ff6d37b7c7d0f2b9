"""What lint says of a calibration that does not fit: which part of the schema, and why."""

from __future__ import annotations

import json
from dataclasses import replace

import lint_states
import pytest
from pcdc_runtime.models import DEFAULT

from pcdc.lint import lint

LATE = {"type": "boolean", "description": "Is a parcel late?"}
HURT = {"type": "boolean", "description": "Is somebody hurt?"}
EXAMPLE = {"context": "It came on Monday.", "answers": {"late": True}}


def definition(late=LATE, hurt=HURT, **settings):
    return {"x-pcdc": settings, "late": late, "hurt": hurt}


@pytest.fixture
def differing(tmp_path, monkeypatch):
    """Evaluates one definition, builds another in its place, and gives what lint says of the calibration."""
    monkeypatch.chdir(tmp_path)
    source, out = tmp_path / "a.json", tmp_path / "build"

    def run(before, after, change=lambda calibration: calibration):
        source.write_text(json.dumps(before), encoding="utf-8")
        calibration = change(lint_states.evaluated(source, out))
        source.write_text(json.dumps(after), encoding="utf-8")
        lint_states.write(source, out, calibration)
        found = lint([source], [DEFAULT], out).diagnostics
        return [(d.subject, d.fact) for d in found if d.code == "PCDC532"]

    return run


CHANGED = (
    "has changed since it was evaluated: its description, its type, its choices or its answers in examples"
)


def test_a_changed_field_is_named_and_the_others_are_not(differing):
    other = LATE | {"description": "Is it late?"}
    assert differing(definition(), definition(late=other)) == [('field "late"', CHANGED)]
    assert differing(definition(examples=[EXAMPLE]), definition(examples=[EXAMPLE])) == []


def test_an_answer_in_an_example_is_part_of_its_field(differing):
    other = EXAMPLE | {"answers": {"late": False}}
    assert differing(definition(examples=[EXAMPLE]), definition(examples=[other])) == [
        ('field "late"', CHANGED)
    ]


@pytest.mark.parametrize("settings", [{"instructions": "Be strict."}, {"examples": [EXAMPLE]}])
def test_what_every_field_is_asked_with_is_told_once(differing, settings):
    ((subject, fact),) = differing(definition(), definition(**settings))
    assert subject.endswith(".calibration.json")
    assert fact == "was made before the instructions or the examples changed, or every field did"


def test_of_a_single_field_nothing_tells_the_causes_apart(differing):
    ((subject, fact),) = differing({"late": LATE}, {"late": LATE, "x-pcdc": {"instructions": "Be strict."}})
    assert subject == 'field "late"'
    assert fact.endswith("its choices, the instructions or the examples")


def test_a_field_without_labels_is_no_changed_field(differing):
    found = differing(definition(), definition(), lambda c: replace(c, fields=c.fields[:1]))
    assert [(subject, fact.partition(":")[0]) for subject, fact in found] == [
        ('field "hurt"', "was not evaluated")
    ]


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ({"scoring": "trie"}, 'the scoring rule "trie", and the scoring rule is "joint" now'),
        ({"model": "other"}, 'the model "other", and the model is "smollm2-135m" now'),
        ({"prompt_version": "0"}, 'the prompt version "0", and the prompt version is "'),
    ],
)
def test_another_rule_model_or_prompt_is_told_with_both(differing, change, fact):
    ((_, said),) = differing(definition(), definition(), lambda c: replace(c, **change))
    assert said.startswith(f"was made for {fact}")
