"""Rules about what was built and measured of a schema."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pcdc_runtime.calibration import Calibration, calibration_path, field_digest

from pcdc.diagnostics import Diagnostic, finding, quoted, visible

from .subject import Built, Deployed, Unbuilt, judged_rows

FEW_TEXTS = 100
LOW_SHARE = 0.9


def _evaluate(artifact: Path, options: str = "--fit") -> str:
    return f"`pcdc eval {visible(str(artifact))} DATA.jsonl {options}`"


def not_built(unbuilt: Unbuilt) -> Iterator[Diagnostic]:
    """A definition without an artifact."""
    yield finding(
        "PCDC535",
        unbuilt.now.place,
        unbuilt.now.noun,
        f"is not built for {unbuilt.now.target.model}: there is no {visible(str(unbuilt.artifact))}",
        "nothing can be said of what is deployed",
        "run `pcdc build`, name its folder with --out, or leave builds out with `--ignore PCDC53`",
    )


def never_evaluated(built: Built) -> Iterator[Diagnostic]:
    """An artifact without a calibration beside it."""
    if built.calibration is None:
        yield finding(
            "PCDC531",
            built.now.place,
            visible(str(built.artifact)),
            f"was never evaluated: there is no {calibration_path(built.artifact).name}",
            "accuracy and thresholds are known from labelled texts only",
            f"run {_evaluate(built.artifact)} with labelled texts of your own",
        )


def for_something_else(built: Built) -> Iterator[Diagnostic]:
    """A calibration that was made for another model, rule, prompt or field."""
    calibration = built.calibration
    if calibration is None:
        return
    dropped = "what was fitted is dropped when a text is answered"
    again = f"run {_evaluate(built.artifact)} again"
    file = visible(str(calibration_path(built.artifact)))
    facts = [*_other_circumstances(built, calibration)]
    changed = [] if facts else _changed(built, calibration)
    # The digest of every field has the instructions and the texts of the examples in it.
    if len(changed) > 1 and len(changed) == len(list(built.evaluated)):
        facts.append("was made before the instructions or the examples changed, or every field did")
        changed = []
    for fact in facts:
        yield finding("PCDC532", built.now.place, file, fact, dropped, again)
    kept = any(field.name not in changed for field, _ in built.evaluated)
    for field in built.now.schema.fields:
        if field.name in changed:
            fact = "has changed since it was evaluated: its description, its type, its choices"
            fact += " or its answers in examples" if kept else ", the instructions or the examples"
            yield finding("PCDC532", field.location, f"field {quoted(field.name)}", fact, dropped, again)
        elif calibration.field(field.name) is None:
            yield finding(
                "PCDC532",
                field.location,
                f"field {quoted(field.name)}",
                "was not evaluated: the labelled texts had no answers for it, or it had another name",
                "its answers are uncalibrated and go to review",
                f"label it, and {again}",
            )


def _other_circumstances(built: Built, calibration: Calibration) -> Iterator[str]:
    now = built.now.artifact
    for what, was, now_is in (
        ("model", calibration.model, now.model),
        ("scoring rule", calibration.scoring, now.scoring),
        ("prompt version", calibration.prompt_version, now.prompt_version),
    ):
        if was != now_is:
            yield f"was made for the {what} {quoted(was)}, and the {what} is {quoted(now_is)} now"


def _changed(built: Built, calibration: Calibration) -> list[str]:
    now = built.now.artifact
    known = {f.name: f.digest for f in calibration.fields}
    return [
        f.name for i, f in enumerate(now.fields) if known.get(f.name, "") not in ("", field_digest(now, i))
    ]


def no_threshold(built: Built) -> Iterator[Diagnostic]:
    """Fields that were evaluated and have no threshold."""
    for field, of_field in built.evaluated:
        if of_field.threshold is None:
            yield finding(
                "PCDC533",
                field.location,
                f"field {quoted(field.name)}",
                f"has no threshold, judged on {_texts(judged_rows(of_field))}",
                "all its answers go to review",
                "too few texts were labelled, or too few answers were right for the precision asked for: "
                + _evaluate(built.artifact, "--fit --precision P")
                + " says which",
            )


def few_texts(built: Built) -> Iterator[Diagnostic]:
    """Fields that were judged on fewer than FEW_TEXTS texts."""
    for field, of_field in built.evaluated:
        rows = judged_rows(of_field)
        if rows < FEW_TEXTS:
            yield finding(
                "PCDC536",
                field.location,
                f"field {quoted(field.name)}",
                f"was judged on {_texts(rows)}",
                f"at least {FEW_TEXTS}: of fewer, each is more than 1% of the accuracy",
                f"label more, and run {_evaluate(built.artifact)} again",
            )


def low_threshold(built: Built) -> Iterator[Diagnostic]:
    """Thresholds that were asked for with less than LOW_SHARE of precision or confidence."""
    for field, of_field in built.evaluated:
        threshold = of_field.threshold
        if threshold and min(threshold.precision, threshold.confidence) < LOW_SHARE:
            yield finding(
                "PCDC537",
                field.location,
                f"field {quoted(field.name)}",
                f"has a threshold of {threshold.minimum:.4g} for a precision of {threshold.precision:g} at "
                f"a confidence of {threshold.confidence:g}, found on {_texts(threshold.rows)}",
                f"told where either is below {LOW_SHARE}",
                "run "
                + _evaluate(built.artifact, "--fit --precision P --confidence C")
                + " for others, or ignore this rule with the reason why these are enough",
            )


def _texts(count: int) -> str:
    return f"{count} text" + ("" if count == 1 else "s")


def out_of_date(built: Deployed) -> Iterator[Diagnostic]:
    """An artifact that `pcdc build` would make anew."""
    if built.decision.rebuild:
        yield finding(
            "PCDC534",
            built.now.place,
            visible(str(built.artifact)),
            f"is out of date: {built.decision.reason}",
            "",
            "run `pcdc build` before you deploy it",
        )
