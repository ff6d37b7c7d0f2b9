"""Attention of a forest pass on x86 CPUs, where MLX's masked call is slow.

That call computes each exponential alone, and pays for every column that the mask then throws away. Here the
rows of a pass go in blocks, and a block computes only columns that some row of it sees.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .exponential import buffer, in_numpy
from .fast_mlx import mx
from .tree import Block


def attends_in_blocks(queries: mx.array, keys: mx.array, values: mx.array, sinks: mx.array | None) -> bool:
    """Whether `attend` takes these; the fused masked call takes everything else.

    Metal and CUDA have that call as one fast kernel. Half precision needs its float32 sums, sinks their own
    term in the normaliser, and a single row has nothing to skip.
    """
    return in_numpy(queries, keys, values) and sinks is None and queries.shape[2] > 1


def attend(
    queries: mx.array, keys: mx.array, values: mx.array, scale: float, blocks: Sequence[Block]
) -> mx.array:
    """What each block's rows gather from the slots they see, [1, heads, rows, width]."""
    _, heads, rows, width = queries.shape
    groups = keys.shape[1]
    # Query heads that share keys are rows of one product.
    grouped = (queries * scale).reshape(groups, heads // groups, rows, width)
    scores = [
        [
            grouped[:, :, block.rows].reshape(groups, -1, width) @ keys[0, :, part].swapaxes(1, 2)
            for part in block.columns
        ]
        for block in blocks
    ]
    mx.eval(scores)
    gathered = []
    for block, parts in zip(blocks, scores, strict=True):
        total = _weigh([buffer(part) for part in parts], block.unseen)
        sums = [part @ values[0, :, where] for part, where in zip(parts, block.columns, strict=True)]
        mean = sum(sums[1:], sums[0]) / mx.array(total)
        gathered.append(mean.reshape(groups, heads // groups, -1, mean.shape[-1]))
    return mx.concatenate(gathered, axis=2).reshape(1, heads, rows, -1)


def _weigh(parts: Sequence[NDArray[np.float32]], unseen: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Turn scores into softmax weights times their sum, in place; gives the sums, one per row.

    The parts side by side are the row's scores; `unseen` is about the last columns.
    """
    last = parts[-1].reshape(-1, len(unseen), parts[-1].shape[-1])
    np.copyto(last[..., -unseen.shape[1] :], -np.inf, where=unseen)
    top = np.maximum.reduce([part.max(axis=-1, keepdims=True) for part in parts])
    for part in parts:
        np.subtract(part, top, out=part)
        np.exp(part, out=part)
    total: NDArray[np.float32] = np.add.reduce([part.sum(axis=-1, keepdims=True) for part in parts])
    return total
