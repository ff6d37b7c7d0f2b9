"""The examples of the paper (Ye et al.), and where its algorithm 1 and theorem 2 do not hold as printed."""

import math
from collections import Counter

import numpy as np
import pytest
from paper import (
    SOCCER_GLOVES,
    USED_SHIRTS,
    USED_SOCCER_SHOES,
    Brute,
    figure_one,
    nested,
    theorem_one,
    world,
)
from pcdc_runtime.selecting.disc import disc
from pcdc_runtime.selecting.drawing import draw, stream
from pcdc_runtime.selecting.exact import search
from pcdc_runtime.selecting.trie import beam, greedy, sampled
from pcdc_runtime.selecting.walk import Walk
from plain import PlainVerifier
from tables import enumerate_entries, enumerate_trie, forms_of, kl

from pcdc.bench.large import theory

Z = 5


def within(count, runs, p):
    """Whether a count of successes is within Z standard errors of the exact mean."""
    return abs(count - runs * p) <= Z * math.sqrt(runs * p * (1 - p))


def answers(make_one, runs):
    return Counter(make_one(seed).found[0].entry for seed in range(runs))


def test_figure_one_constrained_decoding_says_gloves_and_the_model_means_shoes():
    table, rows = figure_one()
    verifier = PlainVerifier(rows)
    chances = enumerate_entries(table, rows)
    assert chances == pytest.approx({SOCCER_GLOVES: 0.06, USED_SHIRTS: 0.04, USED_SOCCER_SHOES: 0.324})
    assert enumerate_trie(table, rows) == pytest.approx(
        {SOCCER_GLOVES: 0.6, USED_SHIRTS: 0.04, USED_SOCCER_SHOES: 0.4 * 0.9}
    )
    assert greedy(rows, table.fresh(), verifier).found[0].entry == SOCCER_GLOVES
    wide = beam(rows, table.fresh(), verifier, width=2).found[0]
    assert wide.entry == USED_SOCCER_SHOES
    assert wide.low == pytest.approx(math.log(0.324), abs=1e-6)
    sure = search(rows, table.fresh(), verifier, k=3)
    assert sure.certified
    assert [each.entry for each in sure.found] == [USED_SOCCER_SHOES, SOCCER_GLOVES, USED_SHIRTS]


def test_figure_one_sampled_decoding_draws_gloves_most_and_disc_shoes():
    table, rows = figure_one()
    verifier = PlainVerifier(rows)
    naive = answers(lambda seed: sampled(rows, table.fresh(), verifier, seed=seed), 1500)
    assert within(naive[SOCCER_GLOVES], 1500, 0.6)
    assert within(naive[USED_SOCCER_SHOES], 1500, 0.36)
    fair = answers(lambda seed: disc(rows, table.fresh(), verifier, k=16, seed=seed), 1500)
    assert 0.576**16 < 2e-4
    assert within(fair[SOCCER_GLOVES], 1500, 0.06 / 0.424)
    assert within(fair[USED_SOCCER_SHOES], 1500, 0.324 / 0.424)


@pytest.mark.parametrize("p_bad", [0.1, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("epsilon", [0.5, 1e-2, 1e-4])
def test_theorem_one_divergence_of_constrained_decoding_is_its_closed_form(p_bad, epsilon):
    table, rows = theorem_one(p_bad, epsilon)
    law = theory.law(rows, table.fresh(), PlainVerifier(rows))
    kept = 1 - p_bad + p_bad * epsilon
    closed = (1 - p_bad) / kept * math.log(1 / kept) + p_bad * epsilon / kept * math.log(epsilon / kept)
    brute = Brute(table, rows)
    assert kl(brute.true(), brute.trie()) == pytest.approx(closed, abs=1e-12)
    assert theory.kl(law.true, law.trie) == pytest.approx(closed, abs=1e-5)
    # The set holds p_bad * epsilon of the mass that the theorem calls bad.
    assert 1 - brute.legal == pytest.approx(p_bad * (1 - epsilon))


@pytest.mark.parametrize("p_bad", [0.1, 0.5, 0.9, 0.99])
def test_theorem_one_divergence_tends_to_the_log_of_one_over_the_legal_mass(p_bad):
    limit = math.log(1 / (1 - p_bad))
    away = []
    for epsilon in (1e-3, 1e-5, 1e-7):
        brute = Brute(*theorem_one(p_bad, epsilon))
        away.append(abs(kl(brute.true(), brute.trie()) - limit))
    assert away[0] > away[1] > away[2]
    assert away[2] < 1e-3


def test_theorem_one_decoding_gives_what_the_model_all_but_rules_out():
    table, rows = theorem_one(0.9, 1e-4)
    verifier = PlainVerifier(rows)
    assert greedy(rows, table.fresh(), verifier).found[0].entry == 2
    naive = answers(lambda seed: sampled(rows, table.fresh(), verifier, seed=seed), 1000)
    assert within(naive[2], 1000, 0.9)
    true = Brute(table, rows).true()
    assert true[2] < 1e-3
    fair = answers(lambda seed: disc(rows, table.fresh(), verifier, k=64, seed=seed), 1000)
    assert 0.9**64 < 2e-3
    assert within(fair[0], 1000, Brute(*theorem_one(0.9, 1e-4)).true()[0])
    assert fair[2] <= 1000 * true[2] + Z


def test_theorem_one_greedy_goes_right_where_the_bad_mass_is_small():
    table, rows = theorem_one(0.1, 1e-4)
    assert greedy(rows, table.fresh(), PlainVerifier(rows)).found[0].entry == 0


def printed_candidate(table, rows, generator):
    """Algorithm 1's SampleCandidate as printed: `while a is not in S`, so that END never competes."""
    forms = forms_of(rows)
    whole = {path: entry for entry, path, _ in forms}
    path, weight = (), 1.0
    while path not in whole:
        after = table.after(path)
        valid = sorted({form[1][len(path)] for form in forms if form[1][: len(path)] == path})
        mass = math.fsum(after[token] for token in valid)
        path = (*path, int(generator.choice(valid, p=[after[token] / mass for token in valid])))
        weight *= mass
    return whole[path], weight


def test_algorithm_one_as_printed_never_draws_a_label_that_begins_with_another_and_ours_does():
    shirt, shirt_dress = 0, 1
    after = {(): {0: 0.6, 1: 0.4}, (0,): {2: 0.1, 1: 0.9}, (0, 1): {2: 1.0}}
    table, rows = world(after, [(shirt, [0], [2]), (shirt_dress, [0, 1], [2])], 3)
    generator = np.random.default_rng(3)
    printed = [printed_candidate(table, rows, generator) for _ in range(500)]
    # It gives the short label all that the model gives to what begins with it.
    assert {entry for entry, _ in printed} == {shirt}
    assert {weight for _, weight in printed} == {0.6}
    chances = enumerate_entries(table, rows)
    assert chances == pytest.approx({shirt: 0.06, shirt_dress: 0.54})
    walk = Walk(rows, table.fresh(), PlainVerifier(rows))
    ours = Counter(each.entry for each in draw(walk, [stream(1, 0, n) for n in range(2000)]))
    assert within(ours[shirt_dress], 2000, 0.9)
    chosen = answers(lambda seed: disc(rows, table.fresh(), PlainVerifier(rows), k=8, seed=seed), 500)
    assert within(chosen[shirt_dress], 500, 0.9)


def test_with_one_attempt_disc_is_not_constrained_decoding_but_mixes_it_with_p_s():
    table, rows = nested()
    brute = Brute(table, rows)
    true, trie, legal = brute.true(), brute.trie(), brute.legal
    mixed = {entry: legal * true[entry] + (1 - legal) * trie[entry] for entry in true}
    law = theory.law(rows, table.fresh(), PlainVerifier(rows))
    assert brute.disc(1) == pytest.approx(mixed, abs=1e-12)
    assert dict(enumerate(law.disc(1))) == pytest.approx(mixed, abs=1e-6)
    assert max(abs(mixed[entry] - trie[entry]) for entry in trie) > 0.05


@pytest.mark.parametrize("p_bad", [0.05, 0.5, 0.9, 0.999])
def test_steps_tend_to_one_over_the_legal_mass_and_one_plus_e_over_it_is_only_a_bound(p_bad):
    ks = [*range(1, 100), 1000, 10_000, 100_000]
    steps = [theory.expected_steps(p_bad, k) for k in ks]
    assert steps[-1] == pytest.approx(1 / (1 - p_bad), rel=1e-9)
    # k p^k is at most 1 / (e ln 1/p), and ln 1/p at least 1 - p: e should have been 1/e.
    assert max(steps) <= (1 + 1 / math.e) / (1 - p_bad)
    assert (1 + 1 / math.e) / (1 - p_bad) < (1 + math.e) / (1 - p_bad)


def test_with_many_attempts_disc_stops_after_one_over_the_legal_mass():
    table, rows = nested()
    brute = Brute(table, rows)
    runs = [disc(rows, table.fresh(), PlainVerifier(rows), k=40, seed=seed).sampling for seed in range(300)]
    assert all(run.accepted for run in runs)
    mean = sum(run.attempts for run in runs) / len(runs)
    error = math.sqrt((1 - brute.legal) / brute.legal**2 / len(runs))
    assert abs(mean - 1 / brute.legal) <= Z * error
    assert mean + Z * error < (1 + math.e) / brute.legal
