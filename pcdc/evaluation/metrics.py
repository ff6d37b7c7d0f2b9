"""Figures of one method's answers: scikit-learn's where it has them, calibration and coverage here.

Confidence is the probability of the answer given. ECE is over bins of equal mass that never part equal
confidences. Brier is half the squared distance, so it lies between 0 and 1 and is the usual one for two
choices. Log loss is in nats; a probability below EPSILON counts as EPSILON, as in scikit-learn. Macro-F1
is the mean over the choices that occur as labels. A missing answer (-1) is a wrong one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.metrics import accuracy_score, f1_score, roc_auc_score

from .split import Bools, Floats, Ints

EPSILON = float(np.finfo(np.float64).eps)
MAX_BINS = 10
ROWS_PER_BIN = 10
MAX_POINTS = 100
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
HISTOGRAM_BINS = 20


@dataclass(frozen=True, eq=False)
class Answers:
    """What one method answered: `predicted` [n] choice index or -1, `log_prob` [n, choices] or None."""

    predicted: Ints
    log_prob: Floats | None

    @staticmethod
    def of(log_prob: Floats) -> Answers:
        """The most probable choice of each row, the first declared among equals."""
        return Answers(log_prob.argmax(axis=1), log_prob)

    @property
    def confidence(self) -> Floats:
        """Probability of the answer given [n]; only where there are probabilities."""
        assert self.log_prob is not None
        return np.asarray(np.exp(self.log_prob.max(axis=1)))


@dataclass(frozen=True, eq=False)
class Scored:
    """Answers held against their labels, an entry per row; None where a method gives no probabilities."""

    correct: Bools
    confidence: Floats | None
    log_loss: Floats | None
    brier: Floats | None

    @staticmethod
    def of(answers: Answers, expected: Ints) -> Scored:
        """How each answer did."""
        correct = answers.predicted == expected
        if answers.log_prob is None:
            return Scored(correct, None, None, None)
        losses, distances = log_losses(answers.log_prob, expected), briers(answers.log_prob, expected)
        return Scored(correct, answers.confidence, losses, distances)

    @staticmethod
    def pooled(parts: Sequence[Scored]) -> Scored:
        """The rows of several fields one after another; all of them have probabilities, or none."""
        probable = all(part.confidence is not None for part in parts)
        names = ("confidence", "log_loss", "brier")
        columns = [
            np.concatenate([getattr(part, name) for part in parts]) if probable else None for name in names
        ]
        return Scored(np.concatenate([part.correct for part in parts]), *columns)


@dataclass(frozen=True)
class Bin:
    """One bar of a reliability diagram: mean confidence and accuracy of its rows."""

    low: float
    high: float
    rows: int
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class RiskCoverage:
    """Error rate among the most confident rows, at rising shares of all rows; `area` is its mean."""

    coverage: tuple[float, ...]
    risk: tuple[float, ...]
    area: float


@dataclass(frozen=True)
class Spread:
    """Quantiles of measured numbers (those of QUANTILES) and their mean."""

    rows: int
    mean: float
    quantiles: tuple[tuple[float, float], ...]


def log_losses(log_prob: Floats, expected: Ints) -> Floats:
    """Log loss of each row in nats."""
    right = log_prob[np.arange(len(expected)), expected]
    return np.asarray(-np.maximum(right, math.log(EPSILON)))


def briers(log_prob: Floats, expected: Ints) -> Floats:
    """Half the squared distance between each row's probabilities and its label."""
    prob = np.exp(log_prob)
    right = prob[np.arange(len(expected)), expected]
    return np.asarray(np.maximum(0.0, ((prob**2).sum(axis=1) - 2 * right + 1) / 2))


def accuracy(predicted: Ints, expected: Ints) -> float:
    """Share of right answers."""
    return float(accuracy_score(expected, predicted))


def macro_f1(predicted: Ints, expected: Ints) -> float:
    """Mean F1 over the choices that occur as labels."""
    labels = np.unique(expected)
    return float(f1_score(expected, predicted, labels=labels, average="macro", zero_division=0))


def confusion(predicted: Ints, expected: Ints, choices: int) -> tuple[tuple[int, ...], ...]:
    """Counts, a row per label and a column per answer; the last column is no valid answer."""
    counts = np.zeros((choices, choices + 1), dtype=int)
    np.add.at(counts, (expected, np.where(predicted < 0, choices, predicted)), 1)
    return tuple(tuple(row) for row in counts.tolist())


def auroc(score: Floats, positive: Bools) -> float | None:
    """Probability that a positive row scores above a negative one; None where one kind is missing."""
    if positive.all() or not positive.any():
        return None
    return float(roc_auc_score(positive, score))


def bin_index(confidence: Floats) -> Ints:
    """The bin of each row, numbered from 0 by rising confidence; no bin is empty."""
    rows = len(confidence)
    bins = max(1, min(MAX_BINS, rows // ROWS_PER_BIN))
    cuts = np.unique(np.sort(confidence)[np.arange(1, bins) * rows // bins])
    return np.unique(np.searchsorted(cuts, confidence, side="right"), return_inverse=True)[1]


def reliability(confidence: Floats, correct: Bools) -> tuple[Bin, ...]:
    """The bins of a reliability diagram, by rising confidence."""
    index = bin_index(confidence)
    return tuple(
        Bin(
            low=float(confidence[inside].min()),
            high=float(confidence[inside].max()),
            rows=int(inside.sum()),
            confidence=float(confidence[inside].mean()),
            accuracy=float(correct[inside].mean()),
        )
        for inside in (index == number for number in range(int(index.max()) + 1))
    )


def ece(bins: tuple[Bin, ...]) -> float:
    """Mean distance between confidence and accuracy, each bin by its share of the rows."""
    rows = sum(part.rows for part in bins)
    return sum(part.rows * abs(part.accuracy - part.confidence) for part in bins) / rows


def ranks(confidence: Floats) -> tuple[Ints, Ints]:
    """Rows from the surest down, and where each run of equal confidence starts in that order."""
    order = np.argsort(-confidence, kind="stable")
    falls = np.flatnonzero(np.diff(confidence[order]) != 0) + 1
    return order, np.concatenate(([0], falls))


def risk_coverage(confidence: Floats, correct: Bools) -> RiskCoverage:
    """The risk-coverage curve; equally sure rows are answered together."""
    order, starts = ranks(confidence)
    sizes = np.diff(np.append(starts, len(order)))
    answered = np.cumsum(sizes)
    risk = np.cumsum(np.add.reduceat(~correct[order], starts, dtype=np.int64)) / answered
    shown = np.unique(np.linspace(0, len(starts) - 1, MAX_POINTS).astype(int))
    return RiskCoverage(
        coverage=tuple((answered[shown] / len(order)).tolist()),
        risk=tuple(risk[shown].tolist()),
        area=float(sizes @ risk / len(order)),
    )


def spread(values: Floats) -> Spread:
    """Quantiles and mean of finite numbers, of which there is at least one."""
    points = np.quantile(values, QUANTILES)
    return Spread(len(values), float(values.mean()), tuple(zip(QUANTILES, points.tolist(), strict=True)))


def histogram(values: Floats) -> tuple[int, ...]:
    """Counts in HISTOGRAM_BINS equal bins from 0 to 1."""
    counts, _ = np.histogram(values, HISTOGRAM_BINS, range=(0.0, 1.0))
    return tuple(counts.tolist())
