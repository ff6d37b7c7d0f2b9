"""Which texts a calibration is fitted on, and which judge it: equal texts never part."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.integer[Any]]
Bools: TypeAlias = NDArray[np.bool_]

FOLDS = 5


def held_in(group: Ints, share: float, seed: int) -> Bools:
    """The texts to fit on: a seeded draw of `share` of the distinct texts, none of them when share is 0."""
    distinct, index = np.unique(group, return_inverse=True)
    order = np.random.default_rng([seed, 0]).permutation(len(distinct))
    return (order < round(share * len(distinct)))[index]


def folds(group: Ints, seed: int) -> Ints:
    """The fold of each row, 0 to FOLDS - 1, by distinct text; fewer folds where there are fewer texts."""
    distinct, index = np.unique(group, return_inverse=True)
    order = np.random.default_rng([seed, 1]).permutation(len(distinct))
    return np.asarray(order[index] % FOLDS)
