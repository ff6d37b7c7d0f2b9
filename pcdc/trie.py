"""The token forest: every field's suffix and token trie under the last prompt token, as arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from pcdc_runtime.artifact import EndSets, Forms, Nodes
from pcdc_runtime.rules import RULES, rule_bit

from .tokenization import TokenizedField, TokenizedSchema
from .vocabulary import Remainder, Vocabulary, shared_beginning

JOINT, IDENTIFY, TRIE = (rule_bit(rule) for rule in RULES)
Event: TypeAlias = int | tuple[int, Remainder]
"""One step of a form: the edge to a node, by that node, or the closing at one."""
_SHARED = -1


@dataclass(frozen=True)
class Forest:
    """Arrays of an artifact plus, per field, its anchor and suffix nodes."""

    nodes: Nodes
    forms: Forms
    ends: EndSets
    anchors: tuple[int, ...]
    suffixes: tuple[int, ...]


@dataclass(frozen=True)
class _FormRow:
    """One form's entries in the form arrays, its END set still by remainder."""

    choice: int
    node: int
    remainder: Remainder
    cut: int
    reads: int


@dataclass
class _Growth:
    """The forest while it grows: one entry per node; `branches` holds the current field's edges."""

    token: list[int]
    parent: list[int]
    depth: list[int]
    owner: list[int]
    reads: list[int]
    branches: dict[tuple[int, int], int] = field(default_factory=dict)

    def walk(self, path: Sequence[int], owner: int) -> tuple[int, ...]:
        """Nodes from the root down a path, made where they are missing."""
        trail = [0]
        for token in path:
            edge = (trail[-1], token)
            if edge not in self.branches:
                self.branches[edge] = len(self.token)
                self.token.append(token)
                self.parent.append(trail[-1])
                self.depth.append(len(trail))
                self.owner.append(owner)
                self.reads.append(0)
            trail.append(self.branches[edge])
        return tuple(trail)

    def above(self, event: Event) -> int:
        """The node at which an event is decided."""
        return self.parent[event] if isinstance(event, int) else event[0]

    def mark(self, node: int, bit: int) -> None:
        while node >= 0 and not self.reads[node] & bit:
            self.reads[node] |= bit
            node = self.parent[node]


def grow_forest(tokenized: TokenizedSchema, root_token: int, vocabulary: Vocabulary) -> Forest:
    """Merge all forms into one forest below `root_token`, in declaration order."""
    growth = _Growth([root_token], [-1], [0], [-1], [0])
    skip = len(tokenized.opening)
    rows: list[_FormRow] = []
    anchors, suffixes, choice = [], [], 0
    for owner, one in enumerate(tokenized.fields):
        field_rows, anchor, suffix = _grow_field(growth, one, owner, skip, choice)
        rows += field_rows
        anchors.append(anchor)
        suffixes.append(suffix)
        choice += len(one.forms)
    numbered, ends = _end_sets([row.remainder for row in rows], vocabulary)
    return Forest(
        nodes=Nodes(*map(_ints, (growth.token, growth.parent, growth.depth, growth.owner, growth.reads))),
        forms=Forms(
            choice=_ints([row.choice for row in rows]),
            node=_ints([row.node for row in rows]),
            end=_ints(numbered),
            cut=_ints([row.cut for row in rows]),
            reads=_ints([row.reads for row in rows]),
        ),
        ends=ends,
        anchors=tuple(anchors),
        suffixes=tuple(suffixes),
    )


def _ints(values: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(values, dtype=np.int32)


def _grow_field(
    growth: _Growth, one: TokenizedField, owner: int, skip: int, first_choice: int
) -> tuple[list[_FormRow], int, int]:
    """Add one field; gives its form rows, anchor and suffix nodes."""
    paths = [form.path[skip:] for forms in one.forms for form in forms]
    remainders = [form.remainder for forms in one.forms for form in forms]
    owners = [index for index, forms in enumerate(one.forms) for _ in forms]
    growth.branches.clear()
    trails = [growth.walk(path, owner) for path in paths]
    anchor = trails[0][one.anchor - skip]
    events: list[list[Event]] = [
        [*trail[one.anchor - skip + 1 :], (trail[-1], remainder)]
        for trail, remainder in zip(trails, remainders, strict=True)
    ]
    sole: dict[Event, int] = {}
    for choice, form in zip(owners, events, strict=True):
        for event in form:
            if sole.setdefault(event, choice) != choice:
                sole[event] = _SHARED
    for node, options in Counter(map(growth.above, sole)).items():
        if options > 1:
            growth.mark(node, TRIE)
    rows, counted = [], set()
    for choice, trail, remainder, form in zip(owners, trails, remainders, events, strict=True):
        cut = next(i for i, event in enumerate(form) if sole[event] != _SHARED) + 1
        reads = JOINT | TRIE
        growth.mark(trail[-1], JOINT)
        if form[cut - 1] not in counted:
            counted.add(form[cut - 1])
            reads |= IDENTIFY
            growth.mark(growth.above(form[cut - 1]), IDENTIFY)
        rows.append(_FormRow(first_choice + choice, trail[-1], remainder, cut, reads))
    suffix = shared_beginning(trails)[-1]
    return rows, anchor, suffix


def _end_sets(remainders: Sequence[Remainder], vocabulary: Vocabulary) -> tuple[list[int], EndSets]:
    """END sets of all forms, each stored once and in order of content, and each form's set."""
    ids = {remainder: tuple(vocabulary.end_set(remainder).tolist()) for remainder in set(remainders)}
    number, ends = stored_sets(ids.values())
    return [number[ids[r]] for r in remainders], ends


def stored_sets(contents: Iterable[tuple[int, ...]]) -> tuple[dict[tuple[int, ...], int], EndSets]:
    """END sets as they are stored: each once and in order of content; and the number of each."""
    stored = sorted(set(contents))
    number = {content: index for index, content in enumerate(stored)}
    offset = np.cumsum([0, *map(len, stored)])
    flat = [i for content in stored for i in content]
    return number, EndSets(_ints(offset.tolist()), _ints(flat))
