"""The response shape, and that its claims about itself are computed."""

import copy
import json
import math
from dataclasses import replace

import pytest
from fakes import TableModel, loaded, make_artifact, result_of, seeded, spelled
from pcdc_runtime.engine import Engine
from pcdc_runtime.result import FieldResult

SHAPE = {
    "mode",
    "elapsed_ms",
    "prefill_ms",
    "suffix_eval_ms",
    "sequential_forward_passes",
    "is_valid_json",
    "schema_match",
    "parsed_json",
    "field_telemetry",
}
ADDED = {
    "scoring",
    "temperature",
    "pruning",
    "model",
    "artifact_digest",
    "forward_passes",
    "head_cached",
    "nodes",
    "positions",
    "kv_bytes",
    "kv_added",
    "kv_copied",
    "context_tokens",
    "contexts",
    "warnings",
}
ARTIFACT = make_artifact(
    {
        "priority": spelled("P0", "P1", 'say "hi"'),
        "urgent": {True: [(["t"], [","])], False: [(["f"], [","])]},
        "count": {1: [(["1"], [","])], 2.5: [(["2"], [","])], None: [(["n"], ['"'])]},
    }
)


@pytest.fixture(scope="module")
def result():
    with Engine(ARTIFACT, loaded(TableModel(seeded(6)))) as engine:
        return engine.run("text")


def field(value, declared, prob=1.0, **changes):
    made = FieldResult(
        name="f",
        value=value,
        prob=prob,
        legal_mass=0.5,
        legal_mass_is_upper_bound=False,
        margin=1.0,
        tie=False,
        near_tie=False,
        distribution=tuple((v, 1 / len(declared)) for v in declared),
        log_scores=(-1.0,) * len(declared),
    )
    return replace(made, **changes)


def test_the_published_keys_come_first_and_every_other_is_named(result):
    shown = result.to_dict()
    assert set(list(shown)[: len(SHAPE)]) == SHAPE
    assert set(shown) == SHAPE | ADDED
    assert shown["mode"] == "parallel_constrained_calibrated"
    assert set(shown["parsed_json"]["priority"]) == {"value", "prob"}
    telemetry = shown["field_telemetry"]["priority"]
    assert list(telemetry)[:3] == ["confidence", "cardinality", "top_choices"]
    assert telemetry["calibration"] is None
    assert "uncalibrated" in shown["warnings"]


def test_every_choice_is_listed_and_values_keep_their_json_type(result):
    shown = json.loads(result.to_json())
    for compiled in ARTIFACT.fields:
        telemetry = shown["field_telemetry"][compiled.name]
        choices = [entry["choice"] for entry in telemetry["top_choices"]]
        declared = [candidate.value for candidate in compiled.candidates]
        assert sorted(map(repr, choices)) == sorted(map(repr, declared))
        assert telemetry["cardinality"] == len(declared)
        assert sum(entry["probability"] for entry in telemetry["top_choices"]) == pytest.approx(1.0)
    assert type(shown["parsed_json"]["urgent"]["value"]) is bool


def test_probabilities_keep_their_full_precision(result):
    shown = json.loads(result.to_json())
    for answer in result.answers:
        assert shown["parsed_json"][answer.name]["prob"] == answer.prob
        assert shown["field_telemetry"][answer.name]["confidence"] == answer.prob


def test_a_sound_result_says_it_is_valid_and_matches(result):
    shown = result.to_dict()
    assert shown["is_valid_json"] is True
    assert shown["schema_match"] is True
    assert json.loads(result.assemble()) == result.values


@pytest.mark.parametrize(
    ("value", "declared"),
    [
        ("C", ["A", "B"]),
        ("true", [True, False]),
        (1, [True, False]),
        (1.0, [1, 2]),
        (1, [1.0, 2.0]),
        (True, [1, 2]),
        (None, ["null", "x"]),
    ],
)
def test_a_value_that_was_never_declared_in_that_type_does_not_match(value, declared):
    shown = result_of(field(value, declared)).to_dict()
    assert (shown["is_valid_json"], shown["schema_match"]) == (True, False)


@pytest.mark.parametrize("value", [math.nan, math.inf, "\ud800"])
def test_a_value_that_is_not_json_is_said_not_to_be(value):
    shown = result_of(field(value, [value, "x"])).to_dict()
    assert (shown["is_valid_json"], shown["schema_match"]) == (False, False)


def test_two_fields_of_one_name_do_not_match():
    assert result_of(field("A", ["A"]), field("A", ["A"])).to_dict()["schema_match"] is False


def test_strict_json_holds_no_infinite_margin_and_refuses_nan():
    shown = json.loads(result_of(field("A", ["A", "B"], margin=math.inf)).to_json())
    assert shown["field_telemetry"]["f"]["margin"] is None
    with pytest.raises(ValueError, match="not JSON compliant"):
        result_of(field("A", ["A", "B"], prob=math.nan)).to_json()


def test_real_characters_stay_themselves():
    text = result_of(field("开心", ["开心", "难过"])).to_json()
    assert "开心" in text


def test_an_artifact_an_engine_and_a_result_are_one_short_line_in_a_shell(result):
    digest = ARTIFACT.digest[:12]
    compiled = f"Artifact('made', model='table', fields=['priority', 'urgent', 'count'], digest='{digest}')"
    assert repr(ARTIFACT) == compiled
    with Engine(ARTIFACT, loaded(TableModel(seeded(6)))) as engine:
        assert repr(engine) == f"Engine({compiled}, model='table')"
    values = repr(result.values)
    assert repr(result) == f"Result({values}, scoring='joint', model='table')"
    many = replace(result, answers=tuple(replace(result.answers[0], name=f"f{n}") for n in range(30)))
    assert repr(many).startswith("Result({'f0': 'P1', 'f1': ")
    assert "... 24 more}" in repr(many)
    assert max(map(len, map(repr, (many, *result.answers, *ARTIFACT.fields)))) < 250


def test_results_are_frozen_and_survive_a_copy(result):
    with pytest.raises(AttributeError):
        result.scoring = "trie"
    assert copy.deepcopy(result) == result
    assert result.fields is not result.fields
