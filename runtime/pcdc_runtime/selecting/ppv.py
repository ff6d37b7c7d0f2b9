"""Parallel prefix verification (Ye et al., algorithm 2) on sorted rows: the options of many prefixes at once.

A prefix is a span of rows, so that one column says what goes on with it. Of spans with many rows that column
is kept without its repetitions, and the most probable tokens are searched in there; the published way
compares whole rows from the first token on, for each candidate and in all rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pcdc_runtime.artifact import Ints
from pcdc_runtime.errors import ScoreError
from pcdc_runtime.indexed.rows import WIDE, Children, Rows, Span
from pcdc_runtime.score import segment_logsumexp

from .beliefs import Read
from .options import Floats, Options

if TYPE_CHECKING:
    from .beliefs import Logits

SMALL = WIDE
"""Up to how many rows all children are taken: reading that many costs what searching 500 candidates does."""

NORM_ERROR = 2e-6
"""What a sum of float32 exponentials over a vocabulary can be off by, relative to itself."""

BLOCKS = 4
"""How many maxima of blocks are found for each of the most probable tokens: with that many, most of those lie
in blocks of their own, and little more than they are is looked at."""


class Best(NamedTuple):
    """The most probable tokens of some logits, [prefixes, M], and which child each one is, -1 where none."""

    token: Ints
    logit: NDArray[np.float32]
    child: Ints


@dataclass(frozen=True, eq=False)
class _Top:
    """The children that are among the most probable tokens, rising, and their logits.

    `left` counts the other children; `least` is the least logit of all those tokens, `mass` their mass.
    """

    child: Ints
    logit: Floats
    left: int
    least: float
    mass: float


@dataclass(frozen=True, eq=False)
class _Ahead:
    """What follows a prefix: children as in Options, which without a `top` are all there are.

    The span's rows up to `closed` end there, each with another END set.
    """

    token: Ints
    low: Ints
    high: Ints
    closed: int
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
        children = [self._rows.children(span) for span in spans]
        tops = {} if self._top is None else self._among_best(spans, children, read, self._top)
        ahead = [self._ahead(found, tops.get(at)) for at, found in enumerate(children)]
        asked: list[tuple[int, Ints]] = []
        for at, (span, part) in enumerate(zip(spans, ahead, strict=True)):
            if part.top is None:
                asked.append((at, part.token))
            asked += [(at, self._rows.ends[kind]) for kind in self._rows.end[span.low : part.closed].tolist()]
        logs = iter(self._log_prob(read, asked))
        return [
            self._options(span, part, float(norm), logs)
            for span, part, norm in zip(spans, ahead, read.norm, strict=True)
        ]

    def _among_best(
        self, spans: Sequence[Span], children: Sequence[Children], read: Read, top: int
    ) -> dict[int, _Top]:
        """Of those prefixes where that is worth it, which children are among the most probable tokens."""
        wide = [
            at
            for at, (span, found) in enumerate(zip(spans, children, strict=True))
            if span.high - span.low > SMALL and len(found.token) > top
        ]
        if not wide:
            return {}
        best = self._best(read.logit, wide, [children[at] for at in wide], top)
        tops = {}
        for at, logit, child in zip(wide, best.logit, best.child, strict=True):
            valid = np.flatnonzero(child >= 0)
            if len(valid):
                valid = valid[np.argsort(child[valid])]
                logit = logit.astype(np.float64)
                left = len(children[at].token) - len(valid)
                mass = float(np.exp(logit - read.norm[at]).sum())
                tops[at] = _Top(child[valid], logit[valid], left, float(logit.min()), mass)
        return tops

    @staticmethod
    def _ahead(children: Children, top: _Top | None) -> _Ahead:
        token, low, high = children.token, children.start[:-1], children.start[1:]
        if top is not None:
            token, low, high = token[top.child], low[top.child], high[top.child]
        return _Ahead(token, low, high, int(children.start[0]), top)

    def _options(self, span: Span, part: _Ahead, norm: float, logs: Iterator[Floats]) -> Options:
        """Of one prefix, whose log-probabilities come next: those of children not known, then of END sets."""
        log = next(logs) if part.top is None else np.minimum(part.top.logit - norm, 0.0)
        closing = np.empty(0)
        ids = closing
        if span.low < part.closed:
            pieces = [next(logs) for _ in range(span.low, part.closed)]
            ids = np.concatenate(pieces)
            bounds = np.cumsum([0, *map(len, pieces)])
            closing = np.minimum(segment_logsumexp(ids, bounds), 0.0)
        missed = 0.0
        if part.top is not None:
            # A missed child is neither in the top nor in an END set: what such sets have beyond it counts.
            mass = part.top.mass + float(np.exp(ids[ids < part.top.least - norm]).sum())
            missed = min(max(0.0, 1 - mass) + NORM_ERROR, part.top.left * math.exp(part.top.least - norm))
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

    def _best(self, logit: Logits, at: Sequence[int], children: Sequence[Children], top: int) -> Best:
        """The most probable tokens in rows `at` of the logits, each row with the children it may be of."""
        rows = np.asarray(logit)
        token = np.stack([most(rows[row], top) for row in at])
        child = np.empty_like(token)
        for place, found in enumerate(children):
            where = found.token.searchsorted(token[place])
            child[place] = np.where(found.token.take(where, mode="clip") == token[place], where, -1)
        return Best(token, rows[np.array(at)[:, None], token], child)


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
