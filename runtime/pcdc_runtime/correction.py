"""What a calibration means for one artifact on one model: which fields it holds for, and why not others."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, TypeAlias

from .artifact import Artifact
from .calibration import Calibration, FieldCalibration, field_digest
from .errors import CalibrationError
from .result import AppliedCalibration
from .rules import RULES

logger = logging.getLogger("pcdc_runtime")


class Weights(Protocol):
    """What of a model decides whether a calibration holds for it."""

    @property
    def name(self) -> str: ...
    @property
    def weights_digest(self) -> str: ...


@dataclass(frozen=True)
class Correction:
    """One field's calibration as it is applied; `bias` in nats, one per choice, or empty."""

    temperature: float
    bias: tuple[float, ...]
    applied: AppliedCalibration


Corrections: TypeAlias = Mapping[str, Correction | str]
"""By field name: the calibration, or why it was dropped. Fields without one are not in it."""


class Calibrated:
    """A calibration bound to an artifact and a model; None applies to nothing.

    Raises CalibrationError where a field's biases are not as many as its choices, ModelNotFoundError where
    the weights cannot be read.
    """

    def __init__(self, artifact: Artifact, model: Weights, calibration: Calibration | None) -> None:
        self.calibration = calibration
        self._bound = {} if calibration is None else _bound(artifact, model, calibration)
        self.under = lru_cache(len(RULES))(self._under)
        self.under(artifact.scoring)

    def _under(self, rule: str) -> Corrections:
        """What holds under a rule; what does not is logged, once."""
        if self.calibration is None:
            return {}
        fitted = self.calibration.scoring
        wrong = f"it was fitted to the rule {fitted}, not to {rule}" if fitted != rule else ""
        found = {
            name: wrong if wrong and isinstance(one, Correction) else one for name, one in self._bound.items()
        }
        for reason in dict.fromkeys(one for one in found.values() if isinstance(one, str)):
            names = ", ".join(name for name, one in found.items() if one == reason)
            logger.warning("calibration of %s: not applied to %s: %s", self.calibration.schema, names, reason)
        return found


def _bound(artifact: Artifact, model: Weights, calibration: Calibration) -> dict[str, Correction | str]:
    indices = {field.name: index for index, field in enumerate(artifact.fields)}
    whole = _mismatch(artifact, model, calibration)
    bound: dict[str, Correction | str] = {}
    for field in calibration.fields:
        if field.name not in indices:
            bound[field.name] = "the artifact has no such field"
        elif whole:
            bound[field.name] = whole
        elif field.digest != field_digest(artifact, indices[field.name]):
            bound[field.name] = "the field has changed since it was fitted"
        else:
            bound[field.name] = _correction(artifact, indices[field.name], calibration, field)
    return bound


def _mismatch(artifact: Artifact, model: Weights, calibration: Calibration) -> str:
    """Why a calibration holds for no field at all, or nothing."""
    if calibration.prompt_version != artifact.prompt_version:
        return (
            f"it was fitted with prompt version {calibration.prompt_version!r:.40}, "
            f"the artifact has {artifact.prompt_version!r:.40}"
        )
    if calibration.weights != model.weights_digest:
        return f"it was fitted on other weights than those of {model.name}"
    return ""


def _correction(
    artifact: Artifact, index: int, calibration: Calibration, field: FieldCalibration
) -> Correction:
    choices = len(artifact.fields[index].candidates)
    if len(field.bias) not in (0, choices):
        raise CalibrationError(
            f"calibration of {artifact.name}",
            f"has {len(field.bias)} biases for the {choices} choices of {field.name!r}",
            help="make it again with `pcdc eval --fit`",
        )
    least = None if field.threshold is None else field.threshold.minimum
    applied = AppliedCalibration(field.method, calibration.id_of(field.name), least)
    return Correction(field.temperature, field.bias, applied)
