"""What was measured on labelled data, and what it is worth: the figures of `pcdc eval` as one value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from pcdc_runtime import calibration as stored
from pcdc_runtime.artifact import Artifact

from . import bootstrap, metrics
from .deployed import Check, Deployed, check
from .fit import Fit, Selection, select
from .judge import Comparison, Figures, Judged, compare, judge, judge_overall
from .methods import APPLIED, CHOSEN, answers, names, pairs
from .metrics import Spread
from .split import Bools, Ints, held_in
from .tables import FieldTable, Measured
from .thresholds import ThresholdFit, fit_threshold

HELD_IN = 0.5
MISTAKES = 20
"""How many of a field's wrong answers are kept, the surest first."""


@dataclass(frozen=True)
class LegalMass:
    """How much of the model's probability fell on allowed answers, over a field's labelled texts."""

    spread: Spread
    histogram: tuple[int, ...]


@dataclass(frozen=True)
class Mistake:
    """A wrong answer: which text, its label and the answer as choices, and the answer's probability."""

    text: int
    expected: int
    answered: int
    probability: float


@dataclass(frozen=True)
class FieldEvaluation:
    """One field: `held_in` labelled texts were fitted on, `held_out` judge; `methods` is empty without them.

    `selection` is None where nothing was fitted. `threshold` is for the method `Evaluation.main` and found
    with a fit only; `check` is how the threshold in use does. `mistakes` are those of `Evaluation.main`.
    """

    name: str
    type: str
    labels: tuple[str, ...]
    tokens: tuple[int, ...]
    held_in: int
    held_out: int
    methods: Mapping[str, Figures]
    legal_mass: Mapping[str, LegalMass]
    selection: Selection | None
    threshold: ThresholdFit | None
    check: Check | None
    mistakes: tuple[Mistake, ...]


@dataclass(frozen=True)
class Evaluation:
    """What a schema is worth on labelled data.

    Methods are named `majority`, `written` (the model's own JSON), a rule (its raw probabilities at the
    schema's temperature), or a rule and a calibration, as in `joint+bias`; `joint+chosen` is the calibration
    that was selected, `joint+applied` the one beside the artifact. `main` is the method whose probabilities
    a deployment would use. `overall` pools the answers of all fields, for the methods that every field has.
    """

    schema: str
    model: str
    artifact: str
    scoring: str
    data: str
    weights: str
    seed: int
    fit: bool
    precision: float
    confidence: float
    texts: int
    held_in_texts: int
    held_out_texts: int
    main: str
    fields: tuple[FieldEvaluation, ...]
    overall: Mapping[str, Figures]
    comparisons: tuple[Comparison, ...]
    latency: Mapping[str, Spread]

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON values: all fields, and the definitions that its figures rest on."""
        definitions = {
            "resamples": bootstrap.RESAMPLES,
            "interval": bootstrap.LEVEL,
            "least_texts": bootstrap.MIN_TEXTS,
            "ece_bins": metrics.MAX_BINS,
            "least_probability": metrics.EPSILON,
            "legal_mass_bins": metrics.HISTOGRAM_BINS,
            "judged_on": "held-out texts" if self.fit else "all texts",
        }
        report: dict[str, Any] = _plain(asdict(self)) | {"definitions": definitions}
        return report


def evaluate(
    measured: Measured,
    *,
    seed: int,
    fit: bool,
    precision: float,
    confidence: float,
    deployed: Deployed | None = None,
) -> Evaluation:
    """Judge every method on what was measured; with `fit`, calibrations too, each text in one part only.

    Without `fit` all texts judge, and beside the calibration in use only the prior, which needs no labels, is
    tried. The majority's labels are those of the held-in texts, or without `fit` those it is judged on.
    """
    labels = [(table.row, table.expected) for table in measured.tables]
    inside = held_in(measured.group, HELD_IN if fit else 0.0, seed, labels)
    distinct, text = np.unique(measured.group, return_inverse=True)
    judging = np.zeros(len(distinct), dtype=bool)
    judging[text[~inside]] = True
    column = (np.cumsum(judging) - 1)[text]
    weights = bootstrap.draw(int(judging.sum()), seed)
    in_use = {} if fit or deployed is None else deployed.fields
    main = measured.scoring
    if fit or in_use:
        main += f"+{CHOSEN if fit else APPLIED}"
    fields: list[FieldEvaluation] = []
    judged: dict[str, dict[str, Judged]] = {}
    for table in measured.tables:
        held = inside[table.row]
        selection = _select(measured, table, held, seed) if fit else None
        rows, expected = column[table.row[~held]], table.expected[~held]
        positive = table.labels.index("true") if table.type == "boolean" else None
        found = in_use.get(table.name)
        applied = None
        if in_use:
            # What the calibration does not hold for is answered as it is.
            applied = found.fit if found else Fit("nothing", table.temperature)
        methods = {
            name: judge(
                answered, expected, rows, weights, choices=len(table.labels), positive=positive, seed=seed
            )
            for name, answered in answers(measured.scoring, table, held, selection, applied).items()
            if len(rows)
        }
        if methods:
            judged[table.name] = methods
        one = methods.get(main)
        fields.append(
            FieldEvaluation(
                name=table.name,
                type=table.type,
                labels=table.labels,
                tokens=table.tokens,
                held_in=int(held.sum()),
                held_out=int((~held).sum()),
                methods={name: method.figures for name, method in methods.items()},
                legal_mass={
                    rule: LegalMass(metrics.spread(mass), metrics.histogram(mass))
                    for rule, mass in table.legal_mass.items()
                },
                selection=selection,
                threshold=_threshold(one, precision, confidence) if fit else None,
                check=_check(one, found.threshold if found else None, confidence),
                mistakes=_mistakes(one, table.row[~held], expected),
            )
        )
    shared = [name for name in names(judged) if all(name in methods for methods in judged.values())]
    overall = {
        name: judge_overall([methods[name] for methods in judged.values()], weights, seed) for name in shared
    }
    return Evaluation(
        schema=measured.schema,
        model=measured.model,
        artifact=measured.artifact,
        scoring=measured.scoring,
        data=measured.data,
        weights=measured.weights,
        seed=seed,
        fit=fit,
        precision=precision,
        confidence=confidence,
        texts=measured.texts,
        held_in_texts=int(inside.sum()),
        held_out_texts=int((~inside).sum()),
        main=main,
        fields=tuple(fields),
        overall={name: method.figures for name, method in overall.items()},
        comparisons=compare(judged, overall, pairs(measured.scoring, main, names(judged))),
        latency=_latency(measured),
    )


def calibration_of(evaluation: Evaluation, artifact: Artifact) -> stored.Calibration:
    """What is stored beside the artifact: the chosen fit of each field, and its threshold if one passed."""
    index = {field.name: number for number, field in enumerate(artifact.fields)}
    return stored.Calibration(
        schema=evaluation.schema,
        model=evaluation.model,
        artifact=evaluation.artifact,
        weights=evaluation.weights,
        scoring=evaluation.scoring,
        prompt_version=artifact.prompt_version,
        data=evaluation.data,
        seed=evaluation.seed,
        fields=tuple(
            stored.FieldCalibration(
                name=field.name,
                digest=stored.field_digest(artifact, index[field.name]),
                method=field.selection.chosen,
                temperature=field.selection.fit.temperature,
                bias=field.selection.fit.bias,
                rows=0 if field.selection.chosen == "prior" else field.selection.rows,
                before=_stored_figures(field.methods.get(evaluation.scoring)),
                after=_stored_figures(field.methods.get(evaluation.main)),
                threshold=_stored_threshold(field.threshold),
            )
            for field in evaluation.fields
            if field.selection is not None
        ),
    )


def _select(measured: Measured, table: FieldTable, held: Bools, seed: int) -> Selection:
    return select(
        table.log_scores[measured.scoring][held],
        table.expected[held],
        measured.group[table.row[held]],
        table.temperature,
        table.prior.get(measured.scoring),
        seed,
    )


def _threshold(main: Judged | None, precision: float, confidence: float) -> ThresholdFit:
    if main is None or main.scored.confidence is None:
        return fit_threshold(
            np.empty(0), np.empty(0, dtype=bool), np.empty(0, dtype=np.int64), precision, confidence
        )
    return fit_threshold(main.scored.confidence, main.scored.correct, main.text, precision, confidence)


def _check(main: Judged | None, threshold: stored.Threshold | None, confidence: float) -> Check | None:
    if main is None or main.scored.confidence is None or threshold is None:
        return None
    return check(threshold, main.scored.confidence, main.scored.correct, main.text, confidence)


def _mistakes(main: Judged | None, texts: Ints, expected: Ints) -> tuple[Mistake, ...]:
    """The surest wrong answers, of equally sure ones the first in the data first."""
    if main is None or main.scored.confidence is None:
        return ()
    sure, wrong = main.scored.confidence, np.flatnonzero(~main.scored.correct)
    surest = wrong[np.argsort(-sure[wrong], kind="stable")][:MISTAKES]
    return tuple(
        Mistake(int(texts[n]), int(expected[n]), int(main.answers.predicted[n]), float(sure[n]))
        for n in surest
    )


def _latency(measured: Measured) -> dict[str, Spread]:
    columns = {
        "prefill_ms": measured.prefill_ms,
        "tree_ms": measured.tree_ms,
        "total_ms": measured.prefill_ms + measured.tree_ms,
        "context_tokens": measured.context_tokens.astype(np.float64),
    }
    if measured.written_ms is not None:
        columns["written_ms"] = measured.written_ms
    return {name: metrics.spread(values) for name, values in columns.items() if len(values)}


def _stored_figures(figures: Figures | None) -> stored.Figures | None:
    if figures is None or figures.log_loss is None or figures.brier is None or figures.ece is None:
        return None
    return stored.Figures(figures.rows, figures.accuracy, figures.log_loss, figures.brier, figures.ece)


def _stored_threshold(found: ThresholdFit | None) -> stored.Threshold | None:
    if found is None or found.minimum is None or found.share is None:
        return None
    return stored.Threshold(found.minimum, found.precision, found.confidence, found.share, found.rows)


def _plain(value: Any) -> Any:
    """As JSON has it: lists for tuples, text for keys, null for what is no finite number."""
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
