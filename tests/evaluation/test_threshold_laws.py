"""Thresholds: bounds by scanning the binomial tail, the promise by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pcdc.evaluation import thresholds
from pcdc.evaluation.thresholds import SPARE_ERRORS, candidates, lower_bound, rows_needed, trials


def fit_threshold(probability, correct, precision, confidence, text=None):
    """Every row a text of its own, unless said otherwise."""
    text = np.arange(len(probability)) if text is None else text
    return thresholds.fit_threshold(probability, correct, text, precision, confidence)


def at_least(right, rows, share):
    """Probability of that many right answers or more."""
    return sum(math.comb(rows, n) * share**n * (1 - share) ** (rows - n) for n in range(right, rows + 1))


@pytest.mark.parametrize(("right", "rows"), [(1, 1), (3, 7), (59, 59), (95, 100), (50, 100), (1, 40)])
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_the_lower_bound_is_where_the_tail_reaches_what_is_left(right, rows, confidence):
    shares = np.arange(0, 1, 1e-3)
    likely = [share for share in shares if at_least(right, rows, share) > 1 - confidence]
    assert lower_bound(right, rows, confidence) == pytest.approx(min(likely), abs=1.01e-3)


def test_nothing_right_bounds_nothing():
    assert lower_bound(0, 10, 0.95) == 0


@pytest.mark.parametrize("precision", [0.6, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("errors", [0, 1, SPARE_ERRORS])
def test_the_rows_needed_are_the_fewest_that_pass(precision, errors):
    rows = rows_needed(precision, 0.95, errors)
    assert lower_bound(rows - errors, rows, 0.95) >= precision
    assert lower_bound(rows - 1 - errors, rows - 1, 0.95) < precision


def test_59_rows_without_an_error_are_needed_for_95_at_95():
    assert rows_needed(0.95, 0.95) == 59
    assert fit_threshold(np.full(59, 0.9), np.ones(59, dtype=bool), 0.95, 0.95).minimum == 0.9
    none = fit_threshold(np.full(58, 0.9), np.ones(58, dtype=bool), 0.95, 0.95)
    assert (none.minimum, none.share, none.tested, none.needed) == (None, None, (), 59)


def test_no_rows_at_all_give_no_threshold():
    assert fit_threshold(np.empty(0), np.empty(0, dtype=bool), 0.9, 0.95).minimum is None


def test_candidates_fall_from_few_rows_to_all():
    probability = np.random.default_rng(0).random(500)
    found = candidates(probability, 0.95, 0.95)
    counts = [int((probability >= minimum).sum()) for minimum in found]
    assert counts[0] == rows_needed(0.95, 0.95, SPARE_ERRORS)
    assert counts[-1] == 500
    assert counts == sorted(counts)


def test_the_last_pass_before_the_first_failure_is_kept():
    """Rows that pass again after a failure are not looked at."""
    probability = np.linspace(1, 0, 1000)
    correct = np.ones(1000, dtype=bool)
    correct[200:260] = False
    found = fit_threshold(probability, correct, 0.9, 0.95)
    assert [test.passed for test in found.tested] == [True] * (len(found.tested) - 1) + [False]
    assert found.minimum == found.tested[-2].minimum
    assert found.share == found.tested[-2].texts / 1000
    assert lower_bound(int(correct.sum()), 1000, 0.95) >= 0.9


def test_a_stricter_wish_never_automates_more():
    rng = np.random.default_rng(1)
    probability = rng.random(2000)
    correct = rng.random(2000) < 0.6 + 0.4 * probability
    shares = [fit_threshold(probability, correct, wish, 0.95).share or 0 for wish in (0.7, 0.8, 0.9, 0.99)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.5


def lowest_that_passes(probability, correct, precision, confidence):
    passed = [
        minimum
        for minimum in candidates(probability, precision, confidence)
        if lower_bound(
            int(correct[probability >= minimum].sum()), int((probability >= minimum).sum()), confidence
        )
        >= precision
    ]
    return passed[-1] if passed else None


def test_false_passes_stay_within_the_stated_risk_and_picking_the_lowest_breaks_it():
    """Precision is just below .9 everywhere, so that any threshold at all is a false one."""
    rng = np.random.default_rng(2)
    runs, kept, lowest = 1000, 0, 0
    for _ in range(runs):
        probability = rng.random(300)
        correct = rng.random(300) < 0.8999
        kept += fit_threshold(probability, correct, 0.9, 0.95).minimum is not None
        lowest += lowest_that_passes(probability, correct, 0.9, 0.95) is not None
    error = math.sqrt(0.05 * 0.95 / runs)
    assert kept / runs <= 0.05 + 2 * error
    assert lowest / runs > 0.05 + 4 * error


def test_false_passes_stay_within_the_stated_risk_where_precision_falls():
    """Answers of probability p are right in p + .05 of all cases: above .5 that is about .8."""
    rng = np.random.default_rng(3)
    runs, false = 800, 0
    for _ in range(runs):
        probability = rng.random(400)
        correct = rng.random(400) < np.minimum(1, probability + 0.05)
        minimum = fit_threshold(probability, correct, 0.8, 0.95).minimum
        grid = np.linspace(minimum, 1, 500) if minimum is not None else np.ones(1)
        false += float(np.minimum(1, grid + 0.05).mean()) < 0.8
    assert false / runs <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / runs)


@pytest.mark.parametrize("copies", [1, 10])
def test_false_passes_stay_within_the_stated_risk_however_often_a_text_is_repeated(copies):
    """Precision is .9 everywhere and .91 is wanted; copies of a text are right or wrong together."""
    rng = np.random.default_rng(4)
    runs, kept = 400, 0
    text = np.repeat(np.arange(100), copies)
    for _ in range(runs):
        probability, correct = rng.random(100)[text], (rng.random(100) < 0.9)[text]
        kept += fit_threshold(probability, correct, 0.91, 0.95, text).minimum is not None
    assert kept / runs <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / runs)


@pytest.mark.parametrize("texts", [1, 2, 10, 58])
def test_copies_make_no_text_more(texts):
    text = np.repeat(np.arange(texts), 70)
    found = fit_threshold(np.full(len(text), 0.9), np.ones(len(text), dtype=bool), 0.95, 0.95, text)
    assert (found.minimum, found.texts, found.rows, found.needed) == (None, texts, 70 * texts, 59)


@pytest.mark.parametrize("seed", range(5))
def test_equal_copies_change_nothing_but_the_count_of_rows(seed):
    rng = np.random.default_rng(seed)
    probability = rng.random(300)
    correct = rng.random(300) < 0.5 + probability / 2
    text = rng.permutation(np.repeat(np.arange(300), 3))
    once = fit_threshold(probability, correct, 0.8, 0.95)
    thrice = fit_threshold(probability[text], correct[text], 0.8, 0.95, text)
    assert (thrice.tested, thrice.minimum, thrice.share) == (once.tested, once.minimum, once.share)
    assert (thrice.texts, thrice.rows) == (300, 900)


def test_a_text_is_right_where_all_its_answers_at_the_threshold_are():
    probability = np.array([0.9, 0.6, 0.9, 0.3, 0.9, 0.9])
    correct = np.array([True, True, True, False, True, False])
    text = np.array([7, 7, 3, 3, 5, 5])
    assert trials(probability, correct, text, 0.5) == (3, 2)
    assert trials(probability, correct, text, 0.2) == (3, 1)
    assert trials(probability, correct, text, 0.95) == (0, 0)


def test_the_share_is_of_all_rows():
    """Ninety texts of probability .9 and right, ten of .2 and wrong with nine copies each."""
    text = np.concatenate([np.arange(90), np.repeat(np.arange(90, 100), 9)])
    found = fit_threshold(np.where(text < 90, 0.9, 0.2), text < 90, 0.95, 0.95, text)
    assert (found.minimum, found.share) == (0.9, 0.5)
