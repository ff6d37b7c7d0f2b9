"""Parallel prefix verification on the device of a model, in MLX: only what was found comes back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pcdc_runtime.artifact import Ints
from pcdc_runtime.fast_mlx import mx
from pcdc_runtime.indexed.rows import Children, Rows

from .options import Verifier
from .ppv import Best, NumpyVerifier

if TYPE_CHECKING:
    from .beliefs import Logits

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
    def _on_device(self) -> dict[Children, mx.array]:
        """The tokens of children. They are of wide spans, so that their rows keep them, too."""
        return {}

    def _pick(self, logit: Logits, asked: Sequence[tuple[int, Ints]]) -> NDArray[np.float32]:
        row = np.repeat(np.array([at for at, _ in asked]), [len(token) for _, token in asked])
        token = np.concatenate([token for _, token in asked])
        return np.array(_matrix(logit)[mx.array(row.astype(np.int32)), mx.array(token)])

    def _best(self, logit: Logits, at: Sequence[int], children: Sequence[Children], top: int) -> Best:
        rows = _matrix(logit)
        if len(at) < len(rows):
            rows = rows[mx.array(list(at))]
        token = most(rows, top)
        value = mx.take_along_axis(rows, token, axis=1)
        child = self._search(token, children)
        mx.eval(token, value, child)
        return Best(np.array(token), np.array(value), np.array(child))

    def _search(self, token: mx.array, children: Sequence[Children]) -> mx.array:
        """Which of a prefix's children each token is, by one binary search for all prefixes; -1 for none."""
        device = self._on_device
        for found in children:
            if found not in device:
                device[found] = mx.array(found.token)
        distinct = list(dict.fromkeys(children))
        column = mx.concatenate([device[found] for found in distinct])
        begin = dict(zip(distinct, accumulate((len(d.token) for d in distinct), initial=0), strict=False))
        # Of full size, because operations between unequal shapes are several times as slow on a CPU.
        first = mx.repeat(mx.array([[begin[found]] for found in children]), token.shape[1], axis=1)
        last = first + mx.array([[len(found.token) - 1] for found in children])
        low, high = first, last
        for _ in range((max(len(found.token) for found in children) - 1).bit_length()):
            middle = (low + high) >> 1
            less = column[middle] < token
            # One step too many, where low = high already, changes neither.
            low, high = mx.where(less, mx.minimum(middle + 1, last), low), mx.where(less, high, middle)
        return mx.where(column[low] == token, low - first, -1)


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
