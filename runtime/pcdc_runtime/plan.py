"""What one request runs and reads: an artifact, a rule and some fields become compact arrays.

Every event is one *pick* from a logit row: the edge to a token, or the closing of a form by its END set.
The nodes to run are the rows that some pick reads, and what lies above them.

- `joint` sums every event of a form.
- `identify` sums the first `cut` events of each form it reads.
- `trie` normalises each node over its own options; a node with one option has no pick at all.

Legal mass is summed over the events of `joint`, except under `identify`, whose own events bound it from
above.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from .artifact import Artifact, CompiledField, EndSets, Ints
from .rules import rule_bit

EDGE, END = 0, 1
Event: TypeAlias = tuple[int, int, int]
"""Node whose logits are read, EDGE or END, token id or END set."""


@dataclass(frozen=True, eq=False)
class EndPicks:
    """Picks `first` up to `last` read the END set `ids`."""

    ids: Ints
    first: int
    last: int


@dataclass(frozen=True, eq=False)
class Sums:
    """Which picks each form adds up (`pick[k]` goes to `form[k]`), and where each choice's forms start."""

    pick: Ints
    form: Ints
    choice_offset: Ints


@dataclass(frozen=True, eq=False)
class Plan:
    """One tree pass: `token`, `parent` [N] to run, `row` [R] of those nodes to read, picks to take.

    Parents come first; node 0 is the last prompt token and has parent -1. `pick_row` counts in `row`;
    edge picks come first and are sorted by row, as is each run of END picks. `group` numbers the nodes
    whose options `trie` normalises, -1 for picks that only legal mass reads. `fields` are indices into the
    artifact's fields, field `i` has the choices from `field_offset[i]` on.
    """

    rule: str
    fields: tuple[int, ...]
    field_offset: Ints
    token: Ints
    parent: Ints
    deepest: int
    row: Ints
    pick_row: Ints
    edge_token: Ints
    ends: tuple[EndPicks, ...]
    group: Ints
    score: Sums
    mass: Sums | None

    @property
    def reads_vocabulary(self) -> bool:
        """Whether the rule needs a log-sum-exp over the whole vocabulary for any pick."""
        return self.rule != "trie" or self.mass is not None

    @cached_property
    def wanted(self) -> Ints | None:
        """The token ids whose logits some pick reads, sorted; None where a pick needs the whole row."""
        if self.reads_vocabulary:
            return None
        return np.unique(np.concatenate([self.edge_token, *(end.ids for end in self.ends)]))


def make_plans(
    artifact: Artifact, rule: str, fields: Iterable[int], legal_mass: bool, budget: int
) -> tuple[Plan, ...]:
    """Plans that together answer the fields, in artifact order whatever order was asked.

    Whole fields share a pass while its nodes stay within `budget`; a field that exceeds it alone gets a
    pass of its own.
    """
    return tuple(plan for (plan,) in make_shared_plans(artifact, (rule,), fields, legal_mass, budget))


def make_shared_plans(
    artifact: Artifact, rules: Sequence[str], fields: Iterable[int], legal_mass: bool, budget: int
) -> tuple[tuple[Plan, ...], ...]:
    """Per pass, one plan for each rule; all of them take their sums from the same picks of the same nodes.

    The nodes are those that any rule needs; fields share passes as in `make_plans`. What one of them
    makes `read` take serves all: several rules are planned with legal mass only.
    """
    batches: list[list[tuple[_FieldEvents, ...]]] = []
    size = 0
    for index in sorted(fields):
        events = tuple(_FieldEvents.of(artifact, index, rule, legal_mass) for rule in rules)
        width = len(frozenset().union(*(of_rule.below_root for of_rule in events)))
        if not batches or size + width > budget:
            batches.append([])
            size = 1
        batches[-1].append(events)
        size += width
    return tuple(_plans(artifact, rules, [list(b) for b in zip(*batch, strict=True)]) for batch in batches)


@dataclass(frozen=True)
class _FieldEvents:
    """One field's events per choice and form, and the nodes below node 0 that they need."""

    index: int
    score: list[list[list[Event]]]
    mass: list[list[list[Event]]] | None
    below_root: frozenset[int]

    @classmethod
    def of(cls, artifact: Artifact, index: int, rule: str, legal_mass: bool) -> _FieldEvents:
        field = artifact.fields[index]
        score = _counted(artifact, field, rule)
        if rule == "trie":
            score = _branching(score)
        mass = None
        if legal_mass:
            mass = _counted(artifact, field, "joint") if rule == "trie" else score
        nodes: set[int] = set()
        for forms in (*score, *(mass or ())):
            for node, _, _ in (event for events in forms for event in events):
                while node > 0 and node not in nodes:
                    nodes.add(node)
                    node = int(artifact.nodes.parent[node])
        return cls(index, score, mass, frozenset(nodes))


def _counted(artifact: Artifact, field: CompiledField, rule: str) -> list[list[list[Event]]]:
    """Per choice, the events of each form the rule reads; `identify` counts only those up to the cut."""
    forms = artifact.forms
    bit = rule_bit(rule)
    return [
        [
            _events(artifact, field.anchor, form)[: int(forms.cut[form]) if rule == "identify" else None]
            for form in range(*candidate.forms)
            if forms.reads[form] & bit
        ]
        for candidate in field.candidates
    ]


def _events(artifact: Artifact, anchor: int, form: int) -> list[Event]:
    nodes = artifact.nodes
    node = int(artifact.forms.node[form])
    events: list[Event] = [(node, END, int(artifact.forms.end[form]))]
    while node != anchor:
        parent = int(nodes.parent[node])
        events.append((parent, EDGE, int(nodes.token[node])))
        node = parent
    events.reverse()
    return events


def _branching(choices: list[list[list[Event]]]) -> list[list[list[Event]]]:
    """The events at nodes that offer more than one option; any other event has probability 1."""
    options: dict[int, set[tuple[int, int]]] = {}
    for node, kind, what in (event for forms in choices for events in forms for event in events):
        options.setdefault(node, set()).add((kind, what))
    return [[[e for e in events if len(options[e[0]]) > 1] for events in forms] for forms in choices]


def _plans(
    artifact: Artifact, rules: Sequence[str], batches: Sequence[Sequence[_FieldEvents]]
) -> tuple[Plan, ...]:
    """One plan per rule over the same fields, whose events are `batches[rule]`."""
    every = [events for batch in batches for events in batch]
    kept = np.array([0, *sorted(frozenset().union(*(f.below_root for f in every)))], dtype=np.int32)
    place = {int(node): position for position, node in enumerate(kept)}
    picks = _Picks(artifact.ends, every)
    rows = {node: row for row, node in enumerate(sorted({node for _, (node, _, _) in picks.order}))}
    token = artifact.nodes.token[kept]
    parent = np.array([-1, *(place[int(p)] for p in artifact.nodes.parent[kept[1:]])], dtype=np.int32)
    deepest = int(artifact.nodes.depth[kept].max())
    row = np.array([place[node] for node in rows], dtype=np.int32)
    pick_row = np.array([rows[node] for _, (node, _, _) in picks.order], dtype=np.int32)
    edge_token = np.array([what for _, (_, kind, what) in picks.order if kind == EDGE], dtype=np.int32)
    ends = picks.end_runs()
    return tuple(
        Plan(
            rule=rule,
            fields=tuple(f.index for f in batch),
            field_offset=np.cumsum([0, *(len(f.score) for f in batch)], dtype=np.int32),
            token=token,
            parent=parent,
            deepest=deepest,
            row=row,
            pick_row=pick_row,
            edge_token=edge_token,
            ends=ends,
            group=picks.groups(batch),
            score=picks.sums([(f.index, f.score) for f in batch]),
            mass=picks.sums([(f.index, f.mass) for f in batch if f.mass is not None])
            if batch[0].mass is not None
            else None,
        )
        for rule, batch in zip(rules, batches, strict=True)
    )


class _Picks:
    """Numbers each (field, event) once: edges by row, then END events by set and row."""

    def __init__(self, ends: EndSets, batch: Sequence[_FieldEvents]) -> None:
        wanted = {
            (f.index, event)
            for f in batch
            for forms in (*f.score, *(f.mass or ()))
            for events in forms
            for event in events
        }
        self._ends = ends
        self.order = sorted(wanted, key=_pick_order)
        self.number = {pick: number for number, pick in enumerate(self.order)}

    def end_runs(self) -> tuple[EndPicks, ...]:
        runs: list[EndPicks] = []
        numbers: dict[int, list[int]] = {}
        for number, (_, (_, kind, what)) in enumerate(self.order):
            if kind == END:
                numbers.setdefault(what, []).append(number)
        for end, members in numbers.items():
            runs.append(EndPicks(self._ends[end], members[0], members[-1] + 1))
        return tuple(runs)

    def groups(self, batch: Sequence[_FieldEvents]) -> Ints:
        """One number per (field, node) among the scored picks, -1 for the others."""
        scored = {
            (f.index, event) for f in batch for forms in f.score for events in forms for event in events
        }
        seen: dict[tuple[int, int], int] = {}
        return np.array(
            [
                seen.setdefault((field, event[0]), len(seen)) if (field, event) in scored else -1
                for field, event in self.order
            ],
            dtype=np.int32,
        )

    def sums(self, fields: Sequence[tuple[int, list[list[list[Event]]]]]) -> Sums:
        pick: list[int] = []
        form: list[int] = []
        offset = [0]
        count = 0
        for index, choices in fields:
            for forms in choices:
                for events in forms:
                    pick += [self.number[index, event] for event in events]
                    form += [count] * len(events)
                    count += 1
                offset.append(count)
        return Sums(*(np.array(a, dtype=np.int32) for a in (pick, form, offset)))


def _pick_order(pick: tuple[int, Event]) -> tuple[int, int, int, int]:
    field, (node, kind, what) = pick
    return (kind, node, what, field) if kind == EDGE else (kind, what, node, field)
