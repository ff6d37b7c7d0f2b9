"""Small random catalogs with what makes searching hard, and a plain verifier."""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
from pcdc_runtime.indexed.rows import Rows, Span
from pcdc_runtime.selecting.beliefs import Read
from pcdc_runtime.selecting.options import Options
from tables import Form, TableBeliefs, forms_of, make_rows, seeded_table

WIDTH = 9
QUOTE, OTHER = (WIDTH - 1,), (WIDTH - 2, WIDTH - 3)
"""Tokens that close a label; no path has them."""


def seeded_rows(seed: int, entries: int = 12, longest: int = 4) -> Rows:
    """Labels that are prefixes of one another, and entries of up to three forms that part anywhere."""
    random = np.random.default_rng(seed)
    letters = int(random.integers(1, WIDTH - 3))
    taken: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
    forms: list[Form] = []
    for entry in range(entries):
        first = _path(random, letters, longest)
        for number in range(1 if random.random() < 0.5 else int(random.integers(2, 4))):
            path = first if number == 0 else _beside(random, first, letters, longest)
            end = QUOTE if random.random() < 0.7 else OTHER
            while (path, end) in taken:
                path = (*path, int(random.integers(letters)))
            taken.add((path, end))
            forms.append((entry, path, end))
    return make_rows(forms)


def _path(random: np.random.Generator, letters: int, longest: int) -> tuple[int, ...]:
    return tuple(random.integers(letters, size=int(random.integers(0, longest + 1))).tolist())


def _beside(
    random: np.random.Generator, path: tuple[int, ...], letters: int, longest: int
) -> tuple[int, ...]:
    """A path that shares some of another one's beginning."""
    return path[: int(random.integers(0, len(path) + 1))] + _path(random, letters, longest // 2)


def permuted(rows: Rows, seed: int) -> tuple[Rows, list[int]]:
    """The same catalog in another order, and the new number of each entry."""
    renamed = np.random.default_rng(seed).permutation(rows.entries).tolist()
    return make_rows((renamed[entry], path, end) for entry, path, end in forms_of(rows)), renamed


def sparse_table(seed: int, width: int = WIDTH) -> TableBeliefs:
    """A random model that gives many tokens no probability at all, and many the same."""

    @cache
    def distribution(path: tuple[int, ...]) -> list[float]:
        random = np.random.default_rng([seed, *path, len(path)])
        weights = random.integers(0, 3, width) * (random.random(width) < 0.7)
        weights[0] += weights.sum() == 0
        return [float(weight) for weight in weights / weights.sum()]

    return TableBeliefs(width, distribution)


def coarse_table(width: int = WIDTH) -> TableBeliefs:
    """A model that finds every token as probable as any other, always: ties everywhere."""
    return TableBeliefs(width, lambda path: [1 / width] * width)


def table(seed: int) -> TableBeliefs:
    """One of several kinds."""
    kinds = [
        lambda: seeded_table(seed, WIDTH),
        lambda: seeded_table(seed, WIDTH, sharpness=5.0),
        lambda: seeded_table(seed, WIDTH, temperature=0.5),
        lambda: seeded_table(seed, WIDTH, temperature=3.0),
        lambda: sparse_table(seed),
        coarse_table,
    ]
    return kinds[seed % len(kinds)]()


class PlainVerifier:
    """Reads the forms one by one. With a `top` it looks only at as many of the most probable children."""

    def __init__(self, rows: Rows, top: int | None = None) -> None:
        self._forms = forms_of(rows)
        self._top = top

    def options(self, spans: Sequence[Span], read: Read) -> list[Options]:
        return [self._options(span, read, at) for at, span in enumerate(spans)]

    def _options(self, span: Span, read: Read, at: int) -> Options:
        log = np.asarray(read.logit)[at].astype(np.float64) - read.norm[at]
        below: dict[int, list[int]] = {}
        closing: list[tuple[int, float]] = []
        for row in range(span.low, span.high):
            entry, path, end = self._forms[row]
            if len(path) == span.depth:
                closing.append((entry, float(np.logaddexp.reduce([log[token] for token in end]))))
            else:
                below.setdefault(path[span.depth], []).append(row)
        seen = sorted(sorted(below, key=lambda token: (-log[token], token))[: self._top])
        return Options(
            token=np.array(seen, dtype=np.int32),
            low=np.array([min(below[token]) for token in seen], dtype=np.int32),
            high=np.array([max(below[token]) + 1 for token in seen], dtype=np.int32),
            log_prob=np.array([log[token] for token in seen], dtype=np.float64),
            entry=np.array([entry for entry, _ in closing], dtype=np.int32),
            close=np.array([close for _, close in closing], dtype=np.float64),
            missed=math.fsum(math.exp(log[token]) for token in below if token not in seen),
        )
