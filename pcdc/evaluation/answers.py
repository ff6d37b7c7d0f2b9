"""What stands for a field's choices in data: their JSON values in JSON lines, their labels in a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeAlias

from pcdc_runtime.artifact import CompiledField, Value

from pcdc.diagnostics import quoted
from pcdc.keywords import suggestion
from pcdc.source import Scalar, kind_of

Label: TypeAlias = "int | None"

_NAMED = 8
_FOR_NULL = frozenset(("null", "none", "nan", "n/a"))
"""What other programs write where there is no value."""


class Wrong(Exception):
    """Why a value is none of a field's answers."""

    def __init__(self, fact: str, help: str) -> None:
        super().__init__(fact)
        self.fact, self.help = fact, help


@dataclass(frozen=True)
class Answers:
    """A field's choices by what stands for them in data: their JSON value, and their label."""

    name: str
    labels: tuple[str, ...]
    values: Mapping[tuple[str, Value], int] = field(repr=False)

    @classmethod
    def of(cls, compiled: CompiledField) -> Answers:
        """Those of one field."""
        values = {_keyed(c.value): i for i, c in enumerate(compiled.candidates)}
        return cls(compiled.name, tuple(c.label for c in compiled.candidates), values)

    @property
    def in_json(self) -> str:
        """The answers as JSON lines spell them."""
        return self._listed({"text": quoted, "null": lambda label: "null"})

    @property
    def in_cells(self) -> str:
        """The answers as the cells of a table spell them."""
        return self._listed({"text": quoted, "null": quoted})

    def _listed(self, spell: Mapping[str, Callable[[str], str]]) -> str:
        shown = ", ".join(
            spell.get(kind, str)(self.labels[i]) for (kind, _), i in islice(self.values.items(), _NAMED)
        )
        more = len(self.values) - _NAMED
        return f"its answers are {shown}" + (f" and {more} more" if more > 0 else "")

    def of_value(self, value: Value) -> Label:
        """The choice of a JSON value; null where null is no choice is no label. Raises Wrong."""
        found = self.values.get(_keyed(value))
        if found is not None or value is None:
            return found
        if not isinstance(value, str):
            label = str(value).lower() if isinstance(value, bool) else str(value)
            help = f"write it as text: {quoted(label)}" if label in self.labels else self._booleans()
            raise Wrong(f"is {label}, {kind_of(Scalar(0, value))}", help)
        if value in self.labels:
            position = self.labels.index(value)
            kind, right = next(key for key, index in self.values.items() if index == position)
            word = "null" if kind == "null" else value
            raise Wrong(
                f"is the text {quoted(value)}",
                f"the answer is {kind_of(Scalar(0, right))}: write `{word}` without quotes",
            )
        texts = (str(text) for kind, text in self.values if kind == "text")
        null = "the answer is null: write" if ("null", None) in self.values else "for no label write"
        raise Wrong(
            f"is the text {quoted(value)}",
            suggestion(value, frozenset(texts))
            or (f"{null} `null` without quotes" if value.strip().lower() in _FOR_NULL else "")
            or self._booleans(" without quotes"),
        )

    def of_cell(self, cell: str) -> Label:
        """The choice of a label, a boolean's in any case; an empty cell is no label. Raises Wrong."""
        if not cell:
            return None
        if cell in self.labels:
            return self.labels.index(cell)
        boolean = self.values.get(("boolean", cell.lower() == "true"))
        if cell.lower() in ("true", "false") and boolean is not None:
            return boolean
        null = self.values.get(("null", None))
        empty = (
            "for no label leave the cell empty"
            if null is None
            else f"the answer is null: write `{self.labels[null]}`"
        )
        raise Wrong(
            f"is {quoted(cell)}",
            suggestion(cell, frozenset(self.labels))
            or (empty if cell.strip().lower() in _FOR_NULL else "")
            or self._booleans(),
        )

    def _booleans(self, how: str = "") -> str:
        """How to write a field's booleans, "" where it has none."""
        words = [f"`{self.labels[i]}`" for (kind, _), i in self.values.items() if kind == "boolean"]
        return f"write {' or '.join(words)}{how}" if words else ""


def _keyed(value: Value) -> tuple[str, Value]:
    # True is 1 to Python, and not to JSON.
    if value is None:
        return "null", None
    kind = "boolean" if isinstance(value, bool) else "text" if isinstance(value, str) else "number"
    return kind, value
