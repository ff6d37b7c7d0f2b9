"""The lean half of pcdc: load an artifact, answer its fields for a context.

Importing this package needs no MLX; `load`, `Engine`, `Engines`, `LoadedModel` and `open_model` import it
when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import (
    ArtifactError,
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
    ScoreError,
    TemperatureError,
    UnknownFieldError,
    UnknownScoringError,
)
from .result import FieldResult, Result

if TYPE_CHECKING:
    from .engine import Engine, load
    from .engines import Engines
    from .loaded import LoadedModel, open_model

__all__ = [
    "ArtifactError",
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
    "Result",
    "ScoreError",
    "TemperatureError",
    "UnknownFieldError",
    "UnknownScoringError",
    "load",
    "open_model",
]


def __getattr__(name: str) -> Any:
    if name in ("Engine", "Engines", "LoadedModel", "load", "open_model"):
        from . import engine

        return getattr(engine, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
