"""Constrained decoding, beams and DISC: what they answer, what they cost and what they claim to know."""

import math

import numpy as np
import pytest
from paper import nested, random_world, world
from pcdc_runtime.errors import ScoreError
from pcdc_runtime.selecting.disc import disc
from pcdc_runtime.selecting.drawing import draw, stream
from pcdc_runtime.selecting.trie import beam, greedy, sampled
from pcdc_runtime.selecting.walk import Walk
from plain import PlainVerifier
from tables import enumerate_entries, forms_of

SEEDS = range(12)


def methods(k):
    """Every method here by its name, as a function of rows, beliefs, verifier."""
    return {
        "greedy": greedy,
        "sampled": lambda *of: sampled(*of, seed=5),
        "beam": lambda *of: beam(*of, width=3, k=k),
        "disc": lambda *of: disc(*of, k=4, seed=5),
    }


def ways(table, forms, path):
    """Every way to go on after a path: probability, and the entry that it closes or the next path."""
    after = table.after(path)
    closings = [
        (math.fsum(after[token] for token in end), entry) for entry, form, end in forms if form == path
    ]
    longer = {form[: len(path) + 1] for _, form, _ in forms if form[: len(path)] == path and form != path}
    return closings + [(after[onward[-1]], onward) for onward in sorted(longer)]


def plain_greedy(table, rows):
    forms, path = forms_of(rows), ()
    while True:
        _, way = max(ways(table, forms, path), key=lambda each: each[0])
        if not isinstance(way, tuple):
            return way
        path = way


def plain_beam(table, rows, width, k):
    """Level by level; what a beam finishes counts per entry."""
    forms, live, finished = forms_of(rows), [(1.0, ())], {}
    while live:
        onward = [(p * q, way) for p, path in live for q, way in ways(table, forms, path)]
        best = sorted(onward, key=lambda each: -each[0])[:width]
        for p, way in best:
            if not isinstance(way, tuple):
                finished[way] = finished.get(way, 0) + p
        live = [(p, way) for p, way in best if isinstance(way, tuple)]
        ranked = sorted(finished.values(), reverse=True)
        if live and len(ranked) >= k and ranked[k - 1] >= live[0][0]:
            break
    return sorted(finished, key=lambda entry: -finished[entry])[:k]


@pytest.mark.parametrize("seed", SEEDS)
def test_greedy_and_beams_find_what_plain_ones_find(seed):
    table, rows = random_world(seed)
    verifier = PlainVerifier(rows)
    assert [greedy(rows, table.fresh(), verifier).found[0].entry] == [plain_greedy(table, rows)]
    for width, k in ((1, 1), (2, 1), (3, 2), (4, 4)):
        found = beam(rows, table.fresh(), verifier, width=width, k=k).found
        assert [each.entry for each in found] == plain_beam(table, rows, width, k)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_beam_as_wide_as_the_catalog_that_runs_to_its_end_finds_the_true_order(seed):
    table, rows = random_world(seed)
    chances = enumerate_entries(table, rows)
    found = beam(rows, table.fresh(), PlainVerifier(rows), width=100, k=rows.entries).found
    assert [each.entry for each in found] == sorted(chances, key=lambda entry: -chances[entry])


def test_a_beam_answers_with_fewer_labels_where_it_finishes_fewer():
    table, rows = nested()
    assert len(beam(rows, table, PlainVerifier(rows), width=1, k=3).found) == 1


def test_a_beam_stops_where_no_live_prefix_can_beat_what_is_finished():
    after = {(): {0: 0.3, 1: 0.6, 3: 0.1}, (1,): {3: 0.9, 0: 0.1}, (0,): {0: 1.0}, (0, 0): {0: 1.0}}
    table, rows = world(after, [(0, [1], [3]), (1, [0, 0, 0], [3])], 4)
    verifier = PlainVerifier(rows)
    first = table.fresh()
    assert beam(rows, first, verifier, width=2).found[0].entry == 0
    assert first.passes == 2
    both = table.fresh()
    assert [each.entry for each in beam(rows, both, verifier, width=2, k=2).found] == [0, 1]
    assert both.passes == 4


def test_among_equals_a_closing_is_taken_before_a_token_and_a_lower_token_before_a_higher():
    after = {(): {0: 0.25, 1: 0.25, 2: 0.5}, (0,): {1: 0.5, 3: 0.5}}
    table, rows = world(after, [(0, [1], [3]), (1, [0], [3]), (2, [0, 1], [3])], 4)
    assert greedy(rows, table, PlainVerifier(rows)).found[0].entry == 1


@pytest.mark.parametrize("name", ["greedy", "sampled", "beam", "disc"])
@pytest.mark.parametrize("top", [None, 2])
@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_method_claims_to_know_is_true(name, top, seed):
    table, rows = random_world(seed)
    chances = enumerate_entries(table, rows)
    outcome = methods(2)[name](rows, table.fresh(), PlainVerifier(rows, top))
    rounding = 1e-5
    answers = [each.entry for each in outcome.found]
    assert len(set(answers)) == len(answers) > 0
    for each in outcome.found:
        assert each.low - rounding <= math.log(chances[each.entry]) <= each.high + rounding
    assert all(
        math.log(p) <= outcome.bound + rounding for entry, p in chances.items() if entry not in answers
    )
    low, high = outcome.mass
    assert low - rounding <= math.fsum(chances.values()) <= high + rounding
    assert not outcome.certified
    if top is None:
        assert outcome.missed == 0


def test_what_was_missed_is_told_and_no_part_of_a_weight():
    table, rows = nested()
    outcome = disc(rows, table, PlainVerifier(rows, top=1), k=2, seed=3)
    # Of the first tokens only 0 is looked at; then 1, beside the closing; then 2; then nothing is left.
    assert outcome.missed == pytest.approx(0.2 + 0.1, abs=1e-6)
    least = 0.5 * (0.4 + 0.5) * (0.2 + 0.5) * 0.9
    assert all(weight < 0.5 for weight in outcome.sampling.weights)
    assert {round(weight, 5) for weight in outcome.sampling.weights} <= {
        round(weight, 5) for weight in (least, 0.5 * 0.9 * 0.7, 0.5 * 0.9)
    }
    assert outcome.mass[1] >= math.fsum(enumerate_entries(table, rows).values())


def test_bounds_close_where_everything_was_walked():
    table, rows = nested()
    chances = enumerate_entries(table, rows)
    outcome = disc(rows, table, PlainVerifier(rows), k=400, seed=0)
    answer = outcome.found[0]
    assert answer.low == answer.high == pytest.approx(math.log(chances[answer.entry]), abs=1e-6)
    others = max(p for entry, p in chances.items() if entry != answer.entry)
    assert outcome.bound == pytest.approx(math.log(others), abs=1e-6)
    assert outcome.mass == pytest.approx([math.fsum(chances.values())] * 2, abs=1e-6)


def test_a_catalog_of_one_entry_leaves_no_other():
    table, rows = world({(): {0: 0.4, 1: 0.6}}, [(0, [0], [2])], 3)
    outcome = disc(rows, table, PlainVerifier(rows), k=2, seed=0)
    assert outcome.found[0].low == pytest.approx(math.log(0.4))
    assert outcome.bound == -math.inf
    assert outcome.mass == pytest.approx((0.4, 0.4))


def test_a_candidate_is_the_same_however_many_are_drawn_with_it():
    table, rows = nested()
    verifier = PlainVerifier(rows)

    def candidates(numbers):
        return draw(Walk(rows, table.fresh(), verifier), [stream(9, 0, number) for number in numbers])

    assert candidates(range(20)) == [candidates([number])[0] for number in range(20)]
    for seed in range(20):
        few, many = (disc(rows, table.fresh(), verifier, k=k, seed=seed) for k in (3, 9))
        assert many.sampling.weights[:3] == few.sampling.weights[:3]
        if few.sampling.accepted:
            assert many.found[0].entry == few.found[0].entry
            assert many.sampling.attempts == few.sampling.attempts


@pytest.mark.parametrize("seed", [0, 7, 2**40, 2**70])
def test_a_seed_gives_the_same_answer_again(seed):
    table, rows = nested()
    verifier = PlainVerifier(rows)
    for method in (
        lambda: disc(rows, table.fresh(), verifier, k=3, seed=seed),
        lambda: sampled(rows, table.fresh(), verifier, seed=seed),
    ):
        assert method() == method()


@pytest.mark.parametrize("seed", SEEDS)
def test_candidates_run_every_prefix_once_and_one_pass_a_level(seed):
    table, rows = random_world(seed, sharpness=0.3)
    deepest = max(len(path) for _, path, _ in forms_of(rows))
    outcome = disc(rows, table, PlainVerifier(rows), k=50, seed=seed)
    assert len(set(table.paths)) == table.nodes
    assert table.passes <= (1 + deepest) + (deepest if outcome.sampling.resampled else 0)
    prefixes = {path[:depth] for _, path, _ in forms_of(rows) for depth in range(len(path) + 1)}
    assert table.nodes <= len(prefixes)


def test_resampled_candidates_run_nothing_that_ran_before():
    table, rows = nested()
    verifier = PlainVerifier(rows)
    for seed in range(40):
        beliefs = table.fresh()
        if disc(rows, beliefs, verifier, k=2, seed=seed).sampling.resampled:
            break
    else:
        pytest.fail("no seed had all candidates rejected")
    assert len(set(beliefs.paths)) == beliefs.nodes


def test_sampling_tells_every_weight_in_order():
    table, rows = nested()
    for seed in range(30):
        sampling = disc(rows, table.fresh(), PlainVerifier(rows), k=3, seed=seed).sampling
        assert sampling.seed == seed
        assert 1 <= sampling.attempts <= 3
        assert sampling.resampled == (0 if sampling.accepted else 3)
        assert len(sampling.weights) == 3 + sampling.resampled
        assert sampling.accepted or sampling.attempts == 3
        assert sampling.p_bad == pytest.approx(1 - np.mean(sampling.weights[:3]))


DEAD = {(): {0: 0.5, 1: 0.5}, (0,): {3: 1.0}, (1,): {2: 0.2, 3: 0.8}}
DEAD_FORMS = [(0, [0, 1], [2]), (1, [1], [2])]


def test_a_draw_into_a_dead_end_is_an_error_that_names_it():
    table, rows = world(DEAD, DEAD_FORMS, 4)
    with pytest.raises(ScoreError, match="prefix of 1 tokens at rows 0 to 0 of the index"):
        disc(rows, table.fresh(), PlainVerifier(rows), k=20, seed=0)
    with pytest.raises(ScoreError):
        greedy(rows, table.fresh(), PlainVerifier(rows))


def test_a_beam_goes_round_a_dead_end():
    table, rows = world(DEAD, DEAD_FORMS, 4)
    assert beam(rows, table, PlainVerifier(rows), width=2).found[0].entry == 1


def test_what_has_probability_zero_is_never_drawn():
    table, rows = world({(): {0: 1.0}, (1,): {2: 1.0}}, [(0, [0], [3]), (1, [1], [3]), (2, [2], [3])], 4)
    drawn = {disc(rows, table.fresh(), PlainVerifier(rows), k=2, seed=seed).found[0].entry for seed in SEEDS}
    assert drawn == {0}


@pytest.mark.parametrize("uniform", [0.0, 0.24, 0.26, np.nextafter(1, 0)])
def test_a_place_picks_the_way_that_it_falls_on_and_none_without_probability(uniform):
    after = {(): {0: 0.0, 1: 0.25, 2: 0.0, 3: 0.75, 4: 0.0}}
    table, rows = world(after, [(i, [i], [4]) for i in range(5)], 5)
    root = Walk(rows, table, PlainVerifier(rows)).root
    assert root.pick(uniform) == (1 if uniform < 0.25 else 3)


def test_weights_too_small_for_a_float_still_resample():
    small = 1e-30
    after = {(0,) * depth: {0: small, 1: 1 - small} for depth in range(15)}
    table, rows = world(after, [(0, [0] * 15, [2]), (1, [0] * 14 + [2], [1])], 3)
    outcome = disc(rows, table, PlainVerifier(rows), k=2, seed=0)
    assert outcome.found[0].entry == 0
    assert outcome.found[0].low == pytest.approx(15 * math.log(small), rel=1e-6)
    assert outcome.sampling.weights == (0.0,) * 4
