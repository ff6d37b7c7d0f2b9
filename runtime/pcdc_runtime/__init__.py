"""The lean half of pcdc: load an artifact, answer its fields for a context.

Importing this package needs no MLX; `load`, `Engine`, `Engines`, `LoadedModel` and `open_model` import it
when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .calibration import CalibratedThreshold, calibration_path, read_thresholds
from .errors import (
    ArtifactError,
    CalibrationError,
    ContextNotTextError,
    ContextTooLongError,
    EngineClosedError,
    ExtraMissingError,
    FingerprintMismatchError,
    HubUnreachableError,
    LogitsWidthError,
    ModelNotFoundError,
    ModelNotSupportedError,
    PcdcError,
    PruningError,
    ScoreError,
    TemperatureError,
    ThresholdError,
    UnknownFieldError,
    UnknownScoringError,
)
from .result import AppliedCalibration, FieldResult, Result, Route

if TYPE_CHECKING:
    from .engine import Engine, load
    from .engines import Engines
    from .loaded import LoadedModel, open_model

__all__ = [
    "AppliedCalibration",
    "ArtifactError",
    "CalibratedThreshold",
    "CalibrationError",
    "ContextNotTextError",
    "ContextTooLongError",
    "Engine",
    "EngineClosedError",
    "Engines",
    "ExtraMissingError",
    "FieldResult",
    "FingerprintMismatchError",
    "HubUnreachableError",
    "LoadedModel",
    "LogitsWidthError",
    "ModelNotFoundError",
    "ModelNotSupportedError",
    "PcdcError",
    "PruningError",
    "Result",
    "Route",
    "ScoreError",
    "TemperatureError",
    "ThresholdError",
    "UnknownFieldError",
    "UnknownScoringError",
    "calibration_path",
    "load",
    "open_model",
    "read_thresholds",
]


def __getattr__(name: str) -> Any:
    if name in ("Engine", "Engines", "LoadedModel", "load", "open_model"):
        from . import engine

        return getattr(engine, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
