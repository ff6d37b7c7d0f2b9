"""The sorted rows of an index: every surface form of every entry, below the prompt's last token.

A row is a form's token path. Rows stand in lexicographic order of their ids, a shorter one before those that
it begins, so that all rows with one prefix are neighbors: a prefix is a span of rows, and what may follow it
stands in one column. Nothing here knows a tokenizer or a model.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pcdc_runtime.artifact import EndSets, Ints

from .parted import Parted, part

WIDE = 4096
"""From how many rows on the children of a span are worth keeping."""


class Span(NamedTuple):
    """The rows `low` to `high - 1`, which are all those with one prefix of `depth` tokens."""

    low: int
    high: int
    depth: int


@dataclass(frozen=True, eq=False)
class Children:
    """What can follow a prefix in a catalog.

    The rows from the span's `low` up to `start[0]` end at the prefix. Child `c` is token `token[c]`, with
    rows `start[c]` to `start[c + 1] - 1`; tokens rise. `start` has one entry more than `token`, the last is
    the span's `high`.
    """

    token: Ints
    start: Ints


@dataclass(frozen=True, eq=False)
class Rows:
    """Row `r` has the tokens `token[offset[r]:offset[r + 1]]`, ends with END set `end[r]`, spells `entry[r]`.

    No two rows have both tokens and END set in common. Entries count from 0 to `entries - 1`; each has a row.
    """

    token: Ints
    offset: Ints
    end: Ints
    entry: Ints
    ends: EndSets
    entries: int

    def __len__(self) -> int:
        return len(self.end)

    @property
    def whole(self) -> Span:
        """All rows: the span of the empty prefix."""
        return Span(0, len(self), 0)

    @cached_property
    def parted(self) -> Parted:
        """The entries of several forms."""
        return part(self.token, self.offset, self.entry)

    @cached_property
    def _kept(self) -> dict[Span, Children]:
        return {}

    def row(self, row: int) -> Ints:
        """The token ids of one row."""
        return self.token[self.offset[row] : self.offset[row + 1]]

    def children(self, span: Span) -> Children:
        """What follows a prefix; of wide spans kept once it was found, so that it is cheap everywhere."""
        if span.high - span.low < WIDE:
            return self._found(span)
        if span not in self._kept:
            self._kept[span] = self._found(span)
        return self._kept[span]

    def _found(self, span: Span) -> Children:
        low, high, depth = span
        offset = self.offset[low : high + 1]
        ended = int(np.searchsorted(np.diff(offset) > depth, True))
        column = self.token[offset[ended:-1] + depth]
        changes = np.flatnonzero(column[1:] != column[:-1]) + 1
        first = np.concatenate([[0], changes]).astype(np.int32)[: len(column)]
        start = np.append(first + low + ended, high).astype(np.int32)
        return Children(column[first], start)
