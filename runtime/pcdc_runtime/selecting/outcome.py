"""What a method finds, in entries and logarithms; nothing of labels, models or time."""

from __future__ import annotations

import math
from dataclasses import dataclass

METHODS = ("exact", "trie", "disc")
SMALLEST = math.ulp(0.0)


@dataclass(frozen=True)
class Found:
    """An entry and natural logs around P_L(entry), the model's own probability that it writes and closes it.

    `low` is the sum over the forms that were closed; `high` adds what forms not yet closed can have.
    """

    entry: int
    low: float
    high: float


@dataclass(frozen=True)
class Sampling:
    """What drawing candidates showed, in `weights`: of each, in order, the product of its legal masses.

    All were drawn side by side, so that those after the accepted one are there too.
    `attempts` counts candidates up to the accepted one, `accepted` says whether there was one; otherwise
    `attempts` are all that were rejected, and the answer was drawn from `resampled` new ones by their
    weights.
    """

    seed: int
    attempts: int
    accepted: bool
    resampled: int
    weights: tuple[float, ...]

    @property
    def p_bad(self) -> float:
        """An unbiased estimate of 1 - P_L(S): the mean weight of constrained samples is P_L(S).

        Those drawn after a rejection of all are left out: that they were drawn says that the others weighed
        little.
        """
        first = self.weights[: len(self.weights) - self.resampled]
        return 1 - math.fsum(first) / len(first)


@dataclass(frozen=True)
class Outcome:
    """Answers in their order, and what is known of everything else.

    `certified` says that the answers are the true ones in the true order. `bound` is the log of the most that
    any entry can have which is not among them (-inf where there is none). `log_mass` are the logs of two
    probabilities that P_L(S) lies between, None where a method does not know any. `missed` is the most
    probability of valid tokens that a top-M never looked at, summed over the prefixes that were expanded and
    weighted with theirs.
    """

    found: tuple[Found, ...]
    certified: bool
    bound: float
    log_mass: tuple[float, float] | None
    missed: float = 0.0
    sampling: Sampling | None = None

    @property
    def mass(self) -> tuple[float, float] | None:
        """Two probabilities that P_L(S) lies between."""
        if self.log_mass is None:
            return None
        low, high = self.log_mass
        return min(1.0, math.exp(min(0.0, low))), at_most(high)


def at_most(log: float) -> float:
    """A probability that is none the less by rounding: above 0 for every log above -inf."""
    return max(math.exp(min(0.0, log)), SMALLEST) if log > -math.inf else 0.0
