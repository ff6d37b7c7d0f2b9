"""The calibration beside an artifact, as `run` and `load` apply it, and how its thresholds do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pcdc_runtime.artifact import Artifact
from pcdc_runtime.calibration import Calibration, Threshold, calibration_path, loads, read_bytes
from pcdc_runtime.correction import Calibrated, Correction

from pcdc.diagnostics import Diagnostic, finding

from .fit import Fit
from .split import Bools, Floats, Ints
from .thresholds import lower_bound, trials


@dataclass(frozen=True)
class Weights:
    """Which weights the scores come from."""

    name: str
    weights_digest: str


@dataclass(frozen=True)
class Applied:
    """One field's calibration as it is applied, with its own threshold; `rows` it was fitted on."""

    fit: Fit
    id: str
    rows: int
    threshold: Threshold | None


@dataclass(frozen=True)
class Deployed:
    """A calibration bound to an artifact: `fields` that it holds for, and why not for those `dropped`."""

    file: str
    data: str
    fields: Mapping[str, Applied]
    dropped: Mapping[str, str]

    def knows(self, data: str) -> bool:
        """Whether it was fitted on texts of the file with this digest."""
        return bool(self.fields) and self.data == data

    def cautions(self, data: str, digest: str) -> list[Diagnostic]:
        """What of it is not in use, and that it knows the data."""
        help = "fit it again with `pcdc eval --fit`"
        subject, fact = f"calibration {self.file}", "is not applied to "
        found = [
            finding("PCDC726", None, subject, f"{fact}{name!r}", why, help)
            for name, why in self.dropped.items()
        ]
        if self.knows(digest):
            fact, limit = f"holds the texts that {self.file} was fitted on", "the figures are optimistic"
            help = "measure on other texts, or the raw probabilities with --no-calibration"
            found.append(finding("PCDC727", None, data, fact, limit, help))
        return found

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "file": self.file,
            "data": self.data,
            "fields": {
                name: {"id": one.id, "method": one.fit.method, "rows": one.rows}
                for name, one in self.fields.items()
            },
            "dropped": dict(self.dropped),
        }


@dataclass(frozen=True)
class Check:
    """How a threshold in use did on `rows` labelled rows: `acted` reached it, `right` of these were right.

    `share` is the part of the rows acted on, `precision` the part of these that was right, `bound` its lower
    end at `confidence`, by distinct text; both are None where none was acted on. `promised` is the precision
    that the threshold was found for.
    """

    minimum: float
    rows: int
    acted: int
    right: int
    share: float
    precision: float | None
    bound: float | None
    confidence: float
    promised: float


def beside(file: Path) -> Calibration | None:
    """The calibration that the runtime would take for an artifact's file. Raises CalibrationError."""
    path = calibration_path(file)
    data = read_bytes(path)
    return None if data is None else loads(data, str(path))


def deployed(file: Path, artifact: Artifact, weights: Weights, calibration: Calibration) -> Deployed:
    """What of a calibration the runtime applies to an artifact. Raises CalibrationError."""
    fields, dropped = dict[str, Applied](), dict[str, str]()
    for name, found in Calibrated(artifact, weights, calibration).under(artifact.scoring).items():
        stored = calibration.field(name)
        if isinstance(found, Correction) and stored is not None:
            fit = Fit(stored.method, found.temperature, found.bias)
            fields[name] = Applied(fit, found.applied.id, stored.rows, stored.threshold)
        else:
            dropped[name] = str(found)
    return Deployed(str(calibration_path(file)), calibration.data, fields, dropped)


def check(threshold: Threshold, probability: Floats, correct: Bools, text: Ints, confidence: float) -> Check:
    """A threshold in use on labelled rows, of which there is at least one; `text` numbers the rows' texts."""
    texts, right_texts = trials(probability, correct, text, threshold.minimum)
    acted = probability >= threshold.minimum
    count, right = int(acted.sum()), int(np.count_nonzero(correct[acted]))
    return Check(
        minimum=threshold.minimum,
        rows=len(probability),
        acted=count,
        right=right,
        share=count / len(probability),
        precision=right / count if count else None,
        bound=lower_bound(right_texts, texts, confidence) if texts else None,
        confidence=confidence,
        promised=threshold.precision,
    )
