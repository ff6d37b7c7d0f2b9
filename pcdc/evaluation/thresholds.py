"""Above which probability a field's answer may be acted on, with a stated confidence in its precision.

A distinct text is one trial, however many copies of it there are: it is right where all its answers at or
above the threshold are. Candidates are fixed shares of the held-out texts, the surest first, and never
depend on which answers were right. Each is tested in that order: it passes when the Clopper-Pearson lower
bound of its precision reaches the wanted one. The last before the first failure is kept (fixed-sequence
testing), so the chance that its true precision is lower stays within 1 - confidence; picking the lowest that
passes would not keep it there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv

from .split import Bools, Floats, Ints

STEPS = 20
SPARE_ERRORS = 2


@dataclass(frozen=True)
class Tested:
    """One candidate: of the texts at or above `minimum`, `errors` were wrong; `bound` is on precision."""

    minimum: float
    texts: int
    errors: int
    bound: float
    passed: bool


@dataclass(frozen=True)
class ThresholdFit:
    """The outcome of a search among `rows` held-out rows of `texts` distinct texts.

    `minimum` and `share`, which is of the rows, are None where none passed. `needed` is the fewest texts that
    can pass at all: that many without an error.
    """

    precision: float
    confidence: float
    rows: int
    texts: int
    needed: int
    minimum: float | None
    share: float | None
    tested: tuple[Tested, ...]


def lower_bound(right: int, rows: int, confidence: float) -> float:
    """One-sided Clopper-Pearson lower bound of a share: `right` out of `rows` independent ones."""
    return float(betaincinv(right, rows - right + 1, 1 - confidence)) if right else 0.0


def trials(probability: Floats, correct: Bools, text: Ints, minimum: float) -> tuple[int, int]:
    """How many distinct texts have an answer of at least `minimum`, and for how many all of these are right.

    `text` numbers each row's text.
    """
    acted = probability >= minimum
    texts = len(np.unique(text[acted]))
    return texts, texts - len(np.unique(text[acted & ~correct]))


def rows_needed(precision: float, confidence: float, errors: int = 0) -> int:
    """The fewest trials that reach a precision with that many errors: 59 without one for .95 at .95."""
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
    """Minimum probabilities to test, falling; empty where there are too few texts for any to pass.

    `probability` is that of each text's surest answer. The first minimum is low enough to hold the texts that
    may have SPARE_ERRORS errors, where there are that many.
    """
    rows = len(probability)
    first = rows_needed(precision, confidence, SPARE_ERRORS)
    first = first if first <= rows else rows_needed(precision, confidence)
    if first > rows:
        return np.empty(0)
    counts = np.unique(np.linspace(first, rows, STEPS).round().astype(int))
    return np.unique(np.sort(probability)[rows - counts])[::-1]


def fit_threshold(
    probability: Floats, correct: Bools, text: Ints, precision: float, confidence: float
) -> ThresholdFit:
    """Test the candidates on held-out rows: `probability` of each answer, and whether it was `correct`.

    `text` numbers each row's distinct text.
    """
    distinct, index = np.unique(text, return_inverse=True)
    surest = np.zeros(len(distinct))
    np.maximum.at(surest, index, probability)
    tested: list[Tested] = []
    for minimum in candidates(surest, precision, confidence):
        texts, right = trials(probability, correct, text, minimum)
        bound = lower_bound(right, texts, confidence)
        tested.append(Tested(float(minimum), texts, texts - right, bound, bound >= precision))
        if not tested[-1].passed:
            break
    kept = [test.minimum for test in tested if test.passed]
    return ThresholdFit(
        precision=precision,
        confidence=confidence,
        rows=len(probability),
        texts=len(distinct),
        needed=rows_needed(precision, confidence),
        minimum=kept[-1] if kept else None,
        share=float((probability >= kept[-1]).mean()) if kept else None,
        tested=tuple(tested),
    )
