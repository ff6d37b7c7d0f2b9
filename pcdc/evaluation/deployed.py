"""The calibration beside an artifact, as `run` and `load` apply it, and how its thresholds do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from pcdc_runtime.artifact import Artifact
from pcdc_runtime.calibration import Calibration
from pcdc_runtime.correction import Calibrated, Correction

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
    """One field's calibration as it is applied; `minimum` is its own threshold, `rows` it was fitted on."""

    fit: Fit
    id: str
    rows: int
    minimum: float | None


@dataclass(frozen=True)
class Deployed:
    """A calibration bound to an artifact: `fields` that it holds for, and why not for those `dropped`."""

    data: str
    fields: Mapping[str, Applied]
    dropped: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "data": self.data,
            "fields": {
                name: {"id": one.id, "method": one.fit.method, "rows": one.rows, "minimum": one.minimum}
                for name, one in self.fields.items()
            },
            "dropped": dict(self.dropped),
        }


@dataclass(frozen=True)
class Check:
    """How a threshold in use did on `rows` labelled rows: `acted` reached it, `right` of these were right.

    `share` is the part of the rows acted on, `precision` of these the part that was right and `bound` its lower
    end at `confidence`, by distinct text; both are None where none was acted on.
    """

    minimum: float
    rows: int
    acted: int
    right: int
    share: float
    precision: float | None
    bound: float | None
    confidence: float


def deployed(artifact: Artifact, weights: Weights, calibration: Calibration) -> Deployed:
    """What of a calibration the runtime applies to an artifact. Raises CalibrationError."""
    fields, dropped = dict[str, Applied](), dict[str, str]()
    for name, found in Calibrated(artifact, weights, calibration).under(artifact.scoring).items():
        stored = calibration.field(name)
        if isinstance(found, Correction) and stored is not None:
            fit = Fit(stored.method, found.temperature, found.bias)
            fields[name] = Applied(fit, found.applied.id, stored.rows, found.applied.threshold)
        else:
            dropped[name] = str(found)
    return Deployed(calibration.data, fields, dropped)


def check(minimum: float, probability: Floats, correct: Bools, text: Ints, confidence: float) -> Check:
    """A threshold in use on labelled rows, of which there is at least one; `text` numbers the rows' texts."""
    texts, right_texts = trials(probability, correct, text, minimum)
    acted = probability >= minimum
    count, right = int(acted.sum()), int(np.count_nonzero(correct[acted]))
    return Check(
        minimum=minimum,
        rows=len(probability),
        acted=count,
        right=right,
        share=count / len(probability),
        precision=right / count if count else None,
        bound=lower_bound(right_texts, texts, confidence) if texts else None,
        confidence=confidence,
    )
