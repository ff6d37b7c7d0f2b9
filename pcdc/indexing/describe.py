"""An index as plain data for people and scripts: how much of everything, and which labels are one answer."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from pcdc_runtime.indexed.index import Index
from pcdc_runtime.indexed.layout import file_size

TOKEN_BYTES = 4


@dataclass(frozen=True)
class LabelView:
    """One row of the catalog."""

    id: str
    label: str


@dataclass(frozen=True)
class IndexView:
    """A whole index; `groups` are the entries that are more than one label."""

    name: str
    model: str
    digest: str
    field: str
    question: str
    instructions: str
    examples: int
    temperature: float
    entries: int
    labels: int
    has_ids: bool
    rows: int
    tokens: int
    longest_row: int
    end_sets: int
    file_bytes: int
    raw_id_bytes: int
    head_tokens: int
    tail_tokens: int
    inputs: dict[str, str]
    groups: tuple[tuple[LabelView, ...], ...]
    prompt: str

    def to_dict(self) -> dict[str, Any]:
        """Only JSON types."""
        return asdict(self)


def describe_index(index: Index) -> IndexView:
    """Waits until an opened index is checked. Raises IndexFileError where it does not hold."""
    rows, labels = index.rows, index.labels
    return IndexView(
        name=index.name,
        model=index.model,
        digest=index.digest,
        field=index.field,
        question=index.question,
        instructions=index.instructions,
        examples=len(index.examples),
        temperature=index.temperature,
        entries=labels.entries,
        labels=len(labels),
        has_ids=labels.ids is not None,
        rows=len(rows),
        tokens=len(rows.token),
        longest_row=int(np.diff(rows.offset).max()),
        end_sets=len(rows.ends),
        file_bytes=file_size(index),
        raw_id_bytes=TOKEN_BYTES * len(rows.token),
        head_tokens=len(index.prompt.head),
        tail_tokens=len(index.prompt.tail),
        inputs=dict(index.inputs),
        groups=tuple(
            tuple(LabelView(labels.id(n), labels.label(n)) for n in labels.of_entry(entry).tolist())
            for entry in labels.grouped.tolist()
        ),
        prompt=index.prompt_text,
    )
