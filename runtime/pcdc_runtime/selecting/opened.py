"""What an exact search knows: the forms that were closed, and disjoint open nodes with all others below.

An open node's own probability is known, as its parent was read; what follows it is not. All that is below it
has together at most its probability.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcdc_runtime.artifact import Ints
from pcdc_runtime.indexed.rows import Rows, Span

from .options import Floats, Options

NODE = np.dtype(
    [
        ("log_prob", np.float64),
        ("low", np.int32),
        ("high", np.int32),
        ("depth", np.int32),
        ("token", np.int32),
        ("parent", np.int32),
        ("open", np.bool_),
    ]
)
UNSEEN = -1
"""The token of an open node that stands for all children that were not looked at; it is never expanded."""

CLOSED = -1
"""In place of the open node of a row whose form was closed."""

Flags = NDArray[np.bool_]
Whole = NDArray[np.integer]


@dataclass(frozen=True, eq=False)
class Split:
    """Entries whose forms were told apart.

    Entry `entry[i]` has at least `low[i]`, as a natural log, and at most `high[i]`. Form `f` of all of them,
    one entry after the other, is one of entry number `of[f]`; it lies below open node `node[f]` or is CLOSED.
    """

    entry: Ints
    low: Floats
    high: Floats
    of: Whole
    node: Ints


class Opened:
    """The nodes of a search. Number 0 is the root; `parent` is the model's number of a node's parent."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._parted = rows.parted
        self._nodes: NDArray[Any] = np.zeros(1024, dtype=NODE)
        self._nodes[0] = (0.0, 0, len(rows), 0, UNSEEN - 1, -1, True)
        self._count = 1
        self._low = np.full(rows.entries, -math.inf)
        self._closed: dict[int, None] = {}
        self._told: Whole = np.empty(0, dtype=np.int64)
        self._hopeful = self._told
        # Which open node a row lies below; only asked for rows of parted entries.
        self._owner = np.zeros(len(rows) if len(self._parted) else 0, dtype=np.int32)

    @property
    def nodes(self) -> NDArray[Any]:
        """All nodes that are or were open, as records of NODE."""
        view: NDArray[Any] = self._nodes[: self._count]
        return view

    @property
    def closed(self) -> list[tuple[float, int]]:
        """Entries with a closed form of some probability, `(low, entry)`, in the order of answers.

        `low` is the natural log of what the closed forms have together.
        """
        found = [(float(self._low[entry]), entry) for entry in self._closed]
        return sorted(found, key=lambda pair: (-pair[0], pair[1]))

    @property
    def impossible(self) -> Whole:
        """Entries without such a form."""
        return np.flatnonzero(np.isneginf(self._low))

    @property
    def held(self) -> float:
        """The log of the probability of all closed forms."""
        return float(np.logaddexp.reduce(self._low[list(self._closed)], initial=-math.inf))

    def span(self, at: int) -> Span:
        """The rows below a node."""
        node = self._nodes[at]
        return Span(int(node["low"]), int(node["high"]), int(node["depth"]))

    def expand(self, at: int, number: int, options: Options) -> int:
        """Put the options of an open node in its place, which is the model's node `number`.

        Gives the number of its first child here; others follow in the order of the options, then what was
        not looked at.
        """
        first, children = self._count, len(options.token)
        span = self.span(at)
        looked_at = len(options.entry) + int((options.high - options.low).sum())
        unseen = looked_at < span.high - span.low
        self._reserve(first + children + unseen)
        log_prob = float(self._nodes["log_prob"][at])
        new = self._nodes[first : first + children]
        new["log_prob"] = options.log_prob + log_prob
        new["low"], new["high"], new["token"] = options.low, options.high, options.token
        new["depth"], new["parent"], new["open"] = span.depth + 1, number, True
        if unseen:
            most = log_prob + math.log(options.missed) if options.missed > 0 else -math.inf
            self._nodes[first + children] = (most, 0, 0, span.depth + 1, UNSEEN, number, True)
        self._count = first + children + unseen
        self._nodes["open"][at] = False
        self._close(options, log_prob)
        if len(self._parted):
            self._own(span, options, first)
            parting = self._parted.at(*span)
            if len(parting):
                self._told = np.append(self._told, parting)
                self._hopeful = np.append(self._hopeful, parting)
        return first

    def give_up(self, split: Split, least: float) -> None:
        """Leave entries that cannot have `least`, a natural log, out of later splits but those of everything.

        `split` is how they stand.
        """
        self._hopeful = self._hopeful[split.high >= least]

    def split(self, everything: bool = False) -> Split:
        """The split entries as they stand: those not given up, or all."""
        parted = self._parted
        which = self._told if everything else self._hopeful
        counts = np.diff(parted.offset)[which]
        ends = np.cumsum(counts)
        of = np.repeat(np.arange(len(which)), counts)
        flat = np.arange(len(of)) + np.repeat(parted.offset[which] - (ends - counts), counts)
        node = self._owner[parted.row[flat]]
        entry = parted.entry[which]
        # Rows below one open node are neighbors, so that it is counted once; but what was not looked at may
        # lie on both sides of what was, and then counts more often, which is still a bound.
        again = (node[1:] == node[:-1]) & (of[1:] == of[:-1])
        counted = (node != CLOSED) & ~np.append(np.zeros(min(1, len(of)), dtype=np.bool_), again)
        weight = np.where(counted, self._nodes["log_prob"][node], -math.inf)
        low = high = self._low[entry]
        if len(which):
            high = np.logaddexp(low, np.logaddexp.reduceat(weight, ends - counts))
        return Split(entry, low, high, of, node)

    def _close(self, options: Options, log_prob: float) -> None:
        for entry, close in zip(options.entry.tolist(), (options.close + log_prob).tolist(), strict=True):
            if close > -math.inf:
                self._low[entry] = np.logaddexp(self._low[entry], close)
                self._closed[entry] = None

    def _own(self, span: Span, options: Options, first: int) -> None:
        """Say below which open node each row of an expanded one lies; closed rows come first."""
        children = len(options.token)
        bounds = np.empty(2 * children + 2, dtype=np.int32)
        bounds[0], bounds[-1] = span.low + len(options.entry), span.high
        bounds[1:-1:2], bounds[2:-1:2] = options.low, options.high
        owner = np.full(2 * children + 1, first + children, dtype=np.int32)
        owner[1::2] = np.arange(first, first + children)
        self._owner[span.low : bounds[0]] = CLOSED
        self._owner[bounds[0] : span.high] = np.repeat(owner, np.diff(bounds))

    def _reserve(self, count: int) -> None:
        if count > len(self._nodes):
            grown: NDArray[Any] = np.zeros(max(count, 2 * len(self._nodes)), dtype=NODE)
            grown[: self._count] = self.nodes
            self._nodes = grown
