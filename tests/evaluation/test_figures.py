"""Figures against loops that anyone can check by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from labelled import drawn
from scipy.special import log_softmax
from sklearn.metrics import log_loss

from pcdc.evaluation import metrics
from pcdc.evaluation.metrics import Answers, Scored


def sample(seed, rows=137, choices=4):
    scores, expected = drawn(np.random.default_rng(seed), rows, choices, temperature=2.0, bias=1.0)
    return Answers.of(log_softmax(scores, axis=1)), expected


@pytest.mark.parametrize("seed", range(5))
def test_macro_f1_is_the_mean_over_choices_that_occur(seed):
    answers, expected = sample(seed, rows=12, choices=6)
    predicted = np.where(np.arange(12) % 5 == 0, -1, answers.predicted)
    scores = []
    for choice in sorted(set(expected.tolist())):
        hit = sum(p == choice == e for p, e in zip(predicted, expected, strict=True))
        scores.append(2 * hit / (sum(predicted == choice) + sum(expected == choice)))
    assert metrics.macro_f1(predicted, expected) == pytest.approx(sum(scores) / len(scores))


@pytest.mark.parametrize("seed", range(3))
def test_brier_is_half_the_squared_distance(seed):
    answers, expected = sample(seed)
    for row, value in enumerate(metrics.briers(answers.log_prob, expected)):
        prob = np.exp(answers.log_prob[row])
        by_hand = sum((prob[c] - (c == expected[row])) ** 2 for c in range(len(prob))) / 2
        assert value == pytest.approx(by_hand)


def test_brier_of_two_choices_is_the_usual_one():
    log_prob = np.log([[0.8, 0.2], [0.4, 0.6]])
    assert metrics.briers(log_prob, np.array([0, 0])) == pytest.approx([0.04, 0.36])


def test_log_loss_is_scikit_learns():
    answers, expected = sample(1)
    assert metrics.log_losses(answers.log_prob, expected).mean() == pytest.approx(
        log_loss(expected, np.exp(answers.log_prob), labels=range(4))
    )


def test_an_impossible_label_costs_a_finite_loss():
    loss = metrics.log_losses(np.array([[0.0, -np.inf]]), np.array([1]))
    assert loss == pytest.approx([-math.log(np.finfo(float).eps)])


@pytest.mark.parametrize("seed", range(5))
def test_ece_is_the_weighted_gap_over_bins_of_equal_mass(seed):
    answers, expected = sample(seed, rows=100)
    confidence, correct = answers.confidence, answers.predicted == expected
    order = sorted(range(100), key=lambda row: confidence[row])
    gap = 0.0
    for start in range(0, 100, 10):
        rows = order[start : start + 10]
        gap += abs(sum(correct[r] for r in rows) / 10 - sum(confidence[r] for r in rows) / 10) / 10
    assert metrics.ece(metrics.reliability(confidence, correct)) == pytest.approx(gap)


def test_equal_confidences_share_a_bin_whatever_the_order_of_rows():
    rng = np.random.default_rng(0)
    confidence = rng.choice([0.5, 0.6, 0.9], 200)
    correct = rng.random(200) < 0.7
    bins = metrics.reliability(confidence, correct)
    assert sum(part.rows for part in bins) == 200
    assert all(low.high < high.low for low, high in itertools.pairwise(bins))
    mixed = rng.permutation(200)
    assert metrics.ece(metrics.reliability(confidence[mixed], correct[mixed])) == pytest.approx(
        metrics.ece(bins)
    )


@pytest.mark.parametrize("rows", [1, 2, 9, 19, 20, 57, 1000])
def test_bins_hold_nearly_equal_numbers_and_none_is_empty(rows):
    index = metrics.bin_index(np.random.default_rng(rows).random(rows))
    counts = np.bincount(index)
    assert counts.min() > 0
    assert counts.max() - counts.min() <= 1
    assert len(counts) == max(1, min(metrics.MAX_BINS, rows // metrics.ROWS_PER_BIN))


@pytest.mark.parametrize("seed", range(5))
def test_auroc_counts_pairs(seed):
    rng = np.random.default_rng(seed)
    score, positive = rng.integers(0, 6, 40) / 6, rng.random(40) < 0.4
    pairs = [
        1.0 if score[p] > score[n] else 0.5 if score[p] == score[n] else 0.0
        for p in np.flatnonzero(positive)
        for n in np.flatnonzero(~positive)
    ]
    assert metrics.auroc(score, positive) == pytest.approx(sum(pairs) / len(pairs))


def test_auroc_needs_both_kinds():
    assert metrics.auroc(np.array([0.2, 0.8]), np.array([True, True])) is None


@pytest.mark.parametrize("seed", range(3))
def test_risk_at_a_coverage_is_the_error_rate_of_the_surest_rows(seed):
    rng = np.random.default_rng(seed)
    confidence, correct = rng.choice(np.linspace(0.3, 1, 12), 60), rng.random(60) < 0.6
    curve = metrics.risk_coverage(confidence, correct)
    by_row = []
    for row in range(60):
        answered = [r for r in range(60) if confidence[r] >= confidence[row]]
        by_row.append(sum(not correct[r] for r in answered) / len(answered))
    assert curve.area == pytest.approx(sum(by_row) / 60)
    assert curve.coverage[-1] == 1
    assert curve.risk[-1] == pytest.approx(1 - correct.mean())
    assert list(curve.coverage) == sorted(curve.coverage)


def test_confusion_counts_every_row_once_and_missing_answers_apart():
    counts = np.array(metrics.confusion(np.array([0, 1, -1, 1]), np.array([0, 0, 1, 1]), 2))
    assert counts.tolist() == [[1, 1, 0], [0, 1, 1]]


def test_a_tie_goes_to_the_first_declared():
    assert Answers.of(np.log([[0.25, 0.25, 0.5], [0.4, 0.4, 0.2]])).predicted.tolist() == [2, 0]


def test_pooled_rows_have_the_mean_of_all_rows():
    parts = [Scored.of(*sample(seed, rows=20 + seed, choices=2 + seed)) for seed in range(3)]
    pooled = Scored.pooled(parts)
    assert len(pooled.correct) == 63
    assert pooled.log_loss.sum() == pytest.approx(sum(part.log_loss.sum() for part in parts))


def test_histogram_holds_every_value_from_0_to_1():
    counts = metrics.histogram(np.array([0.0, 0.04, 0.5, 1.0]))
    assert len(counts) == metrics.HISTOGRAM_BINS
    assert (counts[0], counts[10], counts[-1]) == (2, 1, 1)
