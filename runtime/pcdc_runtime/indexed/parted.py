"""Entries of several forms, and where their forms part.

All forms of an entry share a prefix; as long as a search has not read what follows it, they lie together and
one bound holds for all. Only below it must a search tell them apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pcdc_runtime.artifact import Ints


@dataclass(frozen=True, eq=False)
class Parted:
    """Entry `entry[i]` has the rows `row[offset[i]:offset[i + 1]]`, rising, which share `depth[i]` tokens.

    Only entries of several rows are here, by their `first` row.
    """

    entry: Ints
    first: Ints
    offset: Ints
    row: Ints
    depth: Ints

    def __len__(self) -> int:
        return len(self.entry)

    def at(self, low: int, high: int, depth: int) -> Ints:
        """Which of them part right below the prefix of `depth` tokens that rows `low` to `high - 1` share."""
        start, stop = np.searchsorted(self.first, np.array([low, high], dtype=np.int32))
        found: Ints = (np.flatnonzero(self.depth[start:stop] == depth) + start).astype(np.int32)
        return found


def part(token: Ints, offset: Ints, entry: Ints) -> Parted:
    """The parted entries of sorted rows, given as in `Rows`."""
    several = np.flatnonzero(np.bincount(entry)[entry] > 1)
    row = several[np.argsort(entry[several], kind="stable")].astype(np.int32)
    starts = np.flatnonzero(np.diff(entry[row], prepend=-1))
    order = np.argsort(row[starts])
    counts = np.diff(starts, append=len(row))[order]
    ends = np.cumsum(counts)
    shift = starts[order] - (ends - counts)
    row = row[np.repeat(shift, counts) + np.arange(len(row))]
    first = ends - counts
    shared = np.append(_shared(token, offset, row[:-1], row[1:]), 0)
    # What the last row of an entry shares with the first of the next one is nothing to it.
    shared[ends - 1] = np.iinfo(np.int32).max
    depth = np.minimum.reduceat(shared, first) if len(first) else first
    bounds = np.append(0, ends).astype(np.int32)
    return Parted(entry[row[first]], row[first], bounds, row, depth.astype(np.int32))


def _shared(token: Ints, offset: Ints, one: Ints, other: Ints) -> Ints:
    """How many leading tokens the rows of each pair have in common."""
    length = np.diff(offset)
    most = np.minimum(length[one], length[other])
    shared = most.astype(np.int32)
    alive, depth = np.arange(len(one)), 0
    while len(alive := alive[most[alive] > depth]):
        differ = token[offset[one[alive]] + depth] != token[offset[other[alive]] + depth]
        shared[alive[differ]] = depth
        alive = alive[~differ]
        depth += 1
    return shared
