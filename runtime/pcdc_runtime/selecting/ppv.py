"""Parallel prefix verification (Ye et al., algorithm 2) on sorted rows: the options of many prefixes at once.

A prefix is a span of rows, so that whether a token goes on with it shows in one column. The published way
compares whole rows from the first token on, for each candidate anew.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pcdc_runtime.artifact import Ints
from pcdc_runtime.errors import ScoreError
from pcdc_runtime.indexed.rows import WIDE, Rows, Span
from pcdc_runtime.score import segment_logsumexp

from .beliefs import Logits, Read
from .options import Floats, Options

SMALL = WIDE
"""Up to how many rows all children are taken: reading that many costs what searching 500 candidates does."""

NORM_ERROR = 2e-6
"""What a sum of float32 exponentials over a vocabulary can be off by, relative to itself."""

BLOCKS = 4
"""How many maxima of blocks are found for each of the most probable tokens: with that many, most of those lie
in blocks of their own, and little more than they are is looked at."""


class Best(NamedTuple):
    """The most probable tokens of some logits, [prefixes, M], and each one's rows: none where low = high."""

    token: Ints
    logit: NDArray[np.float32]
    low: Ints
    high: Ints


@dataclass(frozen=True, eq=False)
class _Top:
    """Of the children that are among the most probable tokens: their logits.

    `least` is the least logit of all those tokens, `mass` their probability.
    """

    logit: NDArray[np.float32]
    least: float
    mass: float


@dataclass(frozen=True, eq=False)
class _Ahead:
    """What follows a prefix: children as in Options; the span's rows up to `closed` end there.

    The latter have the END sets `sets`, row `i` of them the one at `which[i]`. Without a `top` the children
    are all there are.
    """

    token: Ints
    low: Ints
    high: Ints
    closed: int
    sets: Sequence[int]
    which: NDArray[np.integer]
    top: _Top | None


class NumpyVerifier:
    """Verifies in NumPy. Without a `top` all children are options, otherwise the most probable `top` tokens.

    All are as well where there are few rows, and where none of the most probable ones is valid.
    """

    def __init__(self, rows: Rows, top: int | None = None) -> None:
        self._rows = rows
        self._top = top

    def options(self, spans: Sequence[Span], read: Read) -> list[Options]:
        """One for each span; row `i` of `read` is the beliefs after its prefix.

        Raises ScoreError where logits are NaN or infinite, or all tokens are impossible.
        """
        _check(read.norm)
        best = {} if self._top is None else self._among_best(spans, read, self._top)
        ahead = [best.get(at) or self._all(span) for at, span in enumerate(spans)]
        asked: list[tuple[int, Ints]] = []
        for at, part in enumerate(ahead):
            if part.top is None:
                asked.append((at, part.token))
            asked += [(at, self._rows.ends[kind]) for kind in part.sets]
        logs = iter(self._log_prob(read, asked))
        return [
            self._options(span, part, float(norm), logs)
            for span, part, norm in zip(spans, ahead, read.norm, strict=True)
        ]

    def _all(self, span: Span) -> _Ahead:
        child = self._rows.children(span)
        start = child.start
        return self._ahead(span, int(start[0]), (child.token, start[:-1], start[1:]), None)

    def _among_best(self, spans: Sequence[Span], read: Read, top: int) -> dict[int, _Ahead]:
        """What follows those prefixes where only the most probable tokens are looked at."""
        few = max(SMALL, top)
        closed = {at: self._closed(span) for at, span in enumerate(spans) if span.high - span.low > few}
        wide = [at for at, end in closed.items() if end < spans[at].high]
        if not wide:
            return {}
        best = self._best(read.logit, wide, [spans[at]._replace(low=closed[at]) for at in wide], top)
        found = {}
        for at, token, logit, low, high in zip(wide, *best, strict=True):
            order = np.flatnonzero(low < high)
            if len(order):
                order = order[np.argsort(token[order])]
                mass = float(np.exp(logit - read.norm[at]).sum())
                kept = _Top(logit[order], float(logit.min()), mass)
                found[at] = self._ahead(spans[at], closed[at], (token[order], low[order], high[order]), kept)
        return found

    def _closed(self, span: Span) -> int:
        """The first row of a span that goes on."""
        offset, ends = self._rows.offset, span.depth
        rows = range(span.low, span.high)
        return span.low + bisect_left(rows, True, key=lambda r: bool(offset[r + 1] - offset[r] > ends))

    def _ahead(self, span: Span, closed: int, children: tuple[Ints, Ints, Ints], top: _Top | None) -> _Ahead:
        sets, which = np.unique(self._rows.end[span.low : closed], return_inverse=True)
        return _Ahead(*children, closed, sets.tolist(), which, top)

    def _options(self, span: Span, part: _Ahead, norm: float, logs: Iterator[Floats]) -> Options:
        """Of one prefix, whose log-probabilities come next: those of children not known, then of END sets."""
        log = next(logs) if part.top is None else np.minimum(part.top.logit - norm, 0.0)
        closing = np.empty(0)
        ids = closing
        if part.sets:
            pieces = [next(logs) for _ in part.sets]
            ids = np.concatenate(pieces)
            bounds = np.cumsum([0, *map(len, pieces)])
            closing = np.minimum(segment_logsumexp(ids, bounds), 0.0)[part.which]
        missed = 0.0
        if part.top is not None:
            # A missed child is neither in the top nor in an END set: what such sets have beyond it counts.
            mass = part.top.mass + float(np.exp(ids[ids < part.top.least - norm]).sum())
            rest = int(span.high - part.closed - (part.high - part.low).sum())
            missed = min(max(0.0, 1 - mass) + NORM_ERROR, rest * math.exp(part.top.least - norm))
        entry = self._rows.entry[span.low : part.closed]
        return Options(part.token, part.low, part.high, log, entry, closing, missed)

    def _log_prob(self, read: Read, asked: Sequence[tuple[int, Ints]]) -> list[Floats]:
        """Log-probabilities of tokens in rows of logits."""
        lengths = [len(token) for _, token in asked]
        if not any(lengths):
            return [np.empty(0) for _ in asked]
        logit = self._pick(read.logit, asked)
        _check(np.maximum(logit.max(), 0))
        log = logit.astype(np.float64) - np.repeat(read.norm[[at for at, _ in asked]], lengths)
        np.minimum(log, 0.0, out=log)
        return [log[low:high] for low, high in pairwise(accumulate(lengths, initial=0))]

    def _pick(self, logit: Logits, asked: Sequence[tuple[int, Ints]]) -> NDArray[np.float32]:
        """Logits of tokens in rows, one after the other."""
        rows = np.asarray(logit)
        return np.concatenate([rows[at].take(token) for at, token in asked])

    def _best(self, logit: Logits, at: Sequence[int], spans: Sequence[Span], top: int) -> Best:
        """The most probable tokens at some rows of the logits, and the rows of the index that go on so.

        All rows of these spans go on.
        """
        rows = np.asarray(logit)
        token = np.stack([most(rows[row], top) for row in at])
        low, high = np.zeros_like(token), np.zeros_like(token)
        for place, span in enumerate(spans):
            # Few prefixes have so many rows: their children are kept, and one column of those is searched.
            child = self._rows.children(span)
            where = child.token.searchsorted(token[place])
            valid = np.flatnonzero(child.token.take(where, mode="clip") == token[place])
            low[place, valid] = child.start[where[valid]]
            high[place, valid] = child.start[where[valid] + 1]
        return Best(token, np.take_along_axis(rows[list(at)], token, 1), low, high)


def most(logit: NDArray[np.float32], top: int) -> Ints:
    """The tokens of the `top` greatest logits, rising; of equal ones at the edge those of the lowest ids."""
    width = len(logit)
    if top >= width:
        return np.arange(width, dtype=np.int32)
    blocks = BLOCKS * top
    if 2 * blocks > width:
        near = np.arange(width)
    else:
        # The `top` greatest maxima of blocks are logits themselves, so that the least of them is no more than
        # the last one wanted. Blocks are interleaved: their maxima come from whole rows at a time.
        maxima = logit[: width // blocks * blocks].reshape(-1, blocks).max(axis=0)
        near = np.flatnonzero(logit >= np.partition(maxima, blocks - top)[blocks - top])
    value = logit[near]
    edge = np.partition(value, len(value) - top)[len(value) - top]
    kept = value > edge
    kept[np.flatnonzero(value == edge)[: top - np.count_nonzero(kept)]] = True
    chosen: Ints = near[kept].astype(np.int32)
    return chosen


def _check(value: NDArray[np.floating] | np.floating) -> None:
    """Raises ScoreError unless all are finite."""
    if not np.isfinite(value).all():
        raise ScoreError(
            "the next token",
            "got NaN or infinite logits from the model, or none that is possible",
            "scores must be finite numbers",
            "check the model's files, or run it in float32",
        )
