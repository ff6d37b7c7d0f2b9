"""Rules about what was built and measured of a schema; what was never built is no fault."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pcdc_runtime.calibration import calibration_path, field_digest

from pcdc.diagnostics import Diagnostic, finding, visible

from .choices import listed
from .subject import Built


def _evaluate(artifact: Path) -> str:
    return f"run `pcdc eval {visible(str(artifact))} DATA.jsonl --fit` with labelled texts of your own"


def never_evaluated(built: Built) -> Iterator[Diagnostic]:
    """An artifact without a calibration beside it."""
    if built.calibration is None:
        yield finding(
            "PCDC531",
            built.now.place,
            visible(str(built.artifact)),
            f"was never evaluated: there is no {calibration_path(built.artifact).name}",
            "accuracy and thresholds are known from labelled texts only",
            _evaluate(built.artifact),
        )


def for_something_else(built: Built) -> Iterator[Diagnostic]:
    """A calibration that was made for another model, rule, prompt or field."""
    calibration, now = built.calibration, built.now.artifact
    if calibration is None:
        return
    differs = [
        f"{what} {was!r}, which is {now_is!r} now"
        for what, was, now_is in (
            ("model", calibration.model, now.model),
            ("scoring rule", calibration.scoring, now.scoring),
            ("prompt version", calibration.prompt_version, now.prompt_version),
        )
        if was != now_is
    ]
    known = {f.name: f.digest for f in calibration.fields}
    changed = [f.name for i, f in enumerate(now.fields) if known.get(f.name, "") != field_digest(now, i)]
    if not differs and changed:
        differs = [f"other fields than {listed(changed)}"]
    if differs:
        yield finding(
            "PCDC532",
            built.now.place,
            visible(str(calibration_path(built.artifact))),
            f"was made for {', '.join(differs)}",
            "what was fitted to something else is dropped when a text is answered",
            _evaluate(built.artifact),
        )


def no_threshold(built: Built) -> Iterator[Diagnostic]:
    """Fields that were evaluated and have no threshold."""
    if built.calibration is None:
        return
    without = [f.name for f in built.calibration.fields if f.threshold is None]
    asked = {f.name for f in built.now.artifact.fields}
    if missing := [name for name in without if name in asked]:
        yield finding(
            "PCDC533",
            built.now.place,
            visible(str(calibration_path(built.artifact))),
            f"has no threshold for {listed(missing)}",
            "all their answers go to review",
            "ask `pcdc eval` for a lower --precision, or give it more labelled texts",
        )


def out_of_date(built: Built) -> Iterator[Diagnostic]:
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
