"""What lint shows of each definition in each model's tokens, beside what it finds."""

from __future__ import annotations

from dataclasses import dataclass

from pcdc_runtime.calibration import FieldCalibration

from .subject import FieldTokens, judged_rows


@dataclass(frozen=True)
class FieldJudged:
    """What a calibration says of one field; `rows` is how many texts it was judged on.

    `accuracy` is None where no text was kept to judge by, the others where the field has no threshold.
    """

    name: str
    rows: int
    accuracy: float | None
    minimum: float | None
    precision: float | None
    confidence: float | None
    share: float | None


@dataclass(frozen=True)
class TargetView:
    """One schema in one model's tokens; `window` is None where the model states none."""

    source: str
    schema: str
    model: str
    prompt_tokens: int
    example_tokens: int
    window: int | None
    nodes: int
    passes: int
    fields: tuple[FieldTokens, ...]
    judged: tuple[FieldJudged, ...]


@dataclass(frozen=True)
class IndexTokens:
    """One index in one model's tokens; `window` is None where the model states none.

    `rows` are the surface forms of its `entries`.
    """

    source: str
    index: str
    model: str
    prompt_tokens: int
    example_tokens: int
    window: int | None
    labels: int
    entries: int
    rows: int


def judged(field: FieldCalibration) -> FieldJudged:
    """What a calibration says of a field."""
    figures, threshold = field.after or field.before, field.threshold
    return FieldJudged(
        name=field.name,
        rows=judged_rows(field),
        accuracy=figures.accuracy if figures else None,
        minimum=threshold.minimum if threshold else None,
        precision=threshold.precision if threshold else None,
        confidence=threshold.confidence if threshold else None,
        share=threshold.share if threshold else None,
    )
