"""A checked definition of an index as a value: one question, and a catalog of any length that answers it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pcdc.diagnostics import Location
from pcdc.schema import CatalogUse, Ignored

MIN_ENTRIES = 2
MAX_ENTRIES = 10_000_000


@dataclass(frozen=True)
class Entries:
    """The rows of a catalog as columns, in the order of their source.

    `ids` are distinct; where the labels are their own ids they are the same object. `locate` gives the place
    of a row's label, by its number from 0; it may read the source again, and gives None where that changed.
    `left_out` are those answers of examples that only rows have which `where` does not want.
    """

    labels: Sequence[str]
    ids: Sequence[str]
    locate: Callable[[int], Location | None] = dataclasses.field(compare=False, repr=False)
    left_out: frozenset[str] = dataclasses.field(default=frozenset(), compare=False)

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class IndexDefinition:
    """One question whose answers are a catalog's labels.

    `examples` are queries with the label that is right for each. `location` is the place of the field's name,
    `asked` that of its description. What is ignored and where the entries came from changes nothing compiled.
    """

    name: str
    field: str
    question: str
    instructions: str
    examples: tuple[tuple[str, str], ...]
    temperature: float
    entries: Entries
    catalogs: tuple[CatalogUse, ...] = dataclasses.field(default=(), compare=False)
    ignored: tuple[Ignored, ...] = dataclasses.field(default=(), compare=False)
    location: Location | None = dataclasses.field(default=None, compare=False)
    asked: Location | None = dataclasses.field(default=None, compare=False)

    @property
    def from_file(self) -> bool:
        """Whether a definition file says all this, and not a command line."""
        return self.location is not None
