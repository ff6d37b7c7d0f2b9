"""What `pcdc build` and `pcdc eval` leave beside a schema, as the rules about it find it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pcdc_runtime import calibration as calibrations
from pcdc_runtime import codec
from pcdc_runtime.calibration import (
    Calibration,
    FieldCalibration,
    Figures,
    Threshold,
    calibration_path,
    field_digest,
)
from pcdc_runtime.models import DEFAULT

from pcdc.build import build


def built(source: Path, out: Path) -> Path:
    """The artifact of one schema."""
    (target,) = build([source], [DEFAULT], out).targets
    return target.artifact


def evaluated(source: Path, out: Path) -> Calibration:
    """A calibration of a schema's artifact as `pcdc eval --fit` writes it, every field with a threshold."""
    artifact = codec.read(built(source, out))
    fields = tuple(
        FieldCalibration(
            name=field.name,
            digest=field_digest(artifact, index),
            method="temperature",
            temperature=1.5,
            bias=(),
            rows=200,
            before=None,
            after=Figures(rows=200, accuracy=0.9, log_loss=0.3, brier=0.2, ece=0.05),
            threshold=Threshold(minimum=0.8, precision=0.95, confidence=0.95, share=0.6, rows=200),
        )
        for index, field in enumerate(artifact.fields)
    )
    return Calibration(
        schema=artifact.name,
        model=artifact.model,
        artifact=artifact.digest,
        weights="0" * 64,
        scoring=artifact.scoring,
        prompt_version=artifact.prompt_version,
        data="1" * 64,
        seed=0,
        fields=fields,
    )


def write(source: Path, out: Path, calibration: Calibration) -> None:
    """Put a calibration beside the artifact of a schema."""
    calibrations.write(calibration_path(built(source, out)), calibration)


def good(source: Path, out: Path) -> None:
    """Built, evaluated, with thresholds."""
    write(source, out, evaluated(source, out))


def for_another_rule(source: Path, out: Path) -> None:
    """Evaluated under `trie`."""
    write(source, out, replace(evaluated(source, out), scoring="trie"))


def without_threshold(source: Path, out: Path) -> None:
    """Evaluated, and no threshold found."""
    calibration = evaluated(source, out)
    write(
        source,
        out,
        replace(calibration, fields=tuple(replace(f, threshold=None) for f in calibration.fields)),
    )


def on_few_texts(source: Path, out: Path) -> None:
    """Evaluated, and judged on 99 texts."""
    calibration = evaluated(source, out)
    write(
        source,
        out,
        replace(
            calibration,
            fields=tuple(replace(f, after=f.after and replace(f.after, rows=99)) for f in calibration.fields),
        ),
    )


def of_low_precision(source: Path, out: Path) -> None:
    """Evaluated, with thresholds for a precision of .8."""
    calibration = evaluated(source, out)
    threshold = Threshold(minimum=0.7, precision=0.8, confidence=0.95, share=0.6, rows=200)
    write(
        source,
        out,
        replace(calibration, fields=tuple(replace(f, threshold=threshold) for f in calibration.fields)),
    )


def unbuilt(source: Path, out: Path) -> None:
    """Nothing at all."""


def changed(source: Path, out: Path) -> None:
    """Built, and then a field was added."""
    good(source, out)
    declared = json.loads(source.read_text(encoding="utf-8"))
    declared["added"] = {"type": "boolean", "description": "Is it new?"}
    source.write_text(json.dumps(declared), encoding="utf-8")


BAD: dict[str, Callable[[Path, Path], object]] = {
    "PCDC531": built,
    "PCDC532": for_another_rule,
    "PCDC533": without_threshold,
    "PCDC534": changed,
    "PCDC535": unbuilt,
    "PCDC536": on_few_texts,
    "PCDC537": of_low_precision,
}
"""The state that each rule about builds finds; `good` is the one that none of them does."""
