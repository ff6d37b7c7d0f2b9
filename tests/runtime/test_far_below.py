"""Labels far below the smallest float: bounds hold in logarithms, and no probability is called impossible."""

import math

import numpy as np
import pytest
from catalogs import WIDTH, seeded_rows
from pcdc_runtime.selecting.disc import disc
from pcdc_runtime.selecting.exact import search
from pcdc_runtime.selecting.outcome import Found, Outcome
from pcdc_runtime.selecting.selection import bound_of, share_of
from pcdc_runtime.selecting.trie import beam, greedy, sampled
from plain import PlainVerifier
from tables import TableBeliefs, forms_of

SEEDS = range(20)
SLACK = 1e-4
METHODS = {
    "exact": lambda *of: search(*of, k=3),
    "exact, few nodes": lambda *of: search(*of, k=2, nodes=4),
    "greedy": greedy,
    "sampled": lambda *of: sampled(*of, seed=3),
    "beam": lambda *of: beam(*of, width=2),
    "disc": lambda *of: disc(*of, k=2, seed=3),
}


def far(seed):
    """A table in which one more token, which no label has, takes nearly all of every distribution."""

    def distribution(path):
        draw = np.random.default_rng([seed, *path])
        chance = np.append(np.exp(draw.uniform(-600, -400, WIDTH)), 1.0)
        return (chance / chance.sum()).tolist()

    return TableBeliefs(WIDTH + 1, distribution)


def truth(table, rows):
    """The log of every entry's P_L: over its forms, path and END set."""
    found = dict.fromkeys(range(rows.entries), -math.inf)
    for entry, path, end in forms_of(rows):
        logs = [math.log(table.after(path[:depth])[token]) for depth, token in enumerate(path)]
        closing = math.fsum(table.after(path)[token] for token in end)
        found[entry] = float(np.logaddexp(found[entry], math.fsum(logs) + math.log(closing)))
    return found


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("method", METHODS)
def test_bounds_hold_where_every_label_is_below_the_smallest_float(method, seed):
    table, rows = far(seed), seeded_rows(seed)
    known = truth(table, rows)
    assert math.exp(min(known.values())) == 0
    outcome = METHODS[method](rows, table.fresh(), PlainVerifier(rows))
    whole = float(np.logaddexp.reduce(list(known.values())))
    low, high = outcome.log_mass
    assert low - SLACK <= whole <= high + SLACK
    for one in outcome.found:
        assert one.low - SLACK <= known[one.entry] <= one.high + SLACK
        least, most = share_of(one, outcome)
        assert least - SLACK <= math.exp(known[one.entry] - whole) <= most + SLACK
    answers = {one.entry for one in outcome.found}
    others = [log for entry, log in known.items() if entry not in answers]
    if others:
        assert outcome.bound >= max(others) - SLACK
        assert bound_of(outcome) > 0
    if outcome.found:
        assert outcome.mass[1] > 0


def test_shares_far_below_are_those_of_their_logs():
    found = (Found(0, -741.2, -741.2), Found(1, -742.7, -742.7))
    whole = float(np.logaddexp(-741.2, -742.7))
    outcome = Outcome(found, True, -math.inf, (whole, whole))
    for one in found:
        assert share_of(one, outcome) == pytest.approx([math.exp(one.low - whole)] * 2, rel=1e-9)
