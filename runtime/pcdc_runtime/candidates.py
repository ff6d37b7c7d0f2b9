"""A field's candidates out of the artifact's columns, made when one is first looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import overload

import numpy as np

from .artifact import Candidate, Forms, Nodes, Value


class Candidates(Sequence[Candidate]):
    """Equal to a tuple of the same candidates.

    An artifact can have thousands, and few of who loads one look at them all. `first` is the number of the
    field's first choice over all fields. What is given must be checked already: nothing fails later.
    """

    def __init__(
        self,
        labels: Sequence[str],
        values: Sequence[Value],
        descriptions: Sequence[str],
        first: int,
        suffix: int,
        nodes: Nodes,
        forms: Forms,
    ) -> None:
        self._columns = labels, values, descriptions
        self._first = first
        self._suffix = suffix
        self._nodes = nodes
        self._forms = forms

    @cached_property
    def _rows(self) -> tuple[Candidate, ...]:
        labels, values, descriptions = self._columns
        numbers = np.arange(self._first, self._first + len(labels) + 1, dtype=np.int32)
        bounds = np.searchsorted(self._forms.choice, numbers)
        ids = [self._nodes.path(self._suffix, end) for end in self._forms.node[bounds[:-1]].tolist()]
        single = [len(path) == 1 for path in ids]
        return tuple(map(Candidate, labels, values, descriptions, ids, single, pairwise(bounds.tolist())))

    def __len__(self) -> int:
        return len(self._columns[0])

    @overload
    def __getitem__(self, index: int) -> Candidate: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Candidate, ...]: ...
    def __getitem__(self, index: int | slice) -> Candidate | tuple[Candidate, ...]:
        return self._rows[index]

    def __iter__(self) -> Iterator[Candidate]:
        return iter(self._rows)

    def __eq__(self, other: object) -> bool:
        return self._rows == tuple(other) if isinstance(other, tuple | Candidates) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._rows)

    def __repr__(self) -> str:
        return repr(self._rows)
