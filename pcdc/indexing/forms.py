"""A catalog's labels as the sorted rows of an index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from pcdc_runtime.artifact import EndSets, Ints
from pcdc_runtime.indexed.index import Index, narrowed
from pcdc_runtime.indexed.rows import Rows

from pcdc.diagnostics import Diagnostic, finding
from pcdc.prompt import Prompt, Target, UnstableBoundaryError
from pcdc.tokenization import ANCHOR_PROBES, line_opening
from pcdc.trie import stored_sets
from pcdc.vocabulary import shared_beginning

from .alike import same_tokens
from .definition import IndexDefinition
from .grouping import Grouped, entries_of
from .labels import Forms, joined
from .lines import spans
from .reading import ClosedForms, Progress, Teller, read_labels
from .reuse import forms_digest, kept_of
from .sorting import lexicographic

_BLOCK = 1 << 16


@dataclass(frozen=True, eq=False)
class TokenizedEntries:
    """A catalog in one model's tokens.

    `opening` are the ids that every line begins with; the rows go on after them. `entry[n]` is the entry of
    label `n`; entries are numbered by their first labels. The forms of `reused` labels came from an earlier
    index, `tokenized` ones were encoded.
    """

    opening: tuple[int, ...]
    rows: Rows
    entry: Ints
    grouped: Grouped
    reused: int
    tokenized: int


def tokenize_entries(
    definition: IndexDefinition,
    prompt: Prompt,
    target: Target,
    old: Index | None = None,
    progress: Progress | None = None,
) -> tuple[TokenizedEntries | None, list[Diagnostic]]:
    """Turn every label of a catalog into surface forms and sort them, or say where that is not exact.

    Labels that `old` has under the same `forms_digest` are not encoded again; the outcome is the same.
    A warning tells of labels that are one entry.
    """
    labels, tell = definition.entries.labels, Teller(progress)
    kept = kept_of(old, forms_digest(prompt, target, definition.field), prompt)
    known = kept.numbers(labels) if kept else np.full(len(labels), -1)
    reused = np.flatnonzero(known >= 0).astype(np.int32)
    try:
        probes = prompt.encode_lines([line_opening(definition.field) + probe for probe in ANCHOR_PROBES])
        fresh = np.flatnonzero(known < 0).astype(np.int32)
        found, problems = read_labels(definition, prompt, target, fresh, tell)
    except UnstableBoundaryError as error:
        return None, [finding("PCDC301", None, f"model {target.model}", f"merges the prompt with {error}")]
    if found is None:
        return None, problems
    sources = [found, *([ClosedForms(kept.forms(reused, known[reused]), kept.ends)] if kept else [])]
    forms, ends = _numbered(sources)
    tell.at(0, len(labels), "sorting")
    order, repeated = lexicographic(forms)
    owner = forms.label[order]
    again = np.flatnonzero(repeated)
    entry, grouped = entries_of(len(labels), owner[again - 1], owner[again])
    order = order[~repeated]
    ends_of_order = [tuple(forms.row(int(form)).tolist()) for form in (order[0], order[-1])]
    opening = shared_beginning([*ends_of_order, *map(tuple, probes)])
    rows = _rows(forms, order, len(opening), entry, ends)
    tell.at(len(labels), len(labels), "sorting")
    tokenized = TokenizedEntries(opening, rows, entry, grouped, len(reused), len(fresh))
    return tokenized, same_tokens(definition, grouped)


def _numbered(sources: Sequence[ClosedForms]) -> tuple[Forms, EndSets]:
    """All forms, closed by the numbers of END sets in order of content, of those that are used."""
    used = [np.unique(source.forms.closing).tolist() for source in sources]
    contents = {source.ends[k] for source, those in zip(sources, used, strict=True) for k in those}
    number, ends = stored_sets(contents)
    parts = []
    for source in sources:
        numbers = np.array([number.get(content, -1) for content in source.ends], dtype=np.int32)
        parts.append(replace(source.forms, closing=numbers[source.forms.closing]))
    return joined(parts), ends


def _rows(forms: Forms, order: np.ndarray, opened: int, entry: Ints, ends: EndSets) -> Rows:
    """The forms in order, without the ids that all begin with."""
    size = np.diff(forms.first)[order] - opened
    offset = np.zeros(len(order) + 1, dtype=np.int64)
    np.cumsum(size, out=offset[1:])
    token = np.empty(offset[-1], dtype=np.int32)
    # In blocks: the places of all tokens at once would take four times the memory of the tokens.
    for start in range(0, len(order), _BLOCK):
        part = slice(start, start + _BLOCK)
        places = spans(forms.first[order[part]] + opened, size[part])
        token[offset[start] : offset[start] + len(places)] = forms.token[places]
    return Rows(
        token=token,
        offset=narrowed(offset),
        end=forms.closing[order],
        entry=entry[forms.label[order]],
        ends=ends,
        entries=int(entry.max()) + 1,
    )
