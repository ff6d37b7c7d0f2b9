"""Freshness of indexes: what an index was made from, whether that still holds, and what a rebuild changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from pcdc_runtime.errors import ArtifactError
from pcdc_runtime.indexed.index import Index, Labels, Texts
from pcdc_runtime.indexed.layout import INDEX_VERSION

from pcdc import __version__
from pcdc.cache import Decision, Terms, decide_by, sha256_of

from .definition import Entries, IndexDefinition
from .prompting import INDEX_PROMPT_VERSION
from .reuse import FORMS_INPUT

INDEX = Terms(
    "index",
    "definition",
    {"definition": "the definition changed", "catalog": "the catalog changed"},
    derived=frozenset({FORMS_INPUT}),
)


def index_record(
    definition: IndexDefinition, catalog: str, fingerprint: str, template_digest: str
) -> Mapping[str, str]:
    """Everything that decides an index's bytes, each input with its own digest or version.

    `catalog` is the digest of the entries. `key` is the sha256 of the canonical msgpack of the others.
    """
    inputs = {
        "definition": sha256_of(_question(definition)),
        "catalog": catalog,
        "tokenizer": fingerprint,
        "template": template_digest,
        "prompt": INDEX_PROMPT_VERSION,
        "format": str(INDEX_VERSION),
        "pcdc": __version__,
    }
    return inputs | {"key": sha256_of(sorted(inputs.items()))}


def _question(definition: IndexDefinition) -> list[object]:
    return [
        definition.name,
        definition.field,
        definition.question,
        definition.instructions,
        json.dumps(definition.temperature),
        definition.examples,
    ]


def catalog_digest(entries: Entries) -> str:
    """The sha256 of labels and ids in their order, as hexadecimal text."""
    digest = hashlib.sha256()
    for texts in (entries.labels, () if entries.ids is entries.labels else entries.ids):
        column = Texts.of(texts)
        digest.update(column.offset.data)
        digest.update(column.data.data)
    return digest.hexdigest()


def decide_index(
    old: Index | ArtifactError | None,
    definition: IndexDefinition,
    model: str,
    record: Mapping[str, str],
    *,
    force: bool = False,
) -> Decision:
    """Compare the index on disk with what it would be made from now.

    `old` is None where there is none, and the error where it cannot be trusted.
    """
    changes = partial(question_changes, definition=definition)
    return decide_by(INDEX, old, (definition.name, model), record, changes, force=force)


def question_changes(old: Index, definition: IndexDefinition) -> tuple[str, ...]:
    """What differs between the question inside an index and a definition's, one line each."""
    lines = []
    if old.field != definition.field:
        lines.append(f"field renamed from {old.field} to {definition.field}")
    if old.question != definition.question:
        lines.append("question changed")
    if old.instructions != definition.instructions:
        lines.append("instructions changed")
    if old.temperature != definition.temperature:
        lines.append(f"temperature changed from {old.temperature:g} to {definition.temperature:g}")
    before, after = len(old.examples), len(definition.examples)
    if before != after:
        lines.append(f"examples changed from {before} to {after}")
    elif old.examples != definition.examples:
        lines.append("examples changed")
    return tuple(lines)


def dropped(old: Index, definition: IndexDefinition) -> tuple[str, ...]:
    """What an index has to say of its question where a definition says nothing, in words."""
    lost = []
    if old.question.strip() and not definition.question.strip():
        lost.append("a question")
    if old.instructions.strip() and not definition.instructions.strip():
        lost.append("instructions")
    if old.examples and not definition.examples:
        count = len(old.examples)
        lost.append(f"{count} example{'' if count == 1 else 's'}")
    return tuple(lost)


def entry_changes(old: Labels, new: Labels) -> tuple[str, ...]:
    """How many entries came and went, in one line at most."""
    before, after = _marks(old), _marks(new)
    added, removed = _missing(after, before), _missing(before, after)
    if added or removed:
        return (f"entries: {added} added, {removed} removed",)
    return () if np.array_equal(before, after) else ("entries reordered",)


def _marks(labels: Labels) -> NDArray[np.int64]:
    """One number for each label with its id; that two share one by chance changes a message."""
    marks = _hashes(labels.texts)
    return marks if labels.ids is None else marks * 31 + _hashes(labels.ids)


def _hashes(texts: Texts) -> NDArray[np.int64]:
    data, offset = texts.data.tobytes(), texts.offset.tolist()
    return np.fromiter((hash(data[a:b]) for a, b in pairwise(offset)), dtype=np.int64, count=len(texts))


def _missing(some: NDArray[np.int64], others: NDArray[np.int64]) -> int:
    return int(np.count_nonzero(~np.isin(some, others)))
