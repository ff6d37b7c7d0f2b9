"""What was measured on labelled data, as arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .split import Floats, Ints


@dataclass(frozen=True, eq=False)
class FieldTable:
    """What was measured of one field, one entry per text that has a label for it.

    `row` is the index of the text in the data, `expected` the index of the right choice. Keyed by rule:
    `log_scores` [n, choices] raw whole-choice log scores in nats, `legal_mass` [n], `prior` [choices] the
    log of the mean probability over content-free texts; no prior, no entry. `written` [n] is the choice that
    the model wrote itself, -1 where it wrote none; None without a baseline. `tokens` is per choice.
    """

    name: str
    type: str
    labels: tuple[str, ...]
    temperature: float
    row: Ints
    expected: Ints
    log_scores: Mapping[str, Floats]
    legal_mass: Mapping[str, Floats]
    prior: Mapping[str, Floats]
    written: Ints | None
    tokens: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Measured:
    """Everything measured in one run: provenance, a table per field, and times per text in milliseconds.

    `group` [texts] numbers the distinct texts: equal texts have equal numbers, and never part in a split.
    """

    schema: str
    model: str
    artifact: str
    scoring: str
    data: str
    weights: str
    texts: int
    group: Ints
    tables: tuple[FieldTable, ...]
    prefill_ms: Floats
    tree_ms: Floats
    context_tokens: Ints
    written_ms: Floats | None
