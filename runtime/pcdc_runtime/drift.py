"""How far a model's own number type is from float32, measured on this machine."""

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
from .models import resolve
from .tokenizer import load_tokenizer


@dataclass(frozen=True)
class Drift:
    """The model's own type, and the largest difference of a choice's log score from float32, in nats."""

    dtype: str
    nats: float


def device() -> str:
    """The device that MLX computes on."""
    return str(mx.default_device())


def measure_drift(artifact: Artifact, context: str) -> Drift:
    """Answer one context twice, in the artifact's model's own type and in float32.

    Raises what loading and running raise. Holds one copy of the model at a time.
    """
    folder = resolve(artifact.model, weights=True).folder
    own_type, own = _log_scores(artifact, folder, context, float32=False)
    _, exact = _log_scores(artifact, folder, context, float32=True)
    return Drift(own_type, float(np.abs(own - exact).max()))


def _log_scores(
    artifact: Artifact, folder: Path, context: str, *, float32: bool
) -> tuple[str, NDArray[np.float64]]:
    def opener() -> tuple[LanguageModel, Tokenizer]:
        return load_model(folder, artifact.model, float32=float32), load_tokenizer(folder)

    with Engine(artifact, LoadedModel(artifact.model, opener)) as engine:
        dtype = engine.model.language.dtype
        answers = engine.run(context).answers
    return dtype, np.array([score for answer in answers for score in answer.log_scores])
