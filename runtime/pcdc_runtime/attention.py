"""Attention of a forest pass on x86 CPUs, where MLX's masked call is slow.

That call computes each exponential alone, and pays for every column that the mask then throws away. Here the
rows of a pass go in blocks, a block computes only columns that some row of it sees, and what is computed at a
time stays in a core's cache from the scores to what they gather. Cores take turns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from . import mkl
from .exponential import SHARE, buffer, exp, in_numpy, in_turns
from .fast_mlx import mx
from .tree import Block

SCORES = 512 * 1024
"""The most scores that one step computes, unless one row alone has more."""

Floats = NDArray[np.float32]


def attends_in_blocks(queries: mx.array, keys: mx.array, values: mx.array, sinks: mx.array | None) -> bool:
    """Whether `attend` takes these; the fused masked call takes everything else.

    Metal and CUDA have that call as one fast kernel. Half precision needs its float32 sums, sinks their own
    term in the normaliser, and a single row has nothing to skip.
    """
    return in_numpy(queries, keys, values) and sinks is None and queries.shape[2] > 1


def attend(
    queries: mx.array, keys: mx.array, values: mx.array, scale: float, blocks: Sequence[Block]
) -> mx.array:
    """What each block's rows gather from the slots they see, [1, heads, rows, width]; evaluated."""
    scaled = queries * scale
    mx.eval(scaled, keys, values)
    # Laid out as the next layer reads it: the heads of a row side by side.
    gathered = np.empty((queries.shape[2], queries.shape[1], values.shape[-1]), dtype=np.float32)
    call = _Call(buffer(scaled)[0], _in_rows(keys), _in_rows(values), gathered)
    steps = list(call.steps(blocks))
    in_turns(steps, call.run, sum(step.scores for step in steps) > SHARE)
    return mx.array(gathered[None]).swapaxes(1, 2)


@dataclass(frozen=True, eq=False)
class _Step:
    """Some rows of a block, by the heads that share one group of keys; `scores` is how many it computes."""

    group: int
    rows: slice
    columns: tuple[slice, ...]
    unseen: NDArray[np.bool_]
    scores: int


@dataclass(frozen=True, eq=False)
class _Call:
    """Queries [heads, rows, width], keys and values [groups, slots, width], [rows, heads, width] to fill."""

    queries: Floats
    keys: Floats
    values: Floats
    gathered: Floats

    def steps(self, blocks: Sequence[Block]) -> Iterator[_Step]:
        """Every row of the blocks under every group, each once."""
        groups = len(self.keys)
        heads = len(self.queries) // groups
        for block in blocks:
            wide = heads * sum(part.stop - part.start for part in block.columns)
            size, count = max(1, SCORES // wide), block.rows.stop - block.rows.start
            for low in range(0, count, size):
                high = min(low + size, count)
                rows = slice(block.rows.start + low, block.rows.start + high)
                for group in range(groups):
                    yield _Step(group, rows, block.columns, block.unseen[low:high], (high - low) * wide)

    def run(self, step: _Step) -> None:
        """Fill the place of the step's rows and heads."""
        heads = len(self.queries) // len(self.keys)
        own = slice(step.group * heads, (step.group + 1) * heads)
        # Query heads that share keys are rows of one product.
        queries = np.ascontiguousarray(self.queries[own, step.rows]).reshape(-1, self.queries.shape[-1])
        scores = np.empty((len(queries), step.scores // len(queries)), dtype=np.float32)
        parts: list[tuple[Floats, slice]] = []
        at = 0
        for where in step.columns:
            part = scores[:, at : at + where.stop - where.start]
            _product(queries, self.keys[step.group, where], part, transposed=True)
            parts.append((part, where))
            at += part.shape[1]
        by_head = scores.reshape(heads, len(step.unseen), -1)
        np.copyto(by_head[..., -step.unseen.shape[1] :], -np.inf, where=step.unseen)
        total = _weigh(scores)
        sums = np.empty((len(queries), self.values.shape[-1]), dtype=np.float32)
        for part, where in parts:
            _product(part, self.values[step.group, where], sums, add=where is not parts[0][1])
        sums /= total
        self.gathered[step.rows, own] = sums.reshape(heads, len(step.unseen), -1).swapaxes(0, 1)


def _in_rows(x: mx.array) -> Floats:
    """The memory of keys or values; a copy where the elements of a row lie apart."""
    found = buffer(x)[0]
    return found if found.strides[-1] == found.itemsize else np.ascontiguousarray(found)


def _weigh(scores: Floats) -> Floats:
    """Turn scores into softmax weights times their sum, in place; gives the sums, one per row."""
    np.subtract(scores, scores.max(axis=-1, keepdims=True), out=scores)
    exp(scores)
    total: Floats = scores.sum(axis=-1, keepdims=True)
    return total


def _product(a: Floats, b: Floats, out: Floats, *, transposed: bool = False, add: bool = False) -> None:
    """`a @ b`, or `a @ b.T`, into `out`, or added to it."""
    if mkl.is_there():
        mkl.product(a, b, out, transposed=transposed, add=add)
        return
    found = a @ (b.T if transposed else b)
    np.add(out, found, out=out) if add else np.copyto(out, found)
