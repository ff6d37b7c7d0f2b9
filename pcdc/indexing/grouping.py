"""Labels that a model cannot tell apart are one entry."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pcdc_runtime.artifact import Ints

from .lines import Places

SHOWN_GROUPS = 5
SHOWN_LABELS = 3


@dataclass(frozen=True)
class Grouped:
    """How many entries have several labels, and the first labels of the first few, by their numbers."""

    groups: int
    examples: tuple[tuple[int, ...], ...]


def entries_of(count: int, a: Places | Ints, b: Places | Ints) -> tuple[Ints, Grouped]:
    """The entry of each of `count` labels, where label `a[n]` has a form that `b[n]` has too.

    Labels that are linked, by others too, are one entry; entries are numbered by the first label of each.
    """
    first = np.arange(count)
    while not np.array_equal(first[a], first[b]):
        lower = np.minimum(first[a], first[b])
        for side in (a, b):
            # What leads to a label leads on to the lowest that it is linked to.
            np.minimum.at(first, first[side], lower)
        first = first[first]
    own = first == np.arange(count)
    entry = (np.cumsum(own) - 1)[first].astype(np.int32)
    return entry, _grouped(entry, first[~own])


def _grouped(entry: Ints, led: Places) -> Grouped:
    leaders = np.unique(led)
    examples = []
    for leader in leaders[:SHOWN_GROUPS].tolist():
        examples.append(tuple(np.flatnonzero(entry == entry[leader])[:SHOWN_LABELS].tolist()))
    return Grouped(len(leaders), tuple(examples))
