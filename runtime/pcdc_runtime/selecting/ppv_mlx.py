"""Parallel prefix verification on the device of a model, in MLX: only what was found comes back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pcdc_runtime.artifact import Ints
from pcdc_runtime.fast_mlx import mx
from pcdc_runtime.indexed.rows import Rows, Span

from .beliefs import Logits
from .options import Verifier
from .ppv import Best, NumpyVerifier

BLOCK = 16
"""How many logits share a maximum, where the most probable tokens are looked for in two steps."""


def verifier_for(rows: Rows, top: int | None, device: str) -> Verifier:
    """The verifier for logits on a device, `cpu` or `gpu`: on a GPU they stay there."""
    return MlxVerifier(rows, top) if device == "gpu" else NumpyVerifier(rows, top)


class MlxVerifier(NumpyVerifier):
    """Verifies in MLX, as NumpyVerifier does; call it on the thread that runs the model.

    Only among equal logits at the edge of the most probable tokens the two may choose others.
    """

    @cached_property
    def _on_device(self) -> tuple[mx.array, mx.array]:
        return mx.array(self._rows.token), mx.array(self._rows.offset)

    def _pick(self, logit: Logits, asked: Sequence[tuple[int, Ints]]) -> NDArray[np.float32]:
        row = np.repeat(np.array([at for at, _ in asked]), [len(token) for _, token in asked])
        token = np.concatenate([token for _, token in asked])
        return np.array(_matrix(logit)[mx.array(row.astype(np.int32)), mx.array(token)])

    def _best(self, logit: Logits, at: Sequence[int], spans: Sequence[Span], top: int) -> Best:
        rows = _matrix(logit)
        if len(at) < len(rows):
            rows = rows[mx.array(list(at))]
        token = most(rows, top)
        value = mx.take_along_axis(rows, token, axis=1)
        low, high = self._search(token, spans)
        mx.eval(token, value, low, high)
        return Best(*(np.array(part) for part in (token, value, low, high)))

    def _search(self, token: mx.array, spans: Sequence[Span]) -> tuple[mx.array, mx.array]:
        """Where the rows of tokens begin and end, by one binary search for both ends of all.

        A token's rows end where those of the next greater number would begin.
        """
        tokens, offset = self._on_device
        first, last, depth = (mx.array(list(column))[:, None] for column in zip(*spans, strict=True))
        wanted = mx.stack([token, token + 1])
        low, high = mx.broadcast_to(first, wanted.shape), mx.broadcast_to(last, wanted.shape)
        for _ in range(max(span.high - span.low for span in spans).bit_length()):
            # Where low = high already, both stay: the row before is less, or the row itself is not.
            middle = mx.minimum(low + (high - low) // 2, last - 1)
            less = tokens[offset[middle] + depth] < wanted
            low, high = mx.where(less, middle + 1, low), mx.where(less, high, middle)
        return low[0], low[1]


def most(logit: mx.array, top: int) -> mx.array:
    """The tokens of the `top` greatest logits of each row, in any order."""
    rows, width = logit.shape
    blocks = width // BLOCK
    if top >= width:
        return mx.broadcast_to(mx.arange(width, dtype=mx.int32), (rows, width))
    if 2 * top > blocks:
        return _greatest(logit, top)
    # They lie in the blocks with the `top` greatest maxima.
    whole = logit[:, : blocks * BLOCK].reshape(rows, BLOCK, blocks).max(axis=1)
    near = _greatest(whole, top)[:, :, None] + mx.arange(BLOCK, dtype=mx.int32) * blocks
    near = near.reshape(rows, -1)
    if blocks * BLOCK < width:
        rest = mx.arange(blocks * BLOCK, width, dtype=mx.int32)
        near = mx.concatenate([near, mx.broadcast_to(rest, (rows, len(rest)))], axis=1)
    chosen = _greatest(mx.take_along_axis(logit, near, axis=1), top)
    return mx.take_along_axis(near, chosen, axis=1)


def _greatest(value: mx.array, top: int) -> mx.array:
    place = mx.argpartition(value, value.shape[1] - top, axis=1)[:, -top:]
    return place.astype(mx.int32)


def _matrix(logit: Logits) -> mx.array:
    return mx.array(logit) if isinstance(logit, np.ndarray) else logit
