"""What a calibration does to answers: the arithmetic, the fields it holds for, and what is told of others."""

import logging
import math
from dataclasses import replace

import numpy as np
import pytest
from fakes import TableModel, loaded, make_artifact, result_of, seeded, spelled, table
from fitted import THRESHOLD, calibration, fitted
from pcdc_runtime.calibration import CalibratedThreshold, calibration_path, read_thresholds, write
from pcdc_runtime.codec import dumps
from pcdc_runtime.engine import Engine, load
from pcdc_runtime.errors import CalibrationError, ThresholdError, UnknownFieldError
from pcdc_runtime.result import AppliedCalibration
from pcdc_runtime.rules import RULES
from pcdc_runtime.storage import write_atomic

CONTEXT = "My order never came."
FIELDS = {
    "team": spelled("ops", "sales", "law"),
    "level": spelled("low", "high"),
    "open": spelled("yes", "no"),
}
ARTIFACT = make_artifact(FIELDS, temperature=2.0)
BIAS = (0.5, -1.25, 3.0)


def ask(fitting, artifact=ARTIFACT, rule=None, **options):
    with Engine(artifact, loaded(TableModel(rule or seeded(3))), calibration=fitting) as engine:
        return engine.run(CONTEXT, **options)


def softmax(level):
    weight = np.exp(level - level.max())
    return weight / weight.sum()


@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.5])
@pytest.mark.parametrize("bias", [(), BIAS])
@pytest.mark.parametrize("seed", range(3))
def test_calibrated_probability_is_the_softmax_of_score_by_temperature_plus_bias(temperature, bias, seed):
    method = "bias" if bias else "temperature"
    fitting = calibration(ARTIFACT, fitted(ARTIFACT, "team", method, temperature, bias))
    answer = ask(fitting, rule=seeded(seed)).fields["team"]
    raw = np.array(answer.log_scores)
    assert answer.log_scores == ask(None, rule=seeded(seed)).fields["team"].log_scores
    level = raw / temperature + np.array(bias or (0, 0, 0))
    labels = [candidate.value for candidate in ARTIFACT.fields[0].candidates]
    assert [dict(answer.distribution)[label] for label in labels] == pytest.approx(softmax(level))
    assert answer.value == labels[int(level.argmax())]
    assert answer.prob == max(p for _, p in answer.distribution)
    first, second = np.sort(level)[::-1][:2]
    assert answer.margin == pytest.approx(temperature * (first - second))
    assert answer.calibration == AppliedCalibration(method, fitting.id_of("team"), THRESHOLD.minimum)


def test_the_margin_is_how_far_raw_scores_must_move_to_change_a_calibrated_answer():
    fitting = calibration(ARTIFACT, fitted(ARTIFACT, "team", "bias", 2.5, BIAS))
    answer = ask(fitting).fields["team"]
    order = [value for value, _ in answer.distribution]
    labels = [candidate.value for candidate in ARTIFACT.fields[0].candidates]

    def winner(moved):
        raw = np.array(answer.log_scores)
        raw[labels.index(order[0])] -= moved
        return labels[int((raw / 2.5 + np.array(BIAS)).argmax())]

    assert winner(answer.margin - 1e-9) == order[0]
    assert winner(answer.margin + 1e-9) == order[1]


EVEN = table({(): {"a": 0.2, "b": 0.2, "c": 0.1}, **{(label,): {'"': 1.0} for label in "abc"}})


def test_a_bias_makes_and_breaks_ties():
    artifact = make_artifact({"f": spelled("c", "a", "b")})
    plain = ask(None, artifact, EVEN).fields["f"]
    assert (plain.value, plain.tie, plain.near_tie) == ("a", True, True)

    def biased(*bias):
        return ask(calibration(artifact, fitted(artifact, "f", "bias", 1.0, bias)), artifact, EVEN).fields[
            "f"
        ]

    broken = biased(0.0, 0.0, 0.5)
    assert (broken.value, broken.tie, broken.near_tie) == ("b", False, False)
    assert broken.margin == pytest.approx(0.5)
    close = biased(0.0, 0.0, 1e-6)
    assert (close.value, close.tie, close.near_tie) == ("b", False, True)
    scores = dict(zip("cab", plain.log_scores, strict=True))
    level = biased(scores["a"] - scores["c"], 0.0, 0.0)
    assert (level.value, level.near_tie) == ("c", True)
    assert level.margin == pytest.approx(0.0, abs=1e-12)


def test_no_bias_gives_an_impossible_choice_a_probability():
    artifact = make_artifact({"f": spelled("a", "b", "x")})
    certain = table({(): {"a": 0.5, "b": 0.2}, ("a",): {'"': 1.0}, ("b",): {'"': 1.0}})
    fitting = calibration(artifact, fitted(artifact, "f", "bias", 1000.0, [-1000.0, -1000.0, 1000.0]))
    answer = ask(fitting, artifact, certain).fields["f"]
    assert answer.log_scores[2] == -math.inf
    assert dict(answer.distribution)["x"] == 0.0
    assert answer.value == "a"
    only = table({(): {"a": 0.5}, ("a",): {'"': 1.0}})
    assert ask(fitting, artifact, only).fields["f"].margin == math.inf


def test_the_result_says_of_each_field_which_calibration_was_applied():
    fitting = calibration(
        ARTIFACT,
        fitted(ARTIFACT, "team", "bias", 1.5, BIAS),
        fitted(ARTIFACT, "level", "nothing", 2.0),
    )
    result = ask(fitting)
    shown = {
        name: telemetry["calibration"] for name, telemetry in result.to_dict()["field_telemetry"].items()
    }
    assert shown == {
        "team": {"method": "bias", "id": fitting.id_of("team")},
        "level": {"method": "nothing", "id": fitting.id_of("level")},
        "open": None,
    }
    assert result.warnings == ("uncalibrated",)
    assert ask(fitting, fields=["team", "level"]).warnings == ()
    plain = ask(None)
    assert result.fields["open"] == plain.fields["open"]
    assert result.fields["level"].distribution == plain.fields["level"].distribution


def test_after_an_edit_of_one_field_the_others_keep_their_calibration(caplog):
    fitting = calibration(ARTIFACT, *(fitted(ARTIFACT, name, "temperature", 3.0) for name in FIELDS))
    edited = make_artifact(FIELDS | {"level": spelled("low", "high", "higher")}, temperature=2.0)
    assert edited.digest != ARTIFACT.digest
    with (
        caplog.at_level(logging.WARNING, "pcdc_runtime"),
        Engine(edited, loaded(TableModel(seeded(3))), calibration=fitting) as engine,
    ):
        first, again = engine.run(CONTEXT), engine.run(CONTEXT)
    assert first.answers == again.answers
    for name in ("team", "open"):
        assert first.fields[name].calibration.id == fitting.id_of(name)
        assert first.fields[name].distribution == ask(fitting).fields[name].distribution
    level = first.fields["level"]
    assert (level.calibration, level.calibration_dropped) == (
        None,
        "the field has changed since it was fitted",
    )
    assert replace(level, calibration_dropped="") == ask(None, edited).fields["level"]
    assert first.to_dict()["field_telemetry"]["level"]["calibration"] == {
        "dropped": "the field has changed since it was fitted"
    }
    assert first.warnings == ("uncalibrated", "calibration_dropped")
    (record,) = caplog.records
    assert record.getMessage() == (
        "calibration of made: not applied to level: the field has changed since it was fitted"
    )


DROPPED = {
    "weights": (lambda c: replace(c, weights="0" * 64), "it was fitted on other weights than those of table"),
    "prompt": (
        lambda c: replace(c, prompt_version="0"),
        "it was fitted with prompt version '0', the artifact has '1'",
    ),
    "rule": (lambda c: replace(c, scoring="trie"), "it was fitted to the rule trie, not to joint"),
}


@pytest.mark.parametrize("what", DROPPED)
def test_a_calibration_for_something_else_is_applied_to_nothing_and_says_why_once(what, caplog):
    change, reason = DROPPED[what]
    fitting = change(calibration(ARTIFACT, *(fitted(ARTIFACT, name, "temperature", 3.0) for name in FIELDS)))
    with (
        caplog.at_level(logging.WARNING, "pcdc_runtime"),
        Engine(ARTIFACT, loaded(TableModel(seeded(3))), calibration=fitting) as engine,
    ):
        results = [engine.run(CONTEXT) for _ in range(3)]
    plain = ask(None)
    for result in results:
        assert {answer.calibration_dropped for answer in result.answers} == {reason}
        assert [replace(answer, calibration_dropped="") for answer in result.answers] == list(plain.answers)
    assert [record.getMessage() for record in caplog.records] == [
        f"calibration of made: not applied to team, level, open: {reason}"
    ]


@pytest.mark.parametrize("rule", RULES)
def test_a_request_under_another_rule_is_answered_uncalibrated_and_told_once(rule, caplog):
    fitting = calibration(ARTIFACT, fitted(ARTIFACT, "team", "temperature", 3.0), scoring=rule)
    artifact = replace(ARTIFACT, scoring=rule)
    with (
        caplog.at_level(logging.WARNING, "pcdc_runtime"),
        Engine(artifact, loaded(TableModel(seeded(3))), calibration=fitting) as engine,
    ):
        for asked in (None, *RULES, *RULES):
            answer = engine.run(CONTEXT, scoring=asked).fields["team"]
            assert (answer.calibration is not None) == (asked in (None, rule))
            assert bool(answer.calibration_dropped) == (asked not in (None, rule))
    assert len(caplog.records) == 2


def test_an_explicit_temperature_and_a_comparison_leave_the_calibration_out():
    fitting = calibration(ARTIFACT, *(fitted(ARTIFACT, name, "temperature", 3.0) for name in FIELDS))
    with Engine(ARTIFACT, loaded(TableModel(seeded(3))), calibration=fitting) as engine:
        asked = engine.run(CONTEXT, temperature=2.0)
        compared = engine.compare(CONTEXT)["joint"]
    for result in (asked, compared):
        assert result.answers == ask(None).answers
        assert result.warnings == ("uncalibrated",)


def test_biases_that_are_not_as_many_as_the_choices_are_refused():
    fitting = calibration(ARTIFACT, fitted(ARTIFACT, "team", "bias", 1.0, BIAS[:2]))
    with pytest.raises(CalibrationError, match=r"2 biases for the 3 choices of 'team'"):
        ask(fitting)


def test_a_field_that_is_gone_is_told_of_and_nothing_else(caplog):
    whole = calibration(ARTIFACT, *(fitted(ARTIFACT, name, "temperature", 3.0) for name in FIELDS))
    smaller = make_artifact({name: FIELDS[name] for name in ("team", "open")}, temperature=2.0)
    with caplog.at_level(logging.WARNING, "pcdc_runtime"):
        result = ask(whole, smaller)
    assert result.warnings == ()
    (record,) = caplog.records
    assert record.getMessage() == "calibration of made: not applied to level: the artifact has no such field"


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "made.table.pcdc"
    write_atomic(path, dumps(ARTIFACT))
    return path


def test_the_file_beside_the_artifact_is_applied_unless_it_shall_not_be(path):
    fitting = calibration(ARTIFACT, fitted(ARTIFACT, "team", "bias", 1.5, BIAS))
    with loaded(TableModel(seeded(3))) as model:
        with load(path, model) as engine:
            assert engine.calibration is None
            assert engine.run(CONTEXT).answers == ask(None).answers
        write(calibration_path(path), fitting)
        with load(path, model) as engine:
            assert engine.calibration == fitting
            assert engine.run(CONTEXT).answers == ask(fitting).answers != ask(None).answers
        with load(path, model, calibration=False) as engine:
            assert engine.run(CONTEXT).answers == ask(None).answers


def test_a_damaged_file_beside_the_artifact_is_refused_unless_it_is_not_asked_for(path):
    calibration_path(path).write_bytes(b"{")
    with loaded(TableModel(seeded(3))) as model:
        with pytest.raises(CalibrationError, match="strict JSON"):
            load(path, model)
        with load(path, model, calibration=False) as engine:
            assert engine.run(CONTEXT).answers == ask(None).answers
        assert model._users == 1


def one(name, prob, applied=None, dropped=""):
    answer = ask(None).fields["team"]
    return replace(answer, name=name, prob=prob, calibration=applied, calibration_dropped=dropped)


def test_answers_are_routed_by_the_thresholds_of_their_own_calibration():
    result = result_of(
        one("sure", 0.9, AppliedCalibration("bias", "1" * 16, 0.9)),
        one("unsure", 0.8999, AppliedCalibration("bias", "2" * 16, 0.9)),
        one("untested", 0.99, AppliedCalibration("bias", "3" * 16)),
        one("raw", 0.99),
        one("changed", 0.99, None, "it changed"),
    )
    route = result.route()
    assert route.apply == {"sure": result.fields["sure"]}
    assert route.review == {
        "unsure": "probability 0.8999 below 0.9",
        "untested": "no threshold",
        "raw": "no threshold",
        "changed": "no threshold: calibration dropped, it changed",
    }


def test_answers_are_routed_by_thresholds_that_are_given():
    result = result_of(one("a", 0.9), one("b", 0.5), one("c", 0.7))
    route = result.route({"a": 0.9, "b": 0.75})
    assert list(route.apply) == ["a"]
    assert route.review == {"b": "probability 0.5000 below 0.75", "c": "no threshold"}
    assert list(result.route({"a": 1, "b": 0, "c": np.float32(0.5)}).apply) == ["b", "c"]


def test_own_thresholds_replace_fitted_ones_of_the_fields_they_name_only():
    fitted_one = AppliedCalibration("bias", "1" * 16, 0.9)
    result = result_of(one("a", 0.8, fitted_one), one("b", 0.8, fitted_one), one("c", 0.95, fitted_one))
    route = result.route({"a": 0.7})
    assert list(route.apply) == ["a", "c"]
    assert route.review == {"b": "probability 0.8000 below 0.9"}
    assert result.route({}) == result.route()


def test_a_threshold_for_a_field_that_the_schema_does_not_have_is_refused():
    with pytest.raises(UnknownFieldError) as refused:
        result_of(one("team", 0.9), one("urgent", 0.9)).route({"urgent": 0.5, "Teem": 0.5})
    assert refused.value.code == "PCDC705"
    assert (refused.value.fact, refused.value.help) == (
        "name what is no field: 'Teem'",
        "did you mean 'team'?",
    )


def test_a_threshold_for_a_field_that_was_not_asked_for_is_not_refused():
    result = replace(ask(None), answers=ask(None).answers[:1])
    others = dict.fromkeys(FIELDS, 0.0)
    assert list(result.route(others).apply) == [result.answers[0].name]


@pytest.mark.parametrize("value", [math.nan, math.inf, -0.01, 1.01, True, np.True_, None, "0.9"])
def test_a_threshold_that_is_no_probability_is_refused(value):
    with pytest.raises(ThresholdError, match="threshold of 'team'"):
        ask(None).route({"team": value})


def test_one_number_for_all_fields_is_refused_with_the_form_to_write():
    with pytest.raises(ThresholdError) as refused:
        ask(None).route(0.9)
    assert refused.value.help == 'such as `{"urgent": 0.9}`'


def test_thresholds_of_another_calibration_send_to_review(tmp_path):
    fitting = calibration(ARTIFACT, *(fitted(ARTIFACT, name, "temperature", 0.01) for name in FIELDS))
    other = calibration(
        ARTIFACT,
        fitted(ARTIFACT, "team", "temperature", 0.02),
        fitted(ARTIFACT, "level", "temperature", 0.01),
    )
    write(tmp_path / "c.json", other)
    thresholds = read_thresholds(tmp_path / "c.json")
    assert thresholds["team"] == CalibratedThreshold(THRESHOLD.minimum, other.id_of("team"))
    result = ask(fitting)
    assert min(answer.prob for answer in result.answers) > THRESHOLD.minimum
    route = result.route(thresholds)
    assert list(route.apply) == ["level", "open"]
    assert route.review == {"team": "threshold of another calibration"}
    assert list(result.route(thresholds | {"gone": replace(thresholds["team"])}).apply) == ["level", "open"]
    assert ask(None).route(thresholds).apply == {}
    assert list(result.route().apply) == list(FIELDS)
