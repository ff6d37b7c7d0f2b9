"""Attention of a forest pass on x86 CPUs, where MLX's masked call is slow.

That call computes each exponential alone, and pays for every column that the mask then throws away. Here the
rows of a pass go in blocks, and a block computes only columns that some row of it sees.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from .exponential import buffer, by_rows, exp, in_numpy
from .fast_mlx import mx
from .tree import Block

SCORES = 2 * 1024 * 1024
"""The most scores computed at a time: larger memory leaves the caches and is given back to the system."""


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
    gathered: list[mx.array] = []
    for some in _together(blocks, heads):
        scores = [
            [
                grouped[:, :, block.rows].reshape(groups, -1, width) @ keys[0, :, where].swapaxes(1, 2)
                for where in block.columns
            ]
            for block in some
        ]
        mx.eval(scores, gathered[-1:])
        for block, parts in zip(some, scores, strict=True):
            total = mx.array(_weigh([buffer(part) for part in parts], block.unseen))
            sums = [part @ values[0, :, where] for part, where in zip(parts, block.columns, strict=True)]
            mean = sum(sums[1:], sums[0]) / total
            gathered.append(mean.reshape(groups, heads // groups, -1, mean.shape[-1]))
    return mx.concatenate(gathered, axis=2).reshape(1, heads, rows, -1)


def _together(blocks: Sequence[Block], heads: int) -> Iterator[list[Block]]:
    """The blocks in order, as many at a time as their scores stay within SCORES or one block."""
    some: list[Block] = []
    size = 0
    for block in blocks:
        more = heads * len(block.unseen) * sum(part.stop - part.start for part in block.columns)
        if some and size + more > SCORES:
            yield some
            some, size = [], 0
        some.append(block)
        size += more
    yield some


def _weigh(parts: Sequence[NDArray[np.float32]], unseen: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Turn scores into softmax weights times their sum, in place; gives the sums, one per row.

    The parts side by side are the row's scores; `unseen` is about the last columns.
    """
    flat = [part.reshape(-1, part.shape[-1]) for part in parts]
    total = np.empty((*parts[0].shape[:-1], 1), dtype=np.float32)
    totals = total.reshape(-1, 1)

    def work(low: int, high: int) -> None:
        pieces = [part[low:high] for part in flat]
        hidden = unseen[np.arange(low, high) % len(unseen)]
        np.copyto(pieces[-1][:, -unseen.shape[1] :], -np.inf, where=hidden)
        top = np.maximum.reduce([piece.max(axis=-1, keepdims=True) for piece in pieces])
        for piece in pieces:
            np.subtract(piece, top, out=piece)
            exp(piece)
        totals[low:high] = np.add.reduce([piece.sum(axis=-1, keepdims=True) for piece in pieces])

    by_rows(work, len(totals), sum(part.shape[-1] for part in parts))
    return total
