"""The laws of the methods, exactly, where every form of an index can be enumerated (Ye et al., section 3)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pcdc_runtime.artifact import Ints
from pcdc_runtime.indexed.rows import Rows
from pcdc_runtime.selecting.beliefs import Beliefs
from pcdc_runtime.selecting.options import Verifier
from pcdc_runtime.selecting.walk import Prefix, Walk

Floats = NDArray[np.float64]

STEP = 0.1
"""Width of the trapezoids over log t: the integrand is analytic, the error near exp(-pi^2 / STEP)."""

SMALLEST = -40.0
"""The log of the t where they begin: less than 1e-17 of the integral lies below."""


@dataclass(frozen=True, eq=False)
class Law:
    """Every possible form: its entry, the logs of its P_L and of its weight (the product of legal masses)."""

    entries: int
    entry: Ints
    log_chance: Floats
    log_weight: Floats

    @property
    def p_bad(self) -> float:
        """1 - P_L(S)."""
        return max(0.0, 1 - math.fsum(np.exp(self.log_chance)))

    @property
    def log_true(self) -> Floats:
        """The log of P_L of every entry."""
        log = np.full(self.entries, -math.inf)
        np.logaddexp.at(log, self.entry, self.log_chance)
        return log

    @property
    def true(self) -> Floats:
        """P_S of every entry."""
        whole = np.logaddexp.reduce(self.log_chance)
        return self._by_entry(np.exp(self.log_chance - whole))

    @property
    def trie(self) -> Floats:
        """What constrained decoding draws: P_L / weight of every form."""
        return self._by_entry(np.exp(self.log_chance - self.log_weight))

    def resampled(self, k: int) -> Floats:
        """Q, the law of one of `k` candidates drawn by their weights.

        Q(a) is k P_L(a) E[1 / (x(a) + the other weights)], and 1/s is the integral of exp(-st) over t: with
        phi(t) = E[exp(-x t)] of one candidate, Q(a) is k P_L(a) times that of exp(-x(a) t) phi(t)^(k - 1).
        """
        largest = 5.0 - float(self.log_weight.min())
        log_t = np.arange(SMALLEST, largest, STEP)
        drawn = np.exp(self.log_chance - self.log_weight)
        total = np.zeros(len(self.entry))
        for at in log_t.tolist():
            decay = np.exp(-np.exp(self.log_weight + at))
            share = float(drawn @ decay) ** (k - 1)
            total += np.exp(self.log_chance + at) * decay * share
        return self._by_entry(k * STEP * total)

    def disc(self, k: int) -> Floats:
        """The law of algorithm 1: P_S where one of `k` attempts is accepted, Q where none is."""
        rejected = self.p_bad**k
        return (1 - rejected) * self.true + rejected * self.resampled(k)

    def _by_entry(self, of_form: Floats) -> Floats:
        return np.bincount(self.entry, of_form, self.entries).astype(np.float64)


def law(rows: Rows, beliefs: Beliefs, verifier: Verifier) -> Law:
    """Walks every prefix of an index, one pass a level."""
    walk = Walk(rows, beliefs, verifier)
    entry: list[int] = []
    log_chance: list[float] = []
    log_weight: list[float] = []
    live: list[tuple[Prefix, float]] = [(walk.root, 0.0)]
    while live:
        steps: list[tuple[Prefix, int]] = []
        weights: list[float] = []
        for prefix, weight in live:
            options, weight = prefix.options, weight + prefix.log_legal
            possible = np.flatnonzero(options.close > -math.inf)
            entry += options.entry[possible].tolist()
            log_chance += (prefix.log_prob + options.close[possible]).tolist()
            log_weight += [weight] * len(possible)
            below = np.flatnonzero(options.log_prob > -math.inf).tolist()
            steps += [(prefix, child) for child in below]
            weights += [weight] * len(below)
        live = list(zip(walk.below(steps), weights, strict=True))
    return Law(rows.entries, np.array(entry, dtype=np.int32), np.array(log_chance), np.array(log_weight))


def kl(p: Floats, q: Floats) -> float:
    """KL(p || q) in nats; inf where `q` cannot give what `p` can."""
    there = p > 0
    if (q[there] <= 0).any():
        return math.inf
    return math.fsum(p[there] * np.log(p[there] / q[there]))


def kl_bound(p_bad: float, k: int) -> float:
    """What KL(P_S || P_IS^k) is at most (their second theorem, with its proof's constants: 1 and 1/2)."""
    if p_bad >= 1:
        return math.inf
    return p_bad**k / (1 - p_bad) * (math.sqrt(p_bad * (1 - p_bad) / k) + p_bad / (2 * k))


def expected_steps(p_bad: float, k: int) -> float:
    """How many candidates algorithm 1 draws on average, one after the other."""
    return math.fsum(p_bad**n for n in range(k)) + k * p_bad**k
