"""Above which probability a field's answer may be acted on, with a stated confidence in its precision.

Candidates are fixed shares of the held-out rows, the surest first, and never depend on which answers were
right. Each is tested in that order: it passes when the Clopper-Pearson lower bound of its precision reaches
the wanted one. The last before the first failure is kept (fixed-sequence testing), so the chance that its
true precision is lower stays within 1 - confidence; picking the lowest that passes would not keep it there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv

from .split import Bools, Floats

STEPS = 20
SPARE_ERRORS = 2


@dataclass(frozen=True)
class Tested:
    """One candidate: of the rows at or above `minimum`, `errors` were wrong; `bound` is on precision."""

    minimum: float
    rows: int
    errors: int
    bound: float
    passed: bool


@dataclass(frozen=True)
class ThresholdFit:
    """The outcome of a search among `rows` held-out rows; `minimum` and `share` are None where none passed.

    `needed` is the fewest rows that can pass at all: that many without an error.
    """

    precision: float
    confidence: float
    rows: int
    needed: int
    minimum: float | None
    share: float | None
    tested: tuple[Tested, ...]


def lower_bound(right: int, rows: int, confidence: float) -> float:
    """One-sided Clopper-Pearson lower bound of a share: `right` out of `rows`."""
    return float(betaincinv(right, rows - right + 1, 1 - confidence)) if right else 0.0


def rows_needed(precision: float, confidence: float, errors: int = 0) -> int:
    """The fewest rows that reach a precision with that many errors: 59 without one for .95 at .95."""
    rows = errors + 1
    while lower_bound(rows - errors, rows, confidence) < precision:
        rows *= 2
    low = rows // 2
    while rows - low > 1:
        middle = (low + rows) // 2
        enough = lower_bound(max(0, middle - errors), middle, confidence) >= precision
        low, rows = (low, middle) if enough else (middle, rows)
    return rows


def candidates(probability: Floats, precision: float, confidence: float) -> Floats:
    """Minimum probabilities to test, falling; empty where there are too few rows for any to pass.

    The first is low enough to hold the rows that may have SPARE_ERRORS errors, where there are that many.
    """
    rows = len(probability)
    first = rows_needed(precision, confidence, SPARE_ERRORS)
    first = first if first <= rows else rows_needed(precision, confidence)
    if first > rows:
        return np.empty(0)
    counts = np.unique(np.linspace(first, rows, STEPS).round().astype(int))
    return np.unique(np.sort(probability)[rows - counts])[::-1]


def fit_threshold(probability: Floats, correct: Bools, precision: float, confidence: float) -> ThresholdFit:
    """Test the candidates on held-out rows: `probability` of each answer, and whether it was `correct`."""
    tested: list[Tested] = []
    for minimum in candidates(probability, precision, confidence):
        acted = probability >= minimum
        rows, right = int(acted.sum()), int(correct[acted].sum())
        bound = lower_bound(right, rows, confidence)
        tested.append(Tested(float(minimum), rows, rows - right, bound, bound >= precision))
        if not tested[-1].passed:
            break
    kept = [test for test in tested if test.passed]
    return ThresholdFit(
        precision=precision,
        confidence=confidence,
        rows=len(probability),
        needed=rows_needed(precision, confidence),
        minimum=kept[-1].minimum if kept else None,
        share=kept[-1].rows / len(probability) if kept else None,
        tested=tuple(tested),
    )
