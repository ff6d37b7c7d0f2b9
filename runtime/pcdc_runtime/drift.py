"""How far a model's weights as stored are from float32, measured on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from .artifact import Artifact
from .engine import Engine
from .fast_mlx import mx
from .loaded import LoadedModel
from .model import LanguageModel, load_model
from .tokenizer import load_tokenizer


@dataclass(frozen=True)
class Drift:
    """The type that the stored weights compute in, and the largest difference of a choice's log score."""

    dtype: str
    nats: float


def device() -> str:
    """The device that MLX computes on."""
    return str(mx.default_device())


def measure_drift(artifact: Artifact, folder: Path, context: str) -> Drift:
    """Answer one context twice with a folder's weights: as they are stored, and in float32.

    Raises what loading and running raise. Holds one copy of the model at a time.
    """
    stored_type, stored = _log_scores(artifact, folder, context, float32=False)
    _, exact = _log_scores(artifact, folder, context, float32=True)
    return Drift(stored_type, float(np.abs(stored - exact).max()))


def _log_scores(
    artifact: Artifact, folder: Path, context: str, *, float32: bool
) -> tuple[str, NDArray[np.float64]]:
    def opener() -> tuple[LanguageModel, Tokenizer]:
        return load_model(folder, artifact.model, float32=float32), load_tokenizer(folder)

    with Engine(artifact, LoadedModel(artifact.model, opener)) as engine:
        dtype = engine.model.language.dtype
        answers = engine.run(context).answers
    return dtype, np.array([score for answer in answers for score in answer.log_scores])
