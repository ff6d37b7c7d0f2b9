"""Intervals by resampling texts, the ECE that chance alone would give, and paired tests.

Every resample weighs each distinct text by how often it was drawn, so all fields and methods share the
draws, and the difference of two methods is paired. Intervals are 95 % percentile intervals. The interval
of ECE is of the plain figure, which is above zero for a perfectly calibrated model too: `ece_band` says
how much.

Where all answers are right, or all wrong, resamples do not vary: the interval of accuracy is exact then.
Resamples of a handful of texts vary too little, of one text not at all: below MIN_TEXTS distinct texts there
is no interval and no p-value of resamples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from scipy.stats import binomtest, norm

from .metrics import Scored, bin_index, ranks
from .split import Bools, Floats, Ints

RESAMPLES = 1000
LEVEL = 0.95
SIGNIFICANT = 0.05
MIN_TEXTS = 20
CELLS = 4_000_000


def draw(texts: int, seed: int) -> Floats:
    """How often each of `texts` texts was drawn in each resample [RESAMPLES, texts]."""
    rng = np.random.default_rng([seed, 2])
    return rng.multinomial(texts, np.full(texts, 1 / texts), size=RESAMPLES).astype(np.float64)


def resampled(scored: Scored, text: Ints, weights: Floats) -> dict[str, Floats]:
    """Accuracy and, of probabilities, log loss, Brier, ECE and risk-coverage area in every resample.

    `text` is each row's column in `weights`. NaN where a resample holds none of the rows.
    """
    columns = {"accuracy": scored.correct.astype(np.float64)}
    confidence = scored.confidence
    if confidence is not None and scored.log_loss is not None and scored.brier is not None:
        columns |= {"log_loss": scored.log_loss, "brier": scored.brier}
    rows = _sums(np.ones((len(text), 1)), text, weights)
    means = _ratio(_sums(np.stack(list(columns.values()), axis=1), text, weights), rows)
    figures = dict(zip(columns, means.T, strict=True))
    if confidence is not None:
        gap = _one_hot(bin_index(confidence)) * (scored.correct - confidence)[:, None]
        figures["ece"] = _ratio(np.abs(_sums(gap, text, weights)).sum(axis=1), rows[:, 0])
        figures["risk_coverage"] = _risk_areas(confidence, scored.correct, text, weights)
    return figures


def macro_f1s(predicted: Ints, expected: Ints, text: Ints, weights: Floats) -> Floats:
    """Macro-F1 in every resample, over the choices that occur as labels in it."""
    labels = np.unique(expected)
    is_label, is_answer = expected[:, None] == labels, predicted[:, None] == labels
    support, answered, both = (
        _sums(part.astype(np.float64), text, weights) for part in (is_label, is_answer, is_label & is_answer)
    )
    f1 = np.where(support > 0, _ratio(2 * both, support + answered), 0.0)
    return _ratio(f1.sum(axis=1), (support > 0).sum(axis=1))


def aurocs(score: Floats, positive: Bools, text: Ints, weights: Floats) -> Floats:
    """AUROC in every resample; NaN where one holds no positive row, or no negative one."""
    order, starts = ranks(score)
    is_positive, values = positive[order], []
    for part in _chunks(len(order)):
        drawn = weights[part][:, text[order]]
        ups = np.add.reduceat(drawn * is_positive, starts, axis=1)
        downs = np.add.reduceat(drawn * ~is_positive, starts, axis=1)
        below = downs.sum(axis=1, keepdims=True) - np.cumsum(downs, axis=1)
        pairs = ups.sum(axis=1) * downs.sum(axis=1)
        values.append(_ratio((ups * (below + downs / 2)).sum(axis=1), pairs))
    return np.concatenate(values)


def interval(values: Floats, texts: int) -> tuple[float, float] | None:
    """The percentile interval of figures resampled from so many distinct texts.

    None where they are fewer than MIN_TEXTS, or no resample gave a figure.
    """
    usable = values[np.isfinite(values)]
    return _percentiles(usable) if texts >= MIN_TEXTS and len(usable) else None


def unanimous_interval(right: bool, texts: int) -> tuple[float, float]:
    """The exact interval (Clopper-Pearson) of a share where all of so many texts are right, or all wrong."""
    reach: float = ((1 - LEVEL) / 2) ** (1 / texts)
    return (reach, 1.0) if right else (0.0, 1 - reach)


def ece_band(confidence: Floats, seed: int) -> tuple[float, float]:
    """Between which values 95 % of the ECEs of a perfectly calibrated model with these confidences lie.

    Outcomes are drawn from the stated confidences, row by row, and binned as the real ones are. Rows count as
    independent: where texts are repeated, chance alone reaches further than this says.
    """
    rng = np.random.default_rng([seed, 3])
    order = np.argsort(bin_index(confidence), kind="stable")
    sure = confidence[order]
    starts = np.flatnonzero(np.diff(bin_index(confidence)[order], prepend=-1))
    drawn = [
        np.abs(np.add.reduceat((rng.random((size, len(sure))) < sure) - sure, starts, axis=1)).sum(axis=1)
        for size in (part.stop - part.start for part in _chunks(len(sure)))
    ]
    return _percentiles(np.concatenate(drawn) / len(sure))


def bootstrap_p(difference: Floats, texts: int) -> float | None:
    """Two-sided p-value of paired differences against zero, resampled from so many distinct texts.

    Twice the share of resamples on the rarer side of zero. Where that side is empty the resamples cannot
    tell how small it is: then the tail of a normal of their mean and spread, if that is smaller still. Never
    below what flipping the sign of each text's difference could show, 2 ** (1 - texts); None below MIN_TEXTS.
    """
    if texts < MIN_TEXTS:
        return None
    return max(_two_sided(difference[np.isfinite(difference)]), 2.0 ** (1 - texts))


def _two_sided(usable: Floats) -> float:
    tail = min(int((usable <= 0).sum()), int((usable >= 0).sum()))
    p = min(1.0, 2 * (tail + 1) / (len(usable) + 1))
    if tail or len(usable) < 2:
        return p
    spread = float(usable.std())
    return min(p, float(2 * norm.sf(abs(usable.mean()) / spread))) if spread else p


def mcnemar_p(first: Bools, second: Bools, text: Ints) -> float:
    """Exact McNemar: two-sided binomial p-value over the texts of which one of two methods has more right.

    `text` numbers each row's distinct text: its rows, copies or several fields, are one trial together.
    """
    distinct, index = np.unique(text, return_inverse=True)
    gain = np.bincount(index, first.astype(np.float64) - second, len(distinct))
    only_first, only_second = int((gain > 0).sum()), int((gain < 0).sum())
    pairs = only_first + only_second
    return float(binomtest(only_first, pairs, 0.5).pvalue) if pairs else 1.0


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's corrected p-values of one family, in the order given."""
    order = np.argsort(p_values, kind="stable")
    scaled = np.asarray(p_values)[order] * np.arange(len(order), 0, -1)
    corrected = np.empty(len(order))
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(scaled))
    return [float(value) for value in corrected]


def _percentiles(values: Floats) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _ratio(part: Floats, whole: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(part / whole)


def _one_hot(index: Ints) -> Floats:
    return np.eye(int(index.max()) + 1)[index]


def _sums(columns: Floats, text: Ints, weights: Floats) -> Floats:
    """Weighted sums of row values [resamples, columns], rows first added up by text."""
    per_text = np.stack([np.bincount(text, column, weights.shape[1]) for column in columns.T], axis=1)
    return np.asarray(weights @ per_text)


def _chunks(rows: int) -> Iterator[slice]:
    """Runs of resamples with at most CELLS cells of `rows` rows each."""
    step = max(1, CELLS // rows)
    for start in range(0, RESAMPLES, step):
        yield slice(start, min(start + step, RESAMPLES))


def _risk_areas(confidence: Floats, correct: Bools, text: Ints, weights: Floats) -> Floats:
    order, starts = ranks(confidence)
    wrong, areas = ~correct[order], []
    for part in _chunks(len(order)):
        drawn = weights[part][:, text[order]]
        sizes = np.add.reduceat(drawn, starts, axis=1)
        answered = np.cumsum(sizes, axis=1)
        errors = np.cumsum(np.add.reduceat(drawn * wrong, starts, axis=1), axis=1)
        risk = np.where(answered > 0, _ratio(errors, answered), 0.0)
        areas.append(_ratio((sizes * risk).sum(axis=1), answered[:, -1]))
    return np.concatenate(areas)
