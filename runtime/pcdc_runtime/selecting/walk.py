"""The prefixes that a decoding method walked to: each runs once, and all together say what P_L is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pcdc_runtime.errors import ScoreError
from pcdc_runtime.indexed.rows import Rows, Span

from .beliefs import Beliefs
from .options import Floats, Options, Verifier
from .outcome import Found, Outcome, Sampling, at_most

READ = 64
"""How many nodes have their logits in memory at a time."""


@dataclass(frozen=True, eq=False)
class Prefix:
    """A partial label that the model was asked about; `log_prob` is the log of its P_L."""

    span: Span
    node: int
    log_prob: float
    options: Options

    @cached_property
    def log_options(self) -> Floats:
        """The log-probability of every way to go on: the closings, then the children."""
        return np.concatenate([self.options.close, self.options.log_prob])

    @cached_property
    def log_legal(self) -> float:
        """The log of the legal mass, not above 0."""
        return min(0.0, float(np.logaddexp.reduce(self.log_options)))

    @cached_property
    def _cumulative(self) -> Floats:
        return np.exp(self.log_options - self.log_legal).cumsum()

    def pick(self, uniform: float) -> int:
        """The way to go on at a place of 0 to 1, each as wide as its share of the legal mass.

        Raises ScoreError where none has a probability.
        """
        if self.log_legal == -math.inf:
            low, high, depth = self.span
            raise ScoreError(
                f"prefix of {depth} tokens at rows {low} to {high - 1} of the index",
                "was drawn, but whatever may follow it has probability zero",
                "a prefix that was drawn must have a way to go on",
                "check the model's files, or run it in float32",
            )
        whole = self._cumulative[-1]
        place = min(uniform * whole, np.nextafter(whole, 0))
        return int(np.searchsorted(self._cumulative, place, side="right"))


class Walk:
    """A walk down the rows of an index, many prefixes at a time."""

    def __init__(self, rows: Rows, beliefs: Beliefs, verifier: Verifier) -> None:
        self.rows = rows
        self._beliefs = beliefs
        self._verifier = verifier
        self._opened: dict[Span, Prefix] = {}
        self._taken: dict[Span, list[int]] = {}
        self._open([rows.whole], [0], [0.0])

    @property
    def root(self) -> Prefix:
        """The empty prefix."""
        return self._opened[self.rows.whole]

    def below(self, steps: Sequence[tuple[Prefix, int]]) -> list[Prefix]:
        """The prefixes that are a child further, in the order of `steps`; new ones run in one pass."""
        spans = [_child(prefix, child) for prefix, child in steps]
        new = {span: step for span, step in zip(spans, steps, strict=True) if span not in self._opened}
        if new:
            tokens = [int(prefix.options.token[child]) for prefix, child in new.values()]
            nodes = self._beliefs.grow([prefix.node for prefix, _ in new.values()], tokens)
            chances = [prefix.log_prob + float(prefix.options.log_prob[c]) for prefix, c in new.values()]
            self._open(list(new), nodes, chances)
            for prefix, child in new.values():
                self._taken[prefix.span].append(child)
        return [self._opened[span] for span in spans]

    def _open(self, spans: list[Span], nodes: list[int], chances: list[float]) -> None:
        for first in range(0, len(spans), READ):
            part = slice(first, first + READ)
            read = self._beliefs.read(nodes[part])
            found = self._verifier.options(spans[part], read)
            for span, node, chance, options in zip(
                spans[part], nodes[part], chances[part], found, strict=True
            ):
                prefix = Prefix(span, node, chance, options)
                self._opened[span], self._taken[span] = prefix, []

    def closed(self) -> dict[int, float]:
        """The log of what is known of P_L of entries: all forms that end at a prefix which was opened."""
        known: dict[int, float] = {}
        for prefix in self._opened.values():
            options = prefix.options
            for entry, close in zip(options.entry.tolist(), options.close.tolist(), strict=True):
                form = prefix.log_prob + close
                known[entry] = float(np.logaddexp(known.get(entry, -math.inf), form))
        return known

    def outcome(self, entries: Sequence[int], sampling: Sampling | None = None) -> Outcome:
        """The given answers, between bounds that hold whatever the model says below unopened prefixes."""
        closed = self.closed()
        # In logs: at a low temperature whole labels lie far below the smallest float.
        unopened, missed = [-math.inf], [-math.inf]
        for prefix in self._opened.values():
            left = np.delete(prefix.options.log_prob, self._taken[prefix.span])
            unopened.append(prefix.log_prob + _sum(left))
            if prefix.options.missed > 0:
                missed.append(prefix.log_prob + math.log(prefix.options.missed))
        log_rest = _sum([*unopened, *missed])

        def most(low: float) -> float:
            return min(0.0, float(np.logaddexp(low, log_rest)))

        found = tuple(Found(entry, closed[entry], most(closed[entry])) for entry in entries)
        others = max((low for entry, low in closed.items() if entry not in entries), default=-math.inf)
        everything = len(found) == self.rows.entries
        known = _sum([-math.inf, *closed.values()])
        return Outcome(
            found=found,
            certified=False,
            bound=-math.inf if everything else most(others),
            log_mass=(min(0.0, known), most(known)),
            missed=at_most(_sum(missed)),
            sampling=sampling,
        )


def _child(prefix: Prefix, child: int) -> Span:
    options = prefix.options
    return Span(int(options.low[child]), int(options.high[child]), prefix.span.depth + 1)


def _sum(logs: Sequence[float] | Floats) -> float:
    """The log of the sum of what these are logs of."""
    return float(np.logaddexp.reduce(np.asarray(logs), initial=-math.inf))
