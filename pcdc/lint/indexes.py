"""Rules about indexes: how they ask, and what rules about schemas say of a definition with one field."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
from pcdc_runtime.indexed.index import Index

from pcdc.cache import Decision
from pcdc.diagnostics import Diagnostic, Location, finding, quoted
from pcdc.indexing.definition import IndexDefinition
from pcdc.indexing.prompting import render_index_prompt
from pcdc.prompt import Target
from pcdc.schema import Field, Schema

from . import questions

_EXAMPLE = '`"examples": [{"context": "a query", "answers": {%s: "its label"}}]` under `x-pcdc`'


@dataclass(frozen=True)
class Indexed:
    """A definition that was read from `path` and is an index for one model."""

    noun: ClassVar[str] = "index"
    path: Path
    definition: IndexDefinition
    target: Target
    index: Index

    @property
    def place(self) -> Location:
        return Location(str(self.path), 1, 1)

    @property
    def prompt_tokens(self) -> int:
        return len(self.index.prompt.head) + len(self.index.prompt.tail)

    @cached_property
    def example_tokens(self) -> int:
        if not self.definition.examples:
            return 0
        bare = render_index_prompt(replace(self.definition, examples=()), self.target).cut
        return len(self.index.prompt.head) - len(bare.head)

    @cached_property
    def deepest(self) -> int:
        return int(np.diff(self.index.rows.offset).max())


@dataclass(frozen=True)
class BuiltIndex:
    """The index that `pcdc build` left of a definition for one model, beside what it would be now."""

    now: Indexed
    artifact: Path
    decision: Decision


def no_question(definition: IndexDefinition) -> Iterator[Diagnostic]:
    """An index that does not say what its labels answer."""
    if not (_asks(definition) or definition.examples):
        yield finding(
            "PCDC524",
            definition.asked or definition.location,
            f"field {quoted(definition.field)}",
            "has no question: no description, no instructions and no worked examples",
            "a model that is not told what is wanted gives the labels next to no legal mass",
            "ask in the field's description what a label is to be found for, or with `pcdc index --question`",
        )


def no_examples(definition: IndexDefinition) -> Iterator[Diagnostic]:
    """An index that asks and shows no worked example."""
    if _asks(definition) and not definition.examples:
        yield finding(
            "PCDC525",
            definition.location,
            f"field {quoted(definition.field)}",
            "has no worked examples",
            "the prompt lists no labels, so that only examples show how they are written",
            f"add two or three: {_EXAMPLE % quoted(definition.field)}",
        )


def _asks(definition: IndexDefinition) -> bool:
    return bool(definition.question.strip() or definition.instructions.strip())


def asks_nothing(definition: IndexDefinition) -> Iterator[Diagnostic]:
    """A description without a question."""
    return questions.asks_nothing(_as_schema(definition))


def looks_dependent(definition: IndexDefinition) -> Iterator[Diagnostic]:
    """A description that refers to another question."""
    return questions.looks_dependent(_as_schema(definition))


def _as_schema(definition: IndexDefinition) -> Schema:
    field = Field(definition.field, "enum", definition.question, (), definition.location, definition.asked)
    return Schema(definition.name, (field,), definition.instructions)
