"""The figures of each method on the rows that judge, and paired tests between methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from . import bootstrap, metrics
from .metrics import Answers, Bin, RiskCoverage, Scored
from .split import Floats, Ints

TESTED = ("accuracy", "log_loss", "ece")


@dataclass(frozen=True)
class Figures:
    """How one method did on `rows` answers to `texts` distinct texts; None where it does not apply.

    `confusion` has a row per label and a column per answer, the last one for no valid answer.
    `ece_band` is where 95 % of the ECEs of a perfectly calibrated model with these confidences lie, on texts
    that are all different. `intervals` is keyed by figure, None where the texts are too few; `risk_coverage`
    there is that of the area.
    """

    rows: int
    texts: int
    unanswered: int
    accuracy: float
    macro_f1: float
    confusion: tuple[tuple[int, ...], ...] | None
    log_loss: float | None
    brier: float | None
    ece: float | None
    ece_band: tuple[float, float] | None
    reliability: tuple[Bin, ...] | None
    auroc: float | None
    risk_coverage: RiskCoverage | None
    intervals: Mapping[str, tuple[float, float] | None]


@dataclass(frozen=True, eq=False)
class Judged:
    """One method on the rows of one field: what was judged, its figures, and these in every resample."""

    answers: Answers
    scored: Scored
    text: Ints
    figures: Figures
    resampled: Mapping[str, Floats]


@dataclass(frozen=True)
class Comparison:
    """`first` minus `second` in one figure on `texts` distinct texts, with its interval and p-values.

    `field` is None for all fields together. `test` is `mcnemar` (exact, by text) or `bootstrap` (paired, by
    text); of too few texts the latter has no `p`. `holm` is `p` corrected over the `family` of tests of this
    figure in this evaluation that have one.
    """

    field: str | None
    first: str
    second: str
    figure: str
    texts: int
    difference: float
    interval: tuple[float, float] | None
    test: str
    p: float | None
    holm: float | None
    family: int


def judge(
    answers: Answers,
    expected: Ints,
    text: Ints,
    weights: Floats,
    *,
    choices: int,
    positive: int | None,
    seed: int,
) -> Judged:
    """Judge one method on a field's rows, of which there is at least one; `positive` is AUROC's choice."""
    scored = Scored.of(answers, expected)
    drawn = bootstrap.resampled(scored, text, weights)
    drawn["macro_f1"] = bootstrap.macro_f1s(answers.predicted, expected, text, weights)
    area = None
    if positive is not None and answers.log_prob is not None:
        score, is_positive = answers.log_prob[:, positive], expected == positive
        area = metrics.auroc(score, is_positive)
        drawn["auroc"] = bootstrap.aurocs(score, is_positive, text, weights)
    figures = _figures(
        scored,
        text,
        drawn,
        unanswered=int((answers.predicted < 0).sum()),
        macro_f1=metrics.macro_f1(answers.predicted, expected),
        confusion=metrics.confusion(answers.predicted, expected, choices),
        auroc=area,
        seed=seed,
    )
    return Judged(answers, scored, text, figures, drawn)


def judge_overall(fields: Sequence[Judged], weights: Floats, seed: int) -> Judged:
    """One method on the answers of all fields together; macro-F1 is the mean of the fields'."""
    scored = Scored.pooled([field.scored for field in fields])
    text = np.concatenate([field.text for field in fields])
    drawn = bootstrap.resampled(scored, text, weights)
    drawn["macro_f1"] = np.mean([field.resampled["macro_f1"] for field in fields], axis=0)
    figures = _figures(
        scored,
        text,
        drawn,
        unanswered=sum(field.figures.unanswered for field in fields),
        macro_f1=float(np.mean([field.figures.macro_f1 for field in fields])),
        confusion=None,
        auroc=None,
        seed=seed,
    )
    predicted = np.concatenate([field.answers.predicted for field in fields])
    return Judged(Answers(predicted, None), scored, text, figures, drawn)


def compare(
    fields: Mapping[str, Mapping[str, Judged]],
    overall: Mapping[str, Judged],
    pairs: Sequence[tuple[str, str]],
) -> tuple[Comparison, ...]:
    """Paired tests of the pairs of methods in each field and over all fields together.

    Accuracy in one field is tested by exact McNemar, all else by resampling texts, as the answers to one text
    depend on one another. Holm's correction is over all tests of one figure.
    """
    subjects: list[tuple[str | None, Mapping[str, Judged]]] = [*fields.items()]
    if len(fields) > 1:
        subjects.append((None, overall))
    found: list[Comparison] = []
    for figure in TESTED:
        family = [
            (field, first, second, *_test(methods[first], methods[second], figure, field is not None))
            for field, methods in subjects
            for first, second in pairs
            if first in methods and second in methods
            if figure in methods[first].resampled and figure in methods[second].resampled
        ]
        tested = [test[-1] for test in family if test[-1] is not None]
        corrected = iter(bootstrap.holm(tested))
        found += [
            Comparison(
                field=field,
                first=first,
                second=second,
                figure=figure,
                texts=texts,
                difference=difference,
                interval=span,
                test=test,
                p=p,
                holm=None if p is None else next(corrected),
                family=len(tested),
            )
            for field, first, second, texts, difference, span, test, p in family
        ]
    return tuple(found)


def _test(
    first: Judged, second: Judged, figure: str, one_field: bool
) -> tuple[int, float, tuple[float, float] | None, str, float | None]:
    """Distinct texts, difference, its interval, the test's name and its p-value."""
    texts = first.figures.texts
    drawn = first.resampled[figure] - second.resampled[figure]
    difference = getattr(first.figures, figure) - getattr(second.figures, figure)
    span = bootstrap.interval(drawn, texts)
    if figure == "accuracy" and one_field:
        p = bootstrap.mcnemar_p(first.scored.correct, second.scored.correct, first.text)
        return texts, difference, span, "mcnemar", p
    return texts, difference, span, "bootstrap", bootstrap.bootstrap_p(drawn, texts)


def _figures(
    scored: Scored,
    text: Ints,
    drawn: Mapping[str, Floats],
    *,
    unanswered: int,
    macro_f1: float,
    confusion: tuple[tuple[int, ...], ...] | None,
    auroc: float | None,
    seed: int,
) -> Figures:
    confidence, correct = scored.confidence, scored.correct
    bins = None if confidence is None else metrics.reliability(confidence, correct)
    texts = len(np.unique(text))
    intervals = {figure: bootstrap.interval(values, texts) for figure, values in drawn.items()}
    if correct.all() or not correct.any():
        intervals["accuracy"] = bootstrap.unanimous_interval(bool(correct.all()), texts)
    return Figures(
        rows=len(correct),
        texts=texts,
        unanswered=unanswered,
        accuracy=float(correct.mean()),
        macro_f1=macro_f1,
        confusion=confusion,
        log_loss=None if scored.log_loss is None else float(scored.log_loss.mean()),
        brier=None if scored.brier is None else float(scored.brier.mean()),
        ece=None if bins is None else metrics.ece(bins),
        ece_band=None if confidence is None else bootstrap.ece_band(confidence, seed),
        reliability=bins,
        auroc=auroc,
        risk_coverage=None if confidence is None else metrics.risk_coverage(confidence, correct),
        intervals=intervals,
    )
