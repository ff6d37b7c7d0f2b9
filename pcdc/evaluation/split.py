"""Which texts a calibration is fitted on, and which judge it: equal texts never part."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.integer[Any]]
Bools: TypeAlias = NDArray[np.bool_]

FOLDS = 5


def held_in(group: Ints, share: float, seed: int, labels: Sequence[tuple[Ints, Ints]] = ()) -> Bools:
    """The texts to fit on: a seeded draw of `share` of the distinct texts, none of them when share is 0.

    `labels` are each field's texts and their choices. Every choice is spread over both parts in the same
    proportion, as far as whole texts allow: the rarest first, each of its texts goes where more of it are
    still wanted (iterative stratification, Sechidis et al. 2011).
    """
    distinct, index = np.unique(group, return_inverse=True)
    order = np.random.default_rng([seed, 0]).permutation(len(distinct)).tolist()
    has = defaultdict[int, set[tuple[int, int]]](set)
    for field, (texts, choices) in enumerate(labels):
        for text, choice in zip(index[texts].tolist(), choices.tolist(), strict=True):
            has[text].add((field, choice))
    left = Counter(label for found in has.values() for label in found)
    wanted = {label: [share * count, (1 - share) * count] for label, count in left.items()}
    inside = round(share * len(distinct))
    room = [inside, len(distinct) - inside]
    chosen = np.zeros(len(distinct), dtype=bool)
    waiting = list(order)
    while waiting:
        rarest = min((label for label in left if left[label]), key=lambda one: (left[one], one), default=None)
        taken = [text for text in waiting if rarest is None or rarest in has[text]]
        for text in taken:
            part = _part(wanted[rarest] if rarest else room, room)
            chosen[text] = part == 0
            room[part] -= 1
            for label in has[text]:
                wanted[label][part] -= 1
                left[label] -= 1
        placed = set(taken)
        waiting = [text for text in waiting if text not in placed]
    return chosen[index]


def _part(wanted: Sequence[float], room: Sequence[int]) -> int:
    """The part that wants a text most, and among equals the one with more room; never one without room."""
    if not all(room):
        return 0 if room[0] else 1
    return 0 if (wanted[0], room[0]) >= (wanted[1], room[1]) else 1


def folds(group: Ints, seed: int) -> Ints:
    """The fold of each row, 0 to FOLDS - 1, by distinct text; fewer folds where there are fewer texts."""
    distinct, index = np.unique(group, return_inverse=True)
    order = np.random.default_rng([seed, 1]).permutation(len(distinct))
    return np.asarray(order[index] % FOLDS)
