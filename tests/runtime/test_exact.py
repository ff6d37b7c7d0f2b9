"""The exact search against enumeration on small tables."""

import math

import numpy as np
import pytest
from catalogs import PlainVerifier, coarse_table, permuted, seeded_rows, table
from pcdc_runtime.indexed.rows import Rows
from pcdc_runtime.selecting.exact import search
from pcdc_runtime.selecting.outcome import Outcome
from pcdc_runtime.selecting.ppv import NumpyVerifier
from tables import TableBeliefs, enumerate_entries, forms_of, make_rows, seeded_table

CLOSE = 1e-5
"""Tables reach the search as float32 logits."""
SEEDS = range(240)


def log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


def within(low: float, value: float, high: float) -> bool:
    """Whether natural logs are in order, but for rounding."""
    return low <= log(value) + CLOSE and log(value) <= high + CLOSE


def ranked(values: dict[int, float]) -> list[int]:
    """The entries by enumeration; what differs by rounding alone counts as equal."""
    return sorted(values, key=lambda entry: (-float(f"{values[entry]:.9e}"), entry))


def check_bounds(outcome: Outcome, values: dict[int, float]) -> None:
    """Whatever an outcome states contains the truth."""
    for found in outcome.found:
        assert within(found.low, values[found.entry], found.high)
    named = {found.entry for found in outcome.found}
    assert len(named) == len(outcome.found)
    rest = max((value for entry, value in values.items() if entry not in named), default=0.0)
    assert log(rest) <= outcome.bound + CLOSE
    assert outcome.mass is not None
    low, high = outcome.mass
    total = math.fsum(values.values())
    assert low - CLOSE <= total <= high + CLOSE
    assert 0 <= low <= high <= 1


def check_true(outcome: Outcome, values: dict[int, float], k: int) -> None:
    """The answers are the true ones in the true order, but for ties that rounding broke."""
    true = ranked(values)[:k]
    answers = [found.entry for found in outcome.found]
    assert len(answers) == len(true)
    for answer, expected in zip(answers, true, strict=True):
        assert answer == expected or values[answer] == pytest.approx(values[expected], rel=CLOSE)


@pytest.mark.parametrize("k", [1, 3, 40])
def test_the_answers_are_those_of_enumeration(k: int) -> None:
    for seed in SEEDS:
        rows, beliefs = seeded_rows(seed), table(seed)
        values = enumerate_entries(beliefs, rows)
        outcome = search(rows, beliefs, PlainVerifier(rows), k=k)
        assert outcome.certified
        check_true(outcome, values, k)
        check_bounds(outcome, values)


def test_the_real_verifier_gives_the_same_outcome() -> None:
    for seed in SEEDS[:60]:
        rows = seeded_rows(seed)
        plain = search(rows, table(seed), PlainVerifier(rows), k=2)
        real = search(rows, table(seed), NumpyVerifier(rows), k=2)
        assert [f.entry for f in real.found] == [f.entry for f in plain.found]
        assert real.certified
        assert real.bound == pytest.approx(plain.bound)


def test_no_certificate_does_without_a_prefix_that_has_more_than_the_answer() -> None:
    for seed in SEEDS[:90]:
        rows, beliefs = seeded_rows(seed), table(seed)
        values = enumerate_entries(beliefs, rows)
        (found,) = search(rows, beliefs, PlainVerifier(rows)).found
        prefixes = {
            path[:depth]
            for entry, path, _ in forms_of(rows)
            if entry != found.entry
            for depth in range(len(path) + 1)
        }
        for prefix in prefixes:
            chances = [beliefs.after(prefix[:depth])[token] for depth, token in enumerate(prefix)]
            if math.prod(chances) > values[found.entry] * (1 + CLOSE):
                assert prefix in beliefs.paths


def test_equal_entries_come_in_the_order_of_their_numbers() -> None:
    paths = [(1, 2), (0, 3), (3,), (2, 1), (0,), (4, 4)]
    rows = make_rows((entry, path, [8]) for entry, path in enumerate(paths))
    for k in range(1, 7):
        outcome = search(rows, coarse_table(), PlainVerifier(rows), k=k)
        assert outcome.certified
        assert [found.entry for found in outcome.found] == [2, 4, 0, 1, 3, 5][:k]


def test_a_tie_with_what_is_open_is_told() -> None:
    # Closed first at probability 1/2; the other half is an open node whose entry has all of it.
    def distribution(path: tuple[int, ...]) -> list[float]:
        return {(): [0.5, 0.0, 0.5], (0,): [0.0, 1.0, 0.0], (0, 1): [0.0, 0.0, 1.0]}[path]

    rows = make_rows([(1, (), [2]), (0, (0, 1), [2])])
    outcome = search(rows, TableBeliefs(3, distribution), PlainVerifier(rows), width=1)
    assert outcome.certified
    assert outcome.found[0].entry == 0


def test_a_tie_with_forms_that_parted_is_told_without_running_what_is_impossible() -> None:
    first, later = [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]
    rows = make_rows([(1, (), [2]), (0, (0,), [2]), (0, (1,), [2])])
    beliefs = TableBeliefs(3, lambda path: later if path else first)
    outcome = search(rows, beliefs, PlainVerifier(rows), width=1)
    assert outcome.certified
    assert outcome.found[0].entry == 0
    assert beliefs.nodes == 2


def test_forms_under_different_nodes_are_bounded_together() -> None:
    # No open node of entry 1 has as much as entry 0, but all of its forms have more.
    def distribution(path: tuple[int, ...]) -> list[float]:
        return [0.2, 0.19, 0.19, 0.19, 0.23] if not path else [0.0, 0.0, 0.0, 0.0, 1.0]

    rows = make_rows([(0, (), [4]), (1, (0,), [4]), (1, (1,), [4]), (1, (2,), [4]), (2, (3,), [4])])
    outcome = search(rows, TableBeliefs(5, distribution), PlainVerifier(rows), width=1)
    assert outcome.certified
    assert outcome.found[0].entry == 1
    assert math.exp(outcome.found[0].high) == pytest.approx(0.58)


def test_entries_without_probability_fill_up_in_order() -> None:
    rows = make_rows([(0, (0,), [3]), (1, (1,), [3]), (2, (2,), [3])])
    beliefs = TableBeliefs(4, lambda path: [0.0, 0.0, 1.0, 0.0] if not path else [0.0, 0.0, 0.0, 1.0])
    outcome = search(rows, beliefs, PlainVerifier(rows), k=3)
    assert outcome.certified
    assert [(found.entry, found.high) for found in outcome.found] == [
        (2, 0.0),
        (0, -math.inf),
        (1, -math.inf),
    ]
    assert outcome.bound == -math.inf


def test_one_entry_is_certain_with_nothing_beyond() -> None:
    rows = make_rows([(0, (1, 2), [8]), (0, (1,), [7])])
    outcome = search(rows, coarse_table(), PlainVerifier(rows), k=5)
    assert outcome.certified
    assert [found.entry for found in outcome.found] == [0]
    assert outcome.bound == -math.inf


def test_the_order_of_a_catalog_never_changes_its_answers() -> None:
    for seed in SEEDS[:90]:
        if seed % 6 in (4, 5):
            continue  # Tables with ties: those are decided by the order.
        rows = seeded_rows(seed)
        other, renamed = permuted(rows, seed)
        one = search(rows, table(seed), PlainVerifier(rows), k=3)
        two = search(other, table(seed), PlainVerifier(other), k=3)
        assert [renamed[found.entry] for found in one.found] == [found.entry for found in two.found]


@pytest.mark.parametrize("width", [1, 2, 16])
def test_a_width_never_changes_the_answers(width: int) -> None:
    for seed in SEEDS[:90]:
        rows, beliefs = seeded_rows(seed), table(seed)
        values = enumerate_entries(beliefs, rows)
        outcome = search(rows, beliefs, PlainVerifier(rows), k=2, width=width)
        assert outcome.certified
        check_true(outcome, values, 2)
        check_bounds(outcome, values)


def check_budget(rows: Rows, beliefs: TableBeliefs, nodes: int | None, passes: int | None) -> Outcome:
    outcome = search(rows, beliefs, PlainVerifier(rows), k=2, nodes=nodes, passes=passes, width=3)
    assert nodes is None or beliefs.nodes <= nodes
    assert passes is None or beliefs.passes <= passes
    values = enumerate_entries(beliefs, rows)
    check_bounds(outcome, values)
    if outcome.certified:
        check_true(outcome, values, 2)
    return outcome


def test_within_any_budget_the_truth_lies_inside_the_bounds() -> None:
    certified = set()
    for seed in SEEDS[:120]:
        rows = seeded_rows(seed)
        for most in (1, 2, 3, 5, 8):
            certified.add(check_budget(rows, table(seed), most, None).certified)
            certified.add(check_budget(rows, table(seed), None, most).certified)
    assert certified == {True, False}


@pytest.mark.parametrize("top", [1, 2, 3])
def test_what_a_verifier_missed_is_never_certified_away(top: int) -> None:
    missed = 0
    for seed in SEEDS:
        rows, beliefs = seeded_rows(seed), table(seed)
        values = enumerate_entries(beliefs, rows)
        outcome = search(rows, beliefs, PlainVerifier(rows, top), k=2)
        check_bounds(outcome, values)
        missed += outcome.missed > 0
        if outcome.certified:
            check_true(outcome, values, 2)
    assert missed > len(SEEDS) / 4


def test_answers_come_after_as_many_passes_as_the_longest_label_has_tokens() -> None:
    random = np.random.default_rng(5)
    for seed in SEEDS[:20]:
        # A thousand labels under a flat model: the most probable nodes are all short prefixes.
        paths = {tuple(path) for path in random.integers(0, 7, (1000, 6)).tolist()}
        rows = make_rows((entry, path, [8]) for entry, path in enumerate(sorted(paths)))
        for k in (1, 4):
            beliefs = seeded_table(seed, 9, sharpness=0.3)
            outcome = search(rows, beliefs, PlainVerifier(rows), k=k, passes=6 + k, width=4)
            assert len(outcome.found) == k


def test_nothing_runs_that_cannot_matter() -> None:
    # Token 0 leads to entry 0 with certainty; the others have less than it from the start.
    rows = make_rows([(0, (0,), [4]), (1, (1, 1), [4]), (2, (2, 1), [4]), (3, (3, 1), [4])])
    beliefs = TableBeliefs(
        5, lambda path: [0.7, 0.1, 0.1, 0.1, 0.0] if not path else [0.0, 0.0, 0.0, 0.0, 1.0]
    )
    outcome = search(rows, beliefs, PlainVerifier(rows), width=1)
    assert outcome.certified
    assert (beliefs.nodes, beliefs.passes) == (2, 2)
