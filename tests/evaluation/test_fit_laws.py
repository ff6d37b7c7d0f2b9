"""Calibrations: what they must learn, and that they do no harm."""

from __future__ import annotations

import numpy as np
import pytest
from labelled import drawn
from scipy.special import log_softmax

from pcdc.evaluation import fit
from pcdc.evaluation.metrics import log_losses


def gain(selection, method, scores, expected):
    """By how much a method's mean log loss is above that of `nothing`."""
    losses = {
        name: log_losses(selection.fits[name].log_prob(scores), expected).mean()
        for name in ("nothing", method)
    }
    return losses[method] - losses["nothing"]


def trial(seed, labels, **off):
    rng = np.random.default_rng(seed)
    choices = (2, 3, 5, 10, 20)[seed % 5]
    scores, expected = drawn(rng, labels + 2000, choices, **off)
    group = np.arange(labels)
    selection = fit.select(scores[:labels], expected[:labels], group, 1.0, None, seed)
    return selection, gain(selection, selection.chosen, scores[labels:], expected[labels:])


@pytest.mark.parametrize("off", [{}, {"temperature": 1.2}, {"bias": 0.3, "temperature": 1.1}])
def test_50_labels_do_no_harm(off):
    """On 30 seeded sets of 2 to 20 choices: .01 nats at most on average, above .03 in one of ten at most."""
    harm = np.array([trial(seed, 50, **off)[1] for seed in range(30)])
    assert harm.mean() <= 0.01
    assert (harm > 0.03).mean() <= 0.1


def test_calibrated_scores_are_left_alone():
    chosen = [trial(seed, 50)[0].chosen for seed in range(25)]
    assert chosen.count("nothing") >= 23


def test_50_labels_mend_a_strong_bias():
    found = [trial(seed, 50, bias=2.0, temperature=2.0) for seed in range(15)]
    assert np.mean([change for _, change in found]) < -1
    assert max(change for _, change in found) <= 0.03


def test_many_labels_find_the_temperature():
    scores, expected = drawn(np.random.default_rng(0), 4000, 5, temperature=3.0)
    assert fit.fit_temperature(scores, expected, 1.0).temperature == pytest.approx(3.0, rel=0.1)


def test_the_fitted_temperature_is_the_best_of_a_scan():
    scores, expected = drawn(np.random.default_rng(1), 200, 4, temperature=2.0)

    def cost(temperature):
        loss = log_losses(log_softmax(scores / temperature, axis=1), expected).sum()
        return loss + np.log(temperature) ** 2 / fit.TEMPERATURE_SPREAD**2 / 2

    scan = np.exp(np.arange(np.log(0.2), np.log(10), 0.002))
    best = min(scan, key=cost)
    assert fit.fit_temperature(scores, expected, 1.0).temperature == pytest.approx(best, rel=0.003)


def test_many_labels_find_the_bias():
    rng = np.random.default_rng(2)
    scores, expected = drawn(rng, 8000, 3)
    shift = np.array([1.0, -0.5, -0.5])
    found = fit.fit_bias(2 * (scores - shift), expected, 1.0, 2.0)
    assert found.temperature == pytest.approx(2.0, rel=0.1)
    assert found.bias == pytest.approx(shift, abs=0.15)


def test_no_step_away_from_the_fitted_bias_costs_less():
    scores, expected = drawn(np.random.default_rng(3), 80, 4, bias=1.0)
    found = fit.fit_bias(scores, expected, 1.0, 0.5)

    def cost(log_temperature, bias):
        loss = log_losses(log_softmax(scores / np.exp(log_temperature) + bias, axis=1), expected).sum()
        return loss + log_temperature**2 / fit.TEMPERATURE_SPREAD**2 / 2 + bias @ bias / 0.5**2 / 2

    here = np.log(found.temperature), np.array(found.bias)
    for step in np.random.default_rng(0).normal(0, 0.05, (50, 5)):
        assert cost(here[0] + step[0], here[1] + step[1:]) > cost(*here)


def test_a_choice_that_no_label_names_keeps_a_small_bias():
    scores, expected = drawn(np.random.default_rng(4), 50, 10)
    seen = np.where(expected == 7, 0, expected)
    for spread in fit.BIAS_SPREADS:
        bias = np.array(fit.fit_bias(scores, seen, 1.0, spread).bias)
        assert np.isfinite(bias).all()
        assert abs(bias[7]) <= 1.5 * spread
        assert bias.sum() == pytest.approx(0, abs=1e-2)


def test_impossible_choices_stay_impossible_and_spoil_no_fit():
    scores, expected = drawn(np.random.default_rng(5), 120, 4, bias=1.0)
    scores[::7, 2] = -np.inf
    selection = fit.select(scores, expected, np.arange(120), 1.0, None, 0)
    for found in selection.fits.values():
        log_prob = found.log_prob(scores)
        assert (log_prob[::7, 2] == -np.inf).all()
        assert np.exp(log_prob).sum(axis=1) == pytest.approx(1)
        assert np.isfinite([found.temperature, *found.bias]).all()


def test_a_label_that_is_impossible_everywhere_moves_nothing():
    scores, expected = drawn(np.random.default_rng(6), 60, 3)
    impossible = np.full((5, 3), 0.0)
    impossible[:, 1] = -np.inf
    more = np.concatenate([scores, impossible]), np.concatenate([expected, np.ones(5, dtype=int)])
    assert fit.fit_temperature(*more, 1.0) == fit.fit_temperature(scores, expected, 1.0)
    assert fit.fit_bias(*more, 1.0, 0.5) == fit.fit_bias(scores, expected, 1.0, 0.5)


def test_the_prior_makes_texts_without_content_undecided():
    log_prior = np.log([0.7, 0.2, 0.1])
    for temperature in (1.0, 2.0):
        found = fit.prior_bias(log_prior, temperature)
        assert np.exp(found.log_prob(log_prior[None])) == pytest.approx(np.full((1, 3), 1 / 3))
        assert found.temperature == temperature


def test_a_prior_of_zero_gives_a_finite_bias():
    found = fit.prior_bias(np.array([0.0, -np.inf]), 1.0)
    assert max(np.abs(found.bias)) <= fit.MAX_BIAS


@pytest.mark.parametrize("rows", [0, 1, fit.MIN_ROWS - 1])
def test_too_few_labels_fit_nothing(rows):
    scores, expected = drawn(np.random.default_rng(7), rows, 3, bias=3.0)
    selection = fit.select(scores, expected, np.arange(rows), 1.0, np.log([0.5, 0.3, 0.2]), 0)
    assert selection.chosen == "nothing"
    assert set(selection.fits) == {"nothing", "prior"}


def test_repeats_of_a_few_texts_are_few_labels():
    scores, expected = drawn(np.random.default_rng(8), 10, 3, bias=3.0)
    selection = fit.select(
        np.tile(scores, (5, 1)), np.tile(expected, 5), np.tile(np.arange(10), 5), 1.0, None, 0
    )
    assert selection.chosen == "nothing"


def test_a_prior_that_is_the_bias_is_chosen_over_fitting_one():
    scores, expected = drawn(np.random.default_rng(9), 400, 4)
    shift = np.array([2.0, 0.0, -1.0, -1.0])
    selection = fit.select(scores + shift, expected, np.arange(400), 1.0, log_softmax(shift), 0)
    assert selection.chosen == "prior"


def test_the_choice_is_the_simplest_within_one_standard_error():
    scores, expected = drawn(np.random.default_rng(10), 200, 4, temperature=2.0, bias=0.3)
    selection = fit.select(scores, expected, np.arange(200), 1.0, np.log(np.full(4, 0.25)), 3)
    assert min(selection.excess.values()) == 0
    for name in fit.METHODS:
        if name == selection.chosen:
            assert selection.excess[name] <= selection.error[name]
            break
        assert selection.excess[name] > selection.error[name]


def test_a_fit_is_the_same_for_the_same_seed():
    scores, expected = drawn(np.random.default_rng(11), 80, 4, bias=1.0)
    once, again = (fit.select(scores, expected, np.arange(80), 1.0, None, 5) for _ in range(2))
    assert once == again


@pytest.mark.parametrize("seed", range(5))
def test_copies_of_texts_make_no_standard_error_smaller(seed):
    values = np.random.default_rng(seed).normal(0, 1, 40)
    once = values.std(ddof=1) / np.sqrt(40)
    assert fit.standard_error(values, np.arange(40)) == pytest.approx(once)
    text = np.random.default_rng(seed).permutation(np.repeat(np.arange(40), 7))
    assert fit.standard_error(values[text], text) == pytest.approx(once)
