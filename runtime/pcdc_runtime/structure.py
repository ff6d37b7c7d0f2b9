"""Structural checks of an artifact that came from outside: every index in range, every count agreed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .rules import RULES
from .wire import check

if TYPE_CHECKING:
    from .artifact import Artifact, CompiledField, EndSets, Nodes, PromptCut, WorkedExample

# A plan walks all forms token by token; real schemas stay a hundred times below.
MAX_PATH_TOKENS = 2_000_000


def check_structure(artifact: Artifact) -> None:
    """Refuse an artifact whose parts do not fit together. Raises Malformed."""
    check(artifact.scoring in RULES, "names an unknown scoring rule")
    _check_nodes(artifact)
    check_ends(artifact.ends)
    _check_forms(artifact)
    for example in artifact.examples:
        _check_example(artifact.fields, example)


def check_prompt(prompt: PromptCut) -> None:
    check(bool((prompt.head >= 0).all() and (prompt.tail >= 0).all()), "has a token id out of range")
    check(len(prompt.tail) > 0, "has no tail")
    check(prompt.shared <= len(prompt.head), "has a prompt cut outside its head")
    check(prompt.tail_overlap <= len(prompt.tail), "has a prompt cut outside its tail")
    check(prompt.fence != "" and prompt.fence in prompt.pre and prompt.fence in prompt.post, "has no fence")


def _check_nodes(a: Artifact) -> None:
    n = a.nodes
    size = len(n)
    check(size > 0, "has no nodes")
    check(all(len(column) == size for column in vars(n).values()), "has node arrays of unequal length")
    check(bool((n.token >= 0).all()), "has a token id out of range")
    check(n.parent[0] == -1 and n.depth[0] == 0 and n.field[0] == -1, "has a malformed root node")
    check(n.token[0] == a.prompt.tail[-1], "has a root node that is not the last prompt token")
    parent = n.parent[1:]
    check(bool((parent >= 0).all() and (parent < np.arange(1, size)).all()), "has a node before its parent")
    check(bool((n.depth[1:] == n.depth[parent] + 1).all()), "has a node of wrong depth")
    field = n.field[1:]
    check(bool((field >= 0).all() and (field < len(a.fields)).all()), "has a node of an unknown field")
    above = n.field[parent]
    check(bool(((above == field) | (above == -1)).all()), "has a node below another field's")
    # Of the root's tokens each field has its own.
    above = np.where(parent == 0, size + field, parent).astype(np.int64)
    edges = np.sort(above << 31 | n.token[1:])
    check(bool((edges[1:] != edges[:-1]).all()), "has two nodes of one token below one parent")
    check(bool((n.reads >= 0).all() and (n.reads < 1 << len(RULES)).all()), "has an unknown rule bit")
    check(bool(((n.reads[1:] & ~n.reads[parent]) == 0).all()), "reads a node but not its parent")


def check_ends(ends: EndSets) -> None:
    offset = ends.offset
    check(len(offset) > 1 and offset[0] == 0 and offset[-1] == len(ends.ids), "has malformed END sets")
    # Not by their difference, which can overflow.
    check(bool((offset[1:] > offset[:-1]).all()), "has an empty END set")
    check(bool((ends.ids >= 0).all()), "has a token id out of range")
    rising = np.diff(ends.ids) > 0
    rising[offset[1:-1] - 1] = True
    check(bool(rising.all()), "has an END set that is not sorted")


def _check_forms(a: Artifact) -> None:
    f, nodes = a.forms, a.nodes
    check(all(len(column) == len(f) for column in vars(f).values()), "has form arrays of unequal length")
    choices = sum(len(field.candidates) for field in a.fields)
    check(bool((f.choice >= 0).all() and (f.choice < choices).all()), "has a form of an unknown choice")
    check(bool((f.choice[1:] >= f.choice[:-1]).all()), "has forms whose choices are not in order")
    counts = np.bincount(f.choice, minlength=choices)
    check(bool((counts > 0).all()), "has a choice without a form")
    check(bool((f.node >= 0).all() and (f.node < len(nodes)).all()), "has a form at an unknown node")
    check(bool((f.end >= 0).all() and (f.end < len(a.ends)).all()), "has a form with an unknown END set")
    check(bool((f.reads >= 0).all() and (f.reads < 1 << len(RULES)).all()), "has an unknown rule bit")
    leads = np.zeros(len(nodes), dtype=np.bool_)
    leads[f.node] = leads[nodes.parent[1:]] = True
    check(bool(leads[1:].all()), "has a node that leads to no form")
    check(int(nodes.depth[f.node].sum(dtype=np.int64)) <= MAX_PATH_TOKENS, "has too many tokens in its forms")
    _check_places(a, counts)


def _check_example(fields: Sequence[CompiledField], example: WorkedExample) -> None:
    asked = [field for field, _ in example.answers]
    check(bool(asked) and asked == sorted(set(asked)), "has an example whose answers are not in order")
    check(asked[0] >= 0 and asked[-1] < len(fields), "has an example that answers an unknown field")
    known = all(0 <= choice < len(fields[field].candidates) for field, choice in example.answers)
    check(known, "has an example with an unknown choice")


def _check_places(a: Artifact, counts: NDArray[np.int64]) -> None:
    """Where fields and their forms stand; `counts` has the number of forms by choice over all fields."""
    f, nodes = a.forms, a.nodes
    owner = np.repeat(np.arange(len(a.fields)), [len(field.candidates) for field in a.fields])
    anchors = np.array([field.anchor for field in a.fields])
    suffixes = np.array([field.suffix for field in a.fields])
    asked = owner[f.choice]
    held = nodes.field[f.node]
    check(bool(((held == -1) | (held == asked)).all()), "has a form in another field")
    first = np.cumsum(counts) - counts
    read = np.bitwise_or.reduceat(f.reads, first)
    check(bool((read == (1 << len(RULES)) - 1).all()), "has a choice that a rule never reads")
    jumps = _jumps(nodes)
    _check_tops(nodes, anchors, suffixes, jumps)
    deeper = nodes.depth[f.node] - nodes.depth[suffixes[asked]]
    placed = (deeper >= 0) & (_climb(jumps, f.node, np.maximum(deeper, 0)) == suffixes[asked])
    check(bool(placed.all()), "has a choice that is not below its field's suffix")
    below = nodes.field[1:][nodes.parent[1:] == suffixes[nodes.field[1:]]]
    parted = np.bincount(below, minlength=len(a.fields)) > 1
    parted[asked[f.node == suffixes[asked]]] = True
    check(bool(parted.all()), "has a suffix that is not all that its field's choices share")
    _check_cuts(a, anchors[asked], jumps)


def _check_tops(
    nodes: Nodes, anchors: NDArray[np.int64], suffixes: NDArray[np.int64], jumps: Sequence[NDArray[np.int32]]
) -> None:
    """Each field's anchor and suffix are its own nodes or the root, the suffix at or below the anchor."""
    own = np.arange(len(anchors))
    check(bool((np.maximum(anchors, suffixes) < len(nodes)).all()), "has an anchor outside the forest")
    for tops in (anchors, suffixes):
        held = nodes.field[tops]
        check(bool(((held == -1) | (held == own)).all()), "has an anchor in another field")
    deeper = nodes.depth[suffixes] - nodes.depth[anchors]
    under = (deeper >= 0) & (_climb(jumps, suffixes, np.maximum(deeper, 0)) == anchors)
    check(bool(under.all()), "has a suffix that is not below its anchor")


def _check_cuts(a: Artifact, anchors: NDArray[np.int64], jumps: Sequence[NDArray[np.int32]]) -> None:
    """A cut is the first event of its form that no other choice has; `anchors` has each form's.

    Where that is the closing event, only the edges before it are looked at.
    """
    f, nodes = a.forms, a.nodes
    events = nodes.depth[f.node] - nodes.depth[anchors] + 1
    check(bool(((f.cut >= 1) & (f.cut <= events)).all()), "has a form cut outside its path")
    closes = f.cut == events
    last = _climb(jumps, f.node, np.maximum(events - 1 - f.cut, 0))
    owner = np.full(len(nodes), -1, dtype=np.int32)
    owner[last[~closes]] = f.choice[~closes]
    # How many nodes at and above each one belong to a single choice.
    owned = (owner >= 0).astype(np.int32)
    for jump in jumps:
        owned += owned[jump]
    alone = (owned[f.node] == ~closes) & (closes | (owner[last] == f.choice))
    check(bool(alone.all()), "has a form cut where choices still share their path")
    before = np.where(closes, f.node, nodes.parent[last])
    shared = _shared(before, f.choice, owned == 0, jumps)
    check(bool((shared[before] | (f.cut == 1)).all()), "has a form cut below where its choice is alone")


def _shared(
    ends: NDArray[np.integer],
    choice: NDArray[np.int32],
    among: NDArray[np.bool_],
    jumps: Sequence[NDArray[np.int32]],
) -> NDArray[np.bool_]:
    """For each node but the root, of those `among`, whether forms of several choices pass it.

    `ends` has for each form the deepest such node.
    """
    low = np.full(len(among), np.iinfo(np.int32).max, dtype=np.int32)
    high = np.full(len(among), -1, dtype=np.int32)
    # Choices rise, and of what is assigned to one place the last stays.
    low[ends[::-1]] = choice[::-1]
    high[ends] = choice
    inner = np.flatnonzero(among)
    for jump in jumps:
        inner = inner[jump[inner] > 0]
        np.minimum.at(low, jump[inner], low[inner])
        np.maximum.at(high, jump[inner], high[inner])
    differ: NDArray[np.bool_] = low != high
    return differ


def _jumps(nodes: Nodes) -> list[NDArray[np.int32]]:
    """For each node the one 1, 2, 4, ... edges above it, the root above the root."""
    jumps = [np.maximum(nodes.parent, 0)]
    while jumps[-1].any():
        jumps.append(jumps[-1][jumps[-1]])
    return jumps


def _climb(
    jumps: Sequence[NDArray[np.int32]], nodes: NDArray[np.integer], steps: NDArray[np.integer]
) -> NDArray[np.integer]:
    """The nodes so many edges above those given, never more than there are."""
    for bit, jump in enumerate(jumps):
        nodes = np.where(steps >> bit & 1, jump[nodes], nodes)
    return nodes
