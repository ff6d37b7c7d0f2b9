"""How much of a field may still lie below nodes that were not run, and which of them must be run.

Forms below one node are disjoint events, so that together they have at most the probability of its path,
its mass `m`; forms that were read to their end are known. Choice `c` weighs `S ** p * exp(b)` with `S` the
sum over its forms, `p = 1 / temperature` and `b` its bias. With `K` the known part of `S` and `d` the rest,
its weight is missing `((K + d) ** p - K ** p) * exp(b)`. What all choices below a node can miss because of
it, its *potential*, is bounded so that potentials of different nodes add up:

- `p >= 1`. The missing weight is convex in `d` and 0 at 0, so it lies below the chord to the most that `d`
  can be, `U`, the sum of the masses that the choice has forms under: at most `d * s` with
  `s = ((K + U) ** p - K ** p) / U * exp(b)`. All of `m` may go to the steepest: `m * max(s)`. For a choice
  under one node of which nothing is known this is `m ** p * exp(b)`.
- `p < 1`. `(K + d) ** p - K ** p` is at most `d ** p` and at most `p * K ** (p - 1) * d`, parts of `d` in any
  order. Choices for which the second is less at `d = m` are taken linearly as above; over the others,
  Hölder's inequality bounds `sum(a * d ** p)` where `sum(d) <= m` by `m ** p * norm`, with `norm` the
  `1 / (1 - p)` norm of their `a = exp(b)`: for n equal ones `n ** (1 - p) * m ** p`.

Let `Z` be the weight that is known and `D` the sum of the potentials of nodes that are never run. The exact
normaliser is `Z + e` with `e <= D`, and a probability `w / Z` is off by at most `e / (Z + e)`, which is also
the most that missing weight has of the whole. So with `D <= bound * Z` no probability is off by the bound,
and no choice that has it is lost. The winner is exact where no other choice can have its weight; a choice
that can has all its nodes run. Masses may end in tokens that no form has, so that `Z` counts known weight
only.

All of this is in logarithms: masses of 1e-300 and temperatures of 0.01 are ordinary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .score import Floats, Weighing, segment_logsumexp

LARGEST_POWER = 1e300
"""Temperatures below its inverse count as that, so that no product is infinite."""
HOPE = 0.5
"""The share of a mass that is expected to end in forms, where that decides what is run first.

Below the first digits of 255 tariff codes the embedded model keeps half of it.
"""

Whole = NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class Frontier:
    """Where the evaluation of a field stands; masses and scores are logarithms.

    `known` and `most` [choices] are scores of the known forms, and with all that may be below the nodes.
    `node` [V] are those with a mass above 0, `mass` [V] theirs. Pairs of a node and a choice that has forms
    below it: `choice` [P], grouped by node, those of node `i` from `start[i]` on. `pruned` counts the
    choices with a form that is not known.
    """

    known: Floats
    most: Floats
    node: Whole
    mass: Floats
    choice: Whole
    start: Whole
    pruned: int

    @classmethod
    def of(cls, prefix: Floats, node: Whole, choice: Whole, offset: Whole) -> Frontier:
        """From each form's path as far as it was read: log-probability, the node it stops at (-1: none).

        `choice` of each form, `offset` of each choice's forms.
        """
        known = segment_logsumexp(np.where(node < 0, prefix, -np.inf), offset)
        pruned = len(np.unique(choice[node >= 0]))
        below = np.flatnonzero((node >= 0) & (prefix > -np.inf))
        below = below[np.lexsort((choice[below], node[below]))]
        pair = np.stack([node[below], choice[below]])
        fresh = np.ones(len(below), dtype=np.bool_)
        fresh[1:] = (pair[:, 1:] != pair[:, :-1]).any(axis=0)
        below = below[fresh]
        nodes, start, sizes = np.unique(node[below], return_index=True, return_counts=True)
        mass = prefix[below][start]
        most = known.copy()
        np.logaddexp.at(most, choice[below], np.repeat(mass, sizes))
        return cls(known, most, nodes, mass, choice[below], start, pruned)

    def weight(self, weighing: Weighing) -> float:
        """The known weight of all choices."""
        return _logsumexp(_power(weighing) * self.known + weighing.bias)

    def hoped(self, weighing: Weighing) -> float:
        """What all choices may weigh together if HOPE of each mass ends in one choice."""
        if not len(self.node):
            return self.weight(weighing)
        power = _power(weighing)
        best = power * self.mass + np.maximum.reduceat(weighing.bias[self.choice], self.start)
        return float(np.logaddexp(self.weight(weighing), math.log(HOPE) + _logsumexp(best)))

    def potential(self, weighing: Weighing) -> Floats:
        """The most weight [V] that is missing because of each node."""
        if not len(self.node):
            return np.empty(0)
        power, bias = _power(weighing), weighing.bias[self.choice]
        known, mass = self.known[self.choice], self._of_pairs(self.mass)
        if power >= 1:
            slope = self._slope(power)[self.choice] + bias
            return self.mass + np.maximum.reduceat(slope, self.start)
        with np.errstate(invalid="ignore"):
            tangent = math.log(power) + (power - 1) * known
        straight = tangent + mass <= power * mass
        linear = np.maximum.reduceat(np.where(straight, tangent + bias, -np.inf), self.start)
        ends = np.append(self.start, len(self.choice))
        norm = segment_logsumexp(np.where(straight, -np.inf, bias / (1 - power)), ends)
        potential: Floats = np.logaddexp(self.mass + linear, power * self.mass + (1 - power) * norm)
        return potential

    def needed(self, potential: Floats, weight: float, bound: float) -> Whole:
        """The nodes that are left when as many as possible are dropped, least potential first."""
        order = np.argsort(potential, kind="stable")
        total = np.logaddexp.accumulate(potential[order]) if len(order) else potential
        return self.node[order[total > math.log(bound) + weight]]

    def contested(self, weighing: Weighing) -> Whole:
        """The nodes below which the winner may change, or what ties with it."""
        least, most = weighing.level(self.known), weighing.level(self.most)
        leader = int(least.argmax())
        rivals = most >= least[leader]
        rivals[leader] = False
        if self.most[leader] > self.known[leader]:
            rivals[leader] = rivals.any()
        hit = np.flatnonzero(rivals[self.choice])
        return self.node[np.unique(np.searchsorted(self.start, hit, side="right") - 1)]

    def _slope(self, power: float) -> Floats:
        """Of each choice's chord; NaN where nothing of it is below a node."""
        below = np.full(len(self.known), -np.inf)
        np.logaddexp.at(below, self.choice, self._of_pairs(self.mass))
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = np.logaddexp(0.0, below - self.known)
            slope: Floats = power * self.most + np.log(-np.expm1(-power * ratio)) - below
        return slope

    def _of_pairs(self, of_nodes: Floats) -> Floats:
        return np.repeat(of_nodes, np.diff(np.append(self.start, len(self.choice))))


def share(potential: float, weight: float) -> float:
    """What the potential is at most of the whole, both as logarithms."""
    return float(np.exp(-np.logaddexp(0.0, weight - potential)))


def _power(weighing: Weighing) -> float:
    return min(1 / weighing.temperature, LARGEST_POWER)


def _logsumexp(values: Floats) -> float:
    return float(np.logaddexp.reduce(values)) if len(values) else -math.inf
