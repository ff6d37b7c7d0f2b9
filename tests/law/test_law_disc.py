"""What DISC draws, on tables where algorithm 1 can be enumerated draw by draw (Ye et al., theorem 2).

A figure that is sampled may be off by Z standard errors, computed from the exact law, never estimated.
"""

import itertools
import math
from collections import Counter
from functools import cache

import numpy as np
import pytest
from paper import Brute, moments, nested, random_world
from pcdc_runtime.selecting.disc import disc
from pcdc_runtime.selecting.drawing import draw, stream
from pcdc_runtime.selecting.walk import Walk
from plain import PlainVerifier
from tables import TableBeliefs, enumerate_entries, enumerate_trie, kl

from pcdc.bench.large import theory

Z = 5
RUNS = 1500
WORLDS = [nested, *(lambda seed=seed: random_world(seed, 0.7) for seed in (1, 2, 3))]


@cache
def runs(make, k):
    table, rows = make()
    verifier = PlainVerifier(rows)
    return [disc(rows, table.fresh(), verifier, k=k, seed=seed) for seed in range(RUNS)]


def agree(counts, law):
    """Whether counts of draws can come from a law, entry by entry."""
    total = sum(counts.values())
    return all(
        abs(counts[entry] - total * p) <= Z * math.sqrt(total * p * (1 - p)) + 1e-9
        for entry, p in law.items()
    )


def drawn_candidates(table, rows, count):
    walk = Walk(rows, table.fresh(), PlainVerifier(rows))
    return draw(walk, [stream(11, 0, number) for number in range(count)])


@pytest.mark.parametrize("make", WORLDS)
def test_a_candidate_is_drawn_as_constrained_decoding_draws_it_and_weighs_p_l_of_the_set_on_average(make):
    table, rows = make()
    brute = Brute(table, rows)
    candidates = drawn_candidates(table, rows, 20_000)
    assert agree(Counter(each.entry for each in candidates), enumerate_trie(table, rows))
    mean = math.fsum(math.exp(each.log_weight) for each in candidates) / len(candidates)
    expected = math.fsum(chance / weight * weight for _, chance, weight in brute.forms)
    variance = math.fsum(chance * weight for _, chance, weight in brute.forms) - expected**2
    assert expected == pytest.approx(math.fsum(enumerate_entries(table, rows).values()))
    assert abs(mean - expected) <= Z * math.sqrt(variance / len(candidates))


@pytest.mark.parametrize("make", WORLDS)
def test_algorithm_one_enumerated_is_a_mixture_of_p_s_and_resampling(make):
    table, rows = make()
    brute = Brute(table, rows)
    law = theory.law(rows, table.fresh(), PlainVerifier(rows))
    assert law.p_bad == pytest.approx(1 - brute.legal, abs=1e-6)
    assert dict(enumerate(law.true)) == pytest.approx(brute.true(), abs=1e-6)
    assert dict(enumerate(law.trie)) == pytest.approx(enumerate_trie(table, rows), abs=1e-6)
    for k in (1, 2, 3):
        assert dict(enumerate(law.disc(k))) == pytest.approx(brute.disc(k), abs=1e-6)
        assert law.resampled(k).sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_disc_draws_by_the_law_of_algorithm_one(k):
    table, rows = nested()
    brute = Brute(table, rows)
    counts = Counter(outcome.found[0].entry for outcome in runs(nested, k))
    assert agree(counts, brute.disc(k))
    assert not agree(counts, brute.trie())


def low_mass():
    return random_world(2, 0.7)


def test_after_rejection_of_all_the_answer_is_resampled_by_weight():
    brute = Brute(*low_mass())
    counts = Counter(each.found[0].entry for each in runs(low_mass, 3) if not each.sampling.accepted)
    assert counts.total() > RUNS / 2
    assert agree(counts, brute.resampled(3))
    assert not agree(counts, brute.trie())
    assert not agree(counts, brute.true())


def test_disc_with_many_attempts_draws_by_p_s():
    table, rows = nested()
    counts = Counter(outcome.found[0].entry for outcome in runs(nested, 12))
    assert agree(counts, Brute(table, rows).true())


@pytest.mark.parametrize("make", WORLDS)
def test_an_accepted_candidate_is_a_draw_from_p_s(make):
    table, rows = make()
    accepted = Counter(each.found[0].entry for each in runs(make, 2) if each.sampling.accepted)
    assert accepted.total() > 100
    assert agree(accepted, Brute(table, rows).true())


@pytest.mark.parametrize("make", WORLDS)
def test_divergence_falls_with_k_and_stays_below_the_bound_of_the_theorem_with_its_constants(make):
    table, rows = make()
    law = theory.law(rows, table.fresh(), PlainVerifier(rows))
    ks = [1, 2, 3, 4, 8, 16, 32, 64]
    divergences = [theory.kl(law.true, law.disc(k)) for k in ks]
    # Below 1e-12 it is rounding.
    assert all(after < before or before < 1e-12 for before, after in itertools.pairwise(divergences))
    for k, divergence in zip(ks, divergences, strict=True):
        assert divergence <= theory.kl_bound(law.p_bad, k) + 1e-12
    brute = Brute(table, rows)
    for k, divergence in zip((1, 2, 3), divergences, strict=False):
        assert kl(brute.true(), brute.disc(k)) == pytest.approx(divergence, abs=1e-6)


def test_divergence_of_disc_tends_to_zero():
    table, rows = nested()
    law = theory.law(rows, table.fresh(), PlainVerifier(rows))
    assert theory.kl(law.true, law.disc(64)) == pytest.approx(0, abs=1e-12)
    assert theory.kl(law.true, law.trie) > 0.05


@pytest.mark.parametrize("k", [1, 2, 4, 8])
def test_steps_are_on_average_what_the_theorem_says(k):
    table, rows = nested()
    brute = Brute(table, rows)
    mean, variance = moments(brute.steps(k))
    p = 1 - brute.legal
    assert mean == pytest.approx((1 - p**k) / (1 - p) + k * p**k)
    assert theory.expected_steps(p, k) == pytest.approx(mean)
    taken = [each.sampling.attempts + each.sampling.resampled for each in runs(nested, k)]
    assert abs(np.mean(taken) - mean) <= Z * math.sqrt(variance / len(taken))


def test_the_estimate_of_p_bad_is_unbiased():
    table, rows = nested()
    brute = Brute(table, rows)
    for k in (1, 2):
        estimates = [each.sampling.p_bad for each in runs(nested, k)]
        second = math.fsum(chance * weight for _, chance, weight in brute.forms)
        error = math.sqrt((second - brute.legal**2) / k / len(estimates))
        assert abs(np.mean(estimates) - (1 - brute.legal)) <= Z * error


def test_weights_after_a_rejection_would_bias_the_estimate():
    brute = Brute(*nested())
    mean = 0.0
    for p, ((_, _, weight),) in brute.draws(1):
        mean += p * (weight * weight + (1 - weight) * (weight + brute.legal) / 2)
    assert mean > brute.legal + 0.01


def test_figures_hold_where_the_catalog_has_no_mass_to_speak_of():
    chance, drawn = np.array([-80.0, -90.0]), np.array([0.25, 0.75])
    law = theory.Law(2, np.array([0, 1]), chance, chance - np.log(drawn))
    assert law.p_bad == 1
    assert law.disc(3).sum() == pytest.approx(1, abs=1e-9)
    assert law.true.sum() == pytest.approx(1, abs=1e-12)
    assert theory.expected_steps(law.p_bad, 3) == 6
    assert theory.kl_bound(law.p_bad, 3) == math.inf


def test_divergence_from_a_law_that_cannot_give_what_the_other_gives_is_infinite():
    assert theory.kl(np.array([0.5, 0.5]), np.array([1.0, 0.0])) == math.inf
    assert theory.kl(np.array([1.0, 0.0]), np.array([0.5, 0.5])) == pytest.approx(math.log(2))


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_disc_at_a_temperature_is_disc_on_the_tempered_table(temperature):
    table, rows = nested()
    verifier = PlainVerifier(rows)
    hot = TableBeliefs(table.width, table.distribution, temperature)
    tempered = TableBeliefs(table.width, hot.after)
    for seed in range(100):
        one = disc(rows, hot.fresh(), verifier, k=3, seed=seed)
        other = disc(rows, tempered.fresh(), verifier, k=3, seed=seed)
        assert one.found[0].entry == other.found[0].entry
        assert one.found[0].low == pytest.approx(other.found[0].low, abs=1e-5)
        assert one.sampling.weights == pytest.approx(other.sampling.weights, abs=1e-5)
    assert Brute(hot, rows).true() == pytest.approx(Brute(tempered, rows).true())
    law = theory.law(rows, hot.fresh(), verifier)
    assert dict(enumerate(law.disc(2))) == pytest.approx(Brute(tempered, rows).disc(2), abs=1e-6)


def test_a_label_with_two_forms_is_drawn_with_the_sum_of_both():
    table, rows = nested()
    chances = enumerate_entries(table, rows)
    both = 0.5 * 0.4 * 0.2 + 0.2 * 0.5 * (0.6 + 0.4)
    assert chances[1] == pytest.approx(both)
    outcomes = runs(nested, 12)
    drawn = Counter(outcome.found[0].entry for outcome in outcomes)[1]
    p = both / math.fsum(chances.values())
    assert abs(drawn - RUNS * p) <= Z * math.sqrt(RUNS * p * (1 - p))
    assert max(o.found[0].low for o in outcomes if o.found[0].entry == 1) == pytest.approx(math.log(both))
