"""Small worlds of the paper (Ye et al.) and its algorithm 1 by brute force, every draw of it enumerated.

Nothing here comes from the product but the type of the rows.
"""

import itertools
import math
from collections import defaultdict
from functools import cache

from tables import TableBeliefs, forms_of, make_rows, seeded_table

SOCCER, SHOES, USED, GLOVES, SHIRTS, END = range(6)
SOCCER_GLOVES, USED_SHIRTS, USED_SOCCER_SHOES = range(3)


def world(after, forms, width):
    """A table from `after[path]`, a mapping of token to probability; any other path ends with certainty."""

    def distribution(path):
        chances = after.get(path, {width - 1: 1.0})
        return [chances.get(token, 0.0) for token in range(width)]

    return TableBeliefs(width, distribution), make_rows(forms)


def figure_one():
    """The figure's tree: 0.6, 0.4, 0.9, 0.06 and 0.324 are the caption's, the rest is left over by those."""
    after = {
        (): {SOCCER: 0.6, USED: 0.4},
        (SOCCER,): {SHOES: 0.9, GLOVES: 0.1},
        (USED,): {SOCCER: 0.9, SHIRTS: 0.1},
        (USED, SOCCER): {SHOES: 0.9, GLOVES: 0.1},
    }
    forms = [
        (SOCCER_GLOVES, [SOCCER, GLOVES], [END]),
        (USED_SHIRTS, [USED, SHIRTS], [END]),
        (USED_SOCCER_SHOES, [USED, SOCCER, SHOES], [END]),
    ]
    return world(after, forms, 6)


def theorem_one(p_bad, epsilon):
    """The model of the proof of theorem 1 (entries: v1v1, v1v2, v2v1); the fourth label is not in the set."""
    after = {
        (): {0: 1 - p_bad, 1: p_bad},
        (0,): {0: 0.5, 1: 0.5},
        (1,): {0: epsilon, 1: 1 - epsilon},
    }
    return world(after, [(0, [0, 0], [2]), (1, [0, 1], [2]), (2, [1, 0], [2])], 3)


def nested():
    """Labels that begin with one another, one with two forms, invalid tokens at every step."""
    after = {
        (): {0: 0.5, 1: 0.2, 2: 0.1, 3: 0.2},
        (0,): {1: 0.4, 4: 0.3, 5: 0.2, 3: 0.1},
        (0, 1): {2: 0.5, 4: 0.2, 3: 0.3},
        (0, 1, 2): {5: 0.9, 3: 0.1},
        (1,): {1: 0.5, 5: 0.1, 3: 0.4},
        (1, 1): {4: 0.6, 5: 0.4},
        (2,): {4: 0.25, 3: 0.75},
    }
    forms = [
        (0, [0], [4, 5]),
        (1, [0, 1], [4]),
        (2, [0, 1, 2], [5]),
        (3, [1], [5]),
        (1, [1, 1], [4, 5]),
        (4, [2], [4]),
    ]
    return world(after, forms, 6)


def random_world(seed, sharpness=1.0):
    """A random model over labels that share prefixes and END sets; entry 0 has two forms."""
    table = seeded_table(seed, 6, sharpness=sharpness)
    kept = cache(table.distribution)
    ends = ([4], [5], [4, 5])
    paths = [[0], [0, 1], [0, 1, 2], [1, 1], [1, 2], [2], [3, 0], [3, 1]]
    forms = [(max(0, i - 1), path, ends[(seed + i) % 3]) for i, path in enumerate(paths)]
    return TableBeliefs(6, kept), make_rows(forms)


class Brute:
    """Algorithm 1 with END as one more token: every form with P_L and the product of legal masses."""

    def __init__(self, table, rows):
        self.forms = []
        self.entries = rows.entries
        all_forms = forms_of(rows)
        for entry, path, end in all_forms:
            chance, weight = 1.0, 1.0
            for depth in range(len(path) + 1):
                after = table.after(path[:depth])
                here = [form for form in all_forms if form[1][:depth] == path[:depth]]
                valid = math.fsum(after[token] for token in {f[1][depth] for f in here if len(f[1]) > depth})
                valid += math.fsum(math.fsum(after[t] for t in f[2]) for f in here if len(f[1]) == depth)
                weight *= valid
                chance *= after[path[depth]] if depth < len(path) else math.fsum(after[t] for t in end)
            if chance > 0:
                self.forms.append((entry, chance, weight))

    @property
    def legal(self):
        """P_L(S)."""
        return math.fsum(chance for _, chance, _ in self.forms)

    def summed(self, parts):
        total = dict.fromkeys(range(self.entries), 0.0)
        for entry, part in parts:
            total[entry] += part
        return total

    def true(self):
        return self.summed((entry, chance / self.legal) for entry, chance, _ in self.forms)

    def trie(self):
        return self.summed((entry, chance / weight) for entry, chance, weight in self.forms)

    def draws(self, k):
        """Every way to draw `k` candidates: its probability and the forms."""
        for drawn in itertools.product(self.forms, repeat=k):
            yield math.prod(chance / weight for _, chance, weight in drawn), drawn

    def disc(self, k):
        """Algorithm 1's law, draw by draw: the first accepted one, and after `k` rejections the resampled."""
        law = defaultdict(float)
        resampled = defaultdict(float)
        rejected_all = 0.0
        for p, drawn in self.draws(k):
            rejected = p
            whole = math.fsum(weight for _, _, weight in drawn)
            for entry, _, weight in drawn:
                law[entry] += rejected * weight
                rejected *= 1 - weight
                resampled[entry] += p * weight / whole
            rejected_all += rejected
        return {entry: law[entry] + rejected_all * resampled[entry] for entry in range(self.entries)}

    def resampled(self, k):
        """What is drawn by weight from `k` candidates."""
        return self.summed(
            (entry, p * weight / math.fsum(each[2] for each in drawn))
            for p, drawn in self.draws(k)
            for entry, _, weight in drawn
        )

    def steps(self, k):
        """The probability of each count of candidates that algorithm 1 draws."""
        bad = 1 - self.legal
        first = {n: bad ** (n - 1) * (1 - bad) for n in range(1, k + 1)}
        return first | {2 * k: bad**k}


def moments(law):
    """Mean and variance of a distribution over numbers, given as value -> probability."""
    mean = math.fsum(value * p for value, p in law.items())
    return mean, math.fsum((value - mean) ** 2 * p for value, p in law.items())
