"""Slots of a growing token forest: positions, and who sees whom.

A slot is one token's place in a KV buffer. Its parent is an earlier slot or -1, its position is one more than
its parent's, and it sees itself and its ancestors, nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .artifact import Ints

CHUNK = 512
"""The most tokens that one forward of a prompt or a tree runs."""
ROWS = 64
"""The most rows of a block: small blocks compute less that nobody sees, large ones make fewer products."""


@dataclass(frozen=True, eq=False)
class Block:
    """Neighbouring rows of a pass, and the slots that some of them see.

    `columns` are one or two ranges of slots; side by side they end in the columns of `unseen`, which is true
    where a row does not see one. All rows see all columns before those.
    """

    rows: slice
    columns: tuple[slice, ...]
    unseen: NDArray[np.bool_]


@dataclass(frozen=True)
class Slots:
    """The occupied slots in order, one entry per slot in both arrays."""

    parent: Ints
    position: Ints

    def __len__(self) -> int:
        return len(self.parent)

    @classmethod
    def empty(cls) -> Slots:
        """No slots at all."""
        none = np.zeros(0, dtype=np.int32)
        return cls(none, none)

    @cached_property
    def stem(self) -> int:
        """How many leading slots form one chain: there, slot number and position are the same."""
        broken = np.flatnonzero(self.parent != np.arange(-1, len(self) - 1))
        return int(broken[0]) if len(broken) else len(self)

    def chained(self, count: int) -> Slots:
        """With `count` more slots, each the child of the one before it."""
        first = len(self)
        start = int(self.position[-1]) + 1 if first else 0
        return Slots(
            np.concatenate([self.parent, np.arange(first - 1, first + count - 1, dtype=np.int32)]),
            np.concatenate([self.position, np.arange(start, start + count, dtype=np.int32)]),
        )

    def branched(self, parents: Ints) -> Slots:
        """With one more slot per entry of `parents`. Raises ValueError where a parent is not earlier."""
        own = np.arange(len(self), len(self) + len(parents))
        if bool(((parents < -1) | (parents >= own)).any()):
            raise ValueError("every parent must be -1 or an earlier slot")
        position = self.position.tolist()
        for parent in parents.tolist():
            position.append(position[parent] + 1 if parent >= 0 else 0)
        return Slots(
            np.concatenate([self.parent, parents.astype(np.int32)]), np.array(position, dtype=np.int32)
        )

    def truncated(self, length: int) -> Slots:
        """The first `length` slots. Raises ValueError where there are not that many."""
        if not 0 <= length <= len(self):
            raise ValueError(f"cannot truncate {len(self)} slots to {length}")
        return Slots(self.parent[:length], self.position[:length])

    def is_run(self, start: int, stop: int) -> bool:
        """Whether positions rise by one from each slot of the range to the next."""
        return bool((np.diff(self.position[start:stop]) == 1).all())

    def is_causal(self, stop: int, window: int | None) -> bool:
        """Whether every slot before `stop` sees exactly the slots before it and itself."""
        return stop <= self.stem and self.within(stop, window)

    def within(self, stop: int, window: int | None) -> bool:
        """Whether a window hides nothing from the slots before `stop`."""
        return window is None or bool((self.position[:stop] < window).all())

    def visible(self, start: int, stop: int, window: int | None) -> NDArray[np.bool_]:
        """Who sees whom: [stop - start, stop], true where the row's slot attends to the column's.

        Within a window, the position of what is seen is less than `window` before the row's own.
        """
        sees = np.zeros((stop - start, stop), dtype=np.bool_)
        first_child: dict[int, int] = {}
        for row, parent in enumerate(self.parent[start:stop].tolist()):
            if parent >= start:
                sees[row] = sees[parent - start]
            elif parent in first_child:
                sibling = first_child[parent]
                sees[row] = sees[sibling]
                sees[row, start + sibling] = False
            else:
                first_child[parent] = row
                self._mark(sees[row], parent)
            sees[row, start + row] = True
        if window is not None:
            sees &= self.position[start:stop, None] - self.position[None, :stop] < window
        return sees

    def blocks(self, start: int, stop: int) -> tuple[Block, ...]:
        """The slots from `start` to `stop` in blocks that say what `visible` says."""
        sees = self.visible(start, stop, None)
        return tuple(
            _block(slice(low, high), sees[low:high, : start + high], start + low)
            for low, high in chunks(0, stop - start, ROWS)
        )

    def _mark(self, row: NDArray[np.bool_], slot: int) -> None:
        """Set `row` for `slot` and its ancestors, in place."""
        while slot >= self.stem:
            row[slot] = True
            slot = int(self.parent[slot])
        row[: slot + 1] = True


def _block(rows: slice, sees: NDArray[np.bool_], before: int) -> Block:
    """The block of `rows`, whose own slots begin at `before`."""
    shared = int(np.append(sees[:, :before].all(axis=0), False).argmin())
    first = shared + int(sees[:, shared:].any(axis=0).argmax())
    own = slice(first, sees.shape[1])
    columns: tuple[slice, ...] = (slice(0, shared), own)
    if first == shared:
        columns = (slice(0, own.stop),)
    elif not shared:
        columns = (own,)
    return Block(rows, columns, ~sees[:, first:])


def chunks(start: int, stop: int, size: int) -> Iterator[tuple[int, int]]:
    """Half-open ranges of at most `size` slots that cover `start` to `stop` in order."""
    for low in range(start, stop, size):
        yield low, min(low + size, stop)
