"""A whole evaluation: what is held apart, what is reported, what is stored."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from fakes import make_artifact, spelled
from labelled import measured
from pcdc_runtime.calibration import Threshold, dumps, loads
from scipy.stats import binomtest

from pcdc.evaluation import split
from pcdc.evaluation.deployed import Applied, Deployed
from pcdc.evaluation.evaluation import HELD_IN, calibration_of, evaluate
from pcdc.evaluation.fit import Fit

PROMISE = {"precision": 0.6, "confidence": 0.95}


@pytest.fixture(scope="module")
def run():
    return measured()


@pytest.fixture(scope="module")
def fitted(run):
    return evaluate(run, seed=1, fit=True, **PROMISE)


@pytest.fixture(scope="module")
def raw(run):
    return evaluate(run, seed=1, fit=False, **PROMISE)


@pytest.mark.parametrize("seed", range(5))
def test_equal_texts_never_part(seed):
    group = np.random.default_rng(seed).integers(0, 60, 200)
    inside = split.held_in(group, HELD_IN, seed)
    assert set(group[inside]).isdisjoint(group[~inside])
    fold = split.folds(group, seed)
    for number in range(split.FOLDS):
        assert set(group[fold == number]).isdisjoint(group[fold != number])


def test_half_of_the_texts_are_held_in_and_another_seed_holds_in_others():
    inside = split.held_in(np.arange(100), HELD_IN, 0)
    assert inside.sum() == 50
    assert (inside == split.held_in(np.arange(100), HELD_IN, 0)).all()
    assert (inside != split.held_in(np.arange(100), HELD_IN, 1)).any()


def test_the_report_is_json_and_the_same_for_the_same_seed(run, fitted):
    text = json.dumps(fitted.to_dict(), allow_nan=False)
    assert text == json.dumps(evaluate(run, seed=1, fit=True, **PROMISE).to_dict(), allow_nan=False)
    assert text != json.dumps(evaluate(run, seed=2, fit=True, **PROMISE).to_dict(), allow_nan=False)


def test_every_method_is_judged_on_the_same_held_out_rows(fitted):
    for field in fitted.fields:
        assert field.held_in > 0
        assert {figures.rows for figures in field.methods.values()} == {field.held_out}
        assert list(field.methods) == [
            *("majority", "written", "joint", "identify", "trie"),
            *("joint+temperature", "joint+prior", "joint+bias", "joint+chosen"),
        ]


def test_without_a_fit_all_labelled_rows_judge(raw, run):
    assert (raw.held_in_texts, raw.held_out_texts, raw.main) == (0, run.texts, "joint")
    for field, table in zip(raw.fields, run.tables, strict=True):
        assert field.selection is None
        assert field.methods["joint"].rows == len(table.row)
        assert set(field.methods) == {"majority", "written", "joint", "identify", "trie", "joint+prior"}


def halves(run, seed=1):
    """The split that `evaluate` makes."""
    return split.held_in(run.group, HELD_IN, seed, [(table.row, table.expected) for table in run.tables])


@pytest.mark.parametrize("seed", range(5))
def test_a_rare_choice_is_in_both_parts_and_equal_texts_still_never_part(seed):
    rng = np.random.default_rng(seed)
    group, texts = rng.integers(0, 150, 200), np.arange(200)
    topic = rng.choice(6, 150, p=[0.02, 0.02, 0.02, 0.04, 0.2, 0.7])[group]
    urgent = (rng.random(150) < 0.05)[group].astype(int)
    inside = split.held_in(group, HELD_IN, seed, [(texts, topic), (texts[:120], urgent[:120])])
    assert set(group[inside]).isdisjoint(group[~inside])
    assert len(set(group[inside])) == round(len(set(group)) / 2)
    for choices, count in ((topic, 200), (urgent[:120], 120)):
        for choice in range(6):
            one = choices == choice
            parts = [len(set(group[:count][one & part[:count]])) for part in (inside, ~inside)]
            assert abs(parts[0] - parts[1]) <= 2 + 0.1 * sum(parts)
            assert sum(parts) < 2 or min(parts)


def test_where_all_answers_are_right_or_wrong_the_interval_of_accuracy_is_exact(run):
    sure = np.eye(2)[run.tables[0].expected] * 50
    for sign, one_end in ((1, 1.0), (-1, 0.0)):
        scores = dict.fromkeys(run.tables[0].log_scores, sign * sure)
        only = replace(run, tables=(replace(run.tables[0], log_scores=scores),))
        figures = evaluate(only, seed=0, fit=False, **PROMISE).fields[0].methods["joint"]
        low, high = figures.intervals["accuracy"]
        exact = binomtest(figures.texts * (sign > 0), figures.texts).proportion_ci(0.95, "exact")
        assert one_end in (low, high)
        assert (low, high) == pytest.approx((exact.low, exact.high))


def test_labels_decide_no_split_without_a_share():
    assert not split.held_in(np.arange(9), 0.0, 0, [(np.arange(9), np.zeros(9, dtype=int))]).any()


def test_held_out_labels_change_no_fit(run, fitted, monkeypatch):
    """The held-out part only judges; which texts it holds is decided by all labels."""
    inside = halves(run)
    monkeypatch.setattr("pcdc.evaluation.evaluation.held_in", lambda *_: inside)
    tables = tuple(
        replace(table, expected=np.where(inside[table.row], table.expected, 0)) for table in run.tables
    )
    other = evaluate(replace(run, tables=tables), seed=1, fit=True, **PROMISE)
    assert [field.selection for field in other.fields] == [field.selection for field in fitted.fields]
    assert other.fields[1].methods["joint"] != fitted.fields[1].methods["joint"]


def test_a_fit_of_scores_that_are_off_lowers_log_loss_and_ece(fitted):
    before, after = fitted.overall["joint"], fitted.overall["joint+chosen"]
    assert after.log_loss < before.log_loss
    assert after.ece < before.ece
    for field in fitted.fields:
        assert field.methods["joint+chosen"] == field.methods[f"joint+{field.selection.chosen}"]


def test_figures_lie_in_their_intervals(fitted):
    """ECE apart: resampling raises it."""
    for figures in [*fitted.overall.values(), *(m for f in fitted.fields for m in f.methods.values())]:
        for name in ("accuracy", "macro_f1", "log_loss", "brier", "auroc"):
            value = getattr(figures, name)
            if value is not None:
                low, high = figures.intervals[name]
                assert low <= value <= high, name


def test_overall_pools_the_answers_of_all_fields(fitted):
    for name, figures in fitted.overall.items():
        parts = [field.methods[name] for field in fitted.fields]
        rows = sum(part.rows for part in parts)
        assert figures.rows == rows
        assert figures.accuracy == pytest.approx(sum(p.rows * p.accuracy for p in parts) / rows)
        assert figures.macro_f1 == pytest.approx(np.mean([part.macro_f1 for part in parts]))


def test_only_booleans_have_an_auroc_and_only_probabilities_a_loss(fitted):
    urgent, topic = fitted.fields
    assert urgent.methods["joint"].auroc > 0.5
    assert topic.methods["joint"].auroc is None
    written = topic.methods["written"]
    assert (written.log_loss, written.ece, written.reliability, written.risk_coverage) == (None,) * 4
    assert written.unanswered == sum(row[-1] for row in written.confusion) > 0


def test_comparisons_are_corrected_over_all_tests_of_a_figure(fitted):
    for figure in ("accuracy", "log_loss", "ece"):
        family = [test for test in fitted.comparisons if test.figure == figure]
        assert {test.family for test in family} == {len(family)}
        assert all(test.p <= test.holm <= 1 for test in family)
    pairs = {(test.first, test.second) for test in fitted.comparisons if test.field == "topic"}
    assert {("joint+chosen", "joint"), ("joint+chosen", "written"), ("joint", "trie")} <= pairs
    tests = {(test.field is None, test.figure, test.test) for test in fitted.comparisons}
    assert tests >= {(False, "accuracy", "mcnemar"), (True, "accuracy", "bootstrap")}


def test_thresholds_are_of_the_deployed_probabilities(fitted):
    urgent = fitted.fields[0]
    assert urgent.threshold.rows == urgent.held_out
    assert urgent.threshold.minimum is not None
    assert 0 < urgent.threshold.share <= 1


def applied(**fields):
    return Deployed("x.pcdc.calibration.json", "d" * 64, fields, {})


def test_the_calibration_in_use_is_judged_on_all_rows_and_its_thresholds_are_checked(run, raw):
    threshold = Threshold(0.8, 0.9, 0.95, 0.5, 100)
    fit = Fit("bias", 2.0, (0.4, -0.4))
    found = evaluate(
        run, seed=1, fit=False, **PROMISE, deployed=applied(urgent=Applied(fit, "0" * 16, 50, threshold))
    )
    assert found.main == "joint+applied"
    urgent, topic = found.fields
    log_prob = fit.log_prob(run.tables[0].log_scores["joint"])
    right = log_prob.argmax(axis=1) == run.tables[0].expected
    acted = np.exp(log_prob.max(axis=1)) >= 0.8
    assert urgent.methods["joint+applied"].accuracy == pytest.approx(right.mean())
    assert (urgent.check.rows, urgent.check.acted, urgent.check.right) == (
        run.texts,
        acted.sum(),
        (acted & right).sum(),
    )
    assert urgent.check.bound < urgent.check.precision
    assert (urgent.check.promised, urgent.threshold, topic.check) == (0.9, None, None)
    assert topic.methods["joint+applied"] == raw.fields[1].methods["joint"]


def test_wrong_answers_are_kept_the_surest_first(raw, run):
    for field, table in zip(raw.fields, run.tables, strict=True):
        kept = field.mistakes
        assert len(kept) == 20
        assert [one.probability for one in kept] == sorted((one.probability for one in kept), reverse=True)
        expected = dict(zip(table.row.tolist(), table.expected.tolist(), strict=True))
        assert all(one.expected == expected[one.text] != one.answered for one in kept)


def test_a_field_without_held_out_rows_has_no_figures(run, monkeypatch):
    whole = halves(run)
    inside = np.flatnonzero(whole)[:3]
    monkeypatch.setattr("pcdc.evaluation.evaluation.held_in", lambda *_: whole)
    table = replace(
        run.tables[1],
        row=inside,
        expected=run.tables[1].expected[:3],
        log_scores={rule: scores[:3] for rule, scores in run.tables[1].log_scores.items()},
        legal_mass={rule: mass[:3] for rule, mass in run.tables[1].legal_mass.items()},
        written=None,
    )
    few = evaluate(replace(run, tables=(run.tables[0], table)), seed=1, fit=True, **PROMISE)
    assert few.fields[1].methods == {}
    assert few.fields[1].threshold.minimum is None
    assert few.overall["joint"].rows == few.fields[0].held_out


@pytest.mark.parametrize("texts", [1, 2, 3, 5])
def test_a_handful_of_texts_is_judged_and_fits_nothing(texts):
    few = evaluate(measured(texts, baseline=False), seed=0, fit=True, **PROMISE)
    json.dumps(few.to_dict(), allow_nan=False)
    assert {field.selection.chosen for field in few.fields} == {"nothing"}


@pytest.mark.parametrize("texts", [1, 3, 19])
def test_copies_of_a_handful_of_texts_are_a_handful_of_texts(texts):
    """Hundreds of rows, and still no interval, no resampled p-value and no threshold."""
    run = measured(300, baseline=False)
    few = evaluate(replace(run, group=np.arange(300) % texts), seed=0, fit=False, **PROMISE)
    for figures in [*few.overall.values(), *(m for field in few.fields for m in field.methods.values())]:
        assert figures.texts == texts
        assert set(figures.intervals.values()) == {None}
    for test in few.comparisons:
        assert (test.texts, test.interval) == (texts, None)
        assert (test.p is None) == (test.holm is None) == (test.test == "bootstrap")
        assert test.p is None or test.p >= 2.0 ** (1 - texts)
    assert {t.family for t in few.comparisons if t.figure == "log_loss"} == {0}


def test_what_is_stored_is_the_chosen_fit_of_each_field(run):
    urgent = {True: [(["t"], [","])], False: [(["f"], [","])]}
    artifact = make_artifact({"urgent": urgent, "topic": spelled("a", "b", "c", "d", "e")})
    named = replace(run, schema=artifact.name, model=artifact.model, artifact=artifact.digest)
    evaluation = evaluate(named, seed=1, fit=True, **PROMISE)
    calibration = calibration_of(evaluation, artifact)
    assert [field.name for field in calibration.fields] == ["urgent", "topic"]
    for field, judged in zip(calibration.fields, evaluation.fields, strict=True):
        assert field.method == judged.selection.chosen
        assert field.after.ece == judged.methods["joint+chosen"].ece
        assert field.before.rows == judged.held_out
        assert field.rows == judged.held_in
    assert loads(dumps(calibration)) == calibration
