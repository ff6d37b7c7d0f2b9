"""The lean half of pcdc: load an artifact, answer its fields for a context.

Importing this package loads its errors and nothing more, neither MLX nor numpy; every other name is loaded
when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import (
    ArtifactError,
    CalibrationError,
    ContextNotTextError,
    ContextTooLongError,
    EngineClosedError,
    ExtraMissingError,
    FingerprintMismatchError,
    HubUnreachableError,
    IndexFileError,
    LogitsWidthError,
    ModelNotFoundError,
    ModelNotSupportedError,
    NoAnswerError,
    PcdcError,
    PruningError,
    ScoreError,
    SelectionError,
    SelectionMismatchError,
    TemperatureError,
    ThresholdError,
    UnknownFieldError,
    UnknownMethodError,
    UnknownScoringError,
)

if TYPE_CHECKING:
    from .calibration import CalibratedThreshold, calibration_path, read_thresholds
    from .engine import Engine, load
    from .engines import Engines
    from .loaded import LoadedModel, open_model
    from .result import AppliedCalibration, FieldResult, Result, Route
    from .selecting.opening import open_selector
    from .selecting.selection import Selected, Selection
    from .selecting.selector import Selector

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
    "IndexFileError",
    "LoadedModel",
    "LogitsWidthError",
    "ModelNotFoundError",
    "ModelNotSupportedError",
    "NoAnswerError",
    "PcdcError",
    "PruningError",
    "Result",
    "Route",
    "ScoreError",
    "Selected",
    "Selection",
    "SelectionError",
    "SelectionMismatchError",
    "Selector",
    "TemperatureError",
    "ThresholdError",
    "UnknownFieldError",
    "UnknownMethodError",
    "UnknownScoringError",
    "calibration_path",
    "load",
    "open_model",
    "open_selector",
    "read_thresholds",
]


# Where each name that is loaded on first use lives.
_HOMES = {
    "AppliedCalibration": "result",
    "CalibratedThreshold": "calibration",
    "Engine": "engine",
    "Engines": "engines",
    "FieldResult": "result",
    "LoadedModel": "loaded",
    "Result": "result",
    "Route": "result",
    "Selected": "selecting.selection",
    "Selection": "selecting.selection",
    "Selector": "selecting.selector",
    "calibration_path": "calibration",
    "load": "engine",
    "open_model": "loaded",
    "open_selector": "selecting.opening",
    "read_thresholds": "calibration",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
