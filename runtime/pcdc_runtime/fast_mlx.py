"""MLX, with a fast BLAS in place before it: what in this package uses MLX imports it from here."""

from __future__ import annotations

from .blas import load_fast_blas

load_fast_blas()

import mlx.core as mx  # noqa: E402
from mlx.nn.layers.base import Module  # noqa: E402

__all__ = ["Module", "mx"]
