"""Resampling and paired tests against enumeration and simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from labelled import drawn
from scipy.special import log_softmax

from pcdc.evaluation import bootstrap, metrics
from pcdc.evaluation.metrics import Answers, Scored


def sample(seed, rows=90, choices=2):
    scores, expected = drawn(np.random.default_rng(seed), rows, choices, bias=1.0)
    return Answers.of(log_softmax(scores, axis=1)), expected


def every_figure(answers, expected, text, weights):
    return bootstrap.resampled(Scored.of(answers, expected), text, weights) | {
        "macro_f1": bootstrap.macro_f1s(answers.predicted, expected, text, weights),
        "auroc": bootstrap.aurocs(answers.log_prob[:, 0], expected == 0, text, weights),
    }


def point_figures(answers, expected):
    confidence, correct = answers.confidence, answers.predicted == expected
    return {
        "accuracy": metrics.accuracy(answers.predicted, expected),
        "log_loss": metrics.log_losses(answers.log_prob, expected).mean(),
        "brier": metrics.briers(answers.log_prob, expected).mean(),
        "ece": metrics.ece(metrics.reliability(confidence, correct)),
        "risk_coverage": metrics.risk_coverage(confidence, correct).area,
        "macro_f1": metrics.macro_f1(answers.predicted, expected),
        "auroc": metrics.auroc(answers.log_prob[:, 0], expected == 0),
    }


@pytest.mark.parametrize("seed", range(4))
def test_drawing_every_text_once_gives_the_figure_itself(seed):
    answers, expected = sample(seed)
    drawn_once = every_figure(answers, expected, np.arange(90), np.ones((bootstrap.RESAMPLES, 90)))
    for name, value in point_figures(answers, expected).items():
        assert drawn_once[name] == pytest.approx(value), name


@pytest.mark.parametrize("seed", range(2))
def test_a_resample_is_the_rows_repeated_as_often_as_drawn(seed):
    """ECE apart, whose bins stay those of the whole sample."""
    answers, expected = sample(seed)
    text = np.arange(90) // 2
    weights = bootstrap.draw(45, seed)
    found = every_figure(answers, expected, text, weights)
    for resample in (0, 1, 999):
        rows = np.repeat(np.arange(90), weights[resample][text].astype(int))
        repeated = Answers(answers.predicted[rows], answers.log_prob[rows])
        for name, value in point_figures(repeated, expected[rows]).items():
            if name != "ece":
                assert found[name][resample] == pytest.approx(value), name


def test_each_resample_draws_as_many_texts_as_there_are():
    assert (bootstrap.draw(33, 5).sum(axis=1) == 33).all()
    assert (bootstrap.draw(33, 5) == bootstrap.draw(33, 5)).all()
    assert (bootstrap.draw(33, 5) != bootstrap.draw(33, 6)).any()


def test_a_resample_without_any_row_of_a_field_does_not_spoil_the_interval():
    answers, expected = sample(0, rows=1)
    figures = every_figure(answers, expected, np.array([0]), bootstrap.draw(3, 0))
    assert np.isnan(figures["accuracy"]).any()
    assert bootstrap.interval(figures["accuracy"], 90) is not None
    assert bootstrap.interval(figures["auroc"], 90) is None


def test_the_interval_of_accuracy_covers_the_truth_about_as_often_as_stated():
    rng = np.random.default_rng(0)
    covered = 0
    for seed in range(120):
        scored = Scored(rng.random(100) < 0.7, None, None, None)
        values = bootstrap.resampled(scored, np.arange(100), bootstrap.draw(100, seed))["accuracy"]
        low, high = bootstrap.interval(values, 100)
        covered += low <= 0.7 <= high
    assert covered >= 105


def test_the_ece_of_a_calibrated_model_lies_in_its_band_about_as_often_as_stated():
    rng = np.random.default_rng(1)
    inside = 0
    for seed in range(60):
        confidence = rng.beta(4, 2, 200)
        low, high = bootstrap.ece_band(confidence, seed)
        assert low > 0
        value = metrics.ece(metrics.reliability(confidence, rng.random(200) < confidence))
        inside += low <= value <= high
    assert inside >= 51


def test_an_overconfident_model_lies_above_the_band():
    rng = np.random.default_rng(2)
    confidence = rng.uniform(0.9, 1, 400)
    value = metrics.ece(metrics.reliability(confidence, rng.random(400) < 0.7))
    assert value > bootstrap.ece_band(confidence, 0)[1]


@pytest.mark.parametrize(("only_first", "only_second"), [*itertools.product(range(5), repeat=2)])
def test_mcnemar_counts_the_outcomes_that_are_no_likelier(only_first, only_second):
    first = np.array([True] * only_first + [False] * only_second + [True, False])
    second = np.array([False] * only_first + [True] * only_second + [True, False])
    pairs = only_first + only_second
    ways = [math.comb(pairs, wins) for wins in range(pairs + 1)]
    extreme = sum(way for way in ways if way <= ways[only_first])
    assert bootstrap.mcnemar_p(first, second, np.arange(len(first))) == pytest.approx(extreme / 2**pairs)


@pytest.mark.parametrize("seed", range(5))
def test_copies_of_a_text_are_one_trial_of_mcnemar(seed):
    rng = np.random.default_rng(seed)
    first, second = rng.random(40) < 0.8, rng.random(40) < 0.5
    text = rng.permutation(np.repeat(np.arange(40), 5))
    once = bootstrap.mcnemar_p(first, second, np.arange(40))
    assert bootstrap.mcnemar_p(first[text], second[text], text) == once < 1
    better, worse = np.ones(20, dtype=bool), np.zeros(20, dtype=bool)
    assert bootstrap.mcnemar_p(better, worse, np.zeros(20, dtype=int)) == 1


def test_a_text_counts_for_the_method_with_more_right_answers_to_it():
    text = np.repeat(np.arange(6), 3)
    first = np.tile([True, True, False], 6)
    second = np.tile([True, False, False], 6)
    assert bootstrap.mcnemar_p(first, second, text) == 2 / 2**6
    assert bootstrap.mcnemar_p(first, first[::-1], text) == 1


def test_holm_by_hand():
    assert bootstrap.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert bootstrap.holm([0.9, 0.8]) == [1.0, 1.0]
    assert bootstrap.holm([]) == []


@pytest.mark.parametrize("seed", range(20))
def test_holm_rejects_what_stepping_down_rejects(seed):
    p_values = np.random.default_rng(seed).random(6) ** 3
    rejected, left = set(), sorted(range(6), key=lambda test: p_values[test])
    while left and p_values[left[0]] <= 0.05 / len(left):
        rejected.add(left.pop(0))
    assert {test for test, p in enumerate(bootstrap.holm(p_values.tolist())) if p <= 0.05} == rejected


def test_equal_methods_do_not_differ_and_far_ones_do_in_any_family():
    assert bootstrap.bootstrap_p(np.zeros(1000), 100) == 1.0
    clear = np.random.default_rng(0).normal(1, 0.1, 1000)
    assert bootstrap.bootstrap_p(clear, 100) < 1e-6
    assert bootstrap.bootstrap_p(-clear, 100) == bootstrap.bootstrap_p(clear, 100)


@pytest.mark.parametrize("texts", [20, 25, 40])
def test_no_p_value_is_smaller_than_flipping_signs_could_show(texts):
    clear = np.random.default_rng(0).normal(1, 1e-3, 1000)
    assert bootstrap.bootstrap_p(clear, texts) == 2 / 2**texts


@pytest.mark.parametrize("texts", range(bootstrap.MIN_TEXTS))
def test_a_handful_of_texts_has_no_interval_and_no_resampled_p_value(texts):
    values = np.random.default_rng(0).normal(1, 1e-3, 1000)
    assert bootstrap.interval(values, texts) is None
    assert bootstrap.bootstrap_p(values, texts) is None


def test_a_paired_p_value_is_small_about_as_often_as_it_says_where_nothing_differs():
    rng = np.random.default_rng(3)
    small = 0
    for seed in range(200):
        difference = bootstrap.draw(60, seed) @ rng.normal(0, 1, 60) / 60
        small += bootstrap.bootstrap_p(difference, 60) <= 0.05
    assert small <= 22
