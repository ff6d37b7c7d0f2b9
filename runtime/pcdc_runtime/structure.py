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
    _check_prompt(artifact.prompt)
    _check_nodes(artifact)
    _check_ends(artifact.ends)
    _check_forms(artifact)
    for example in artifact.examples:
        _check_example(artifact.fields, example)


def _check_prompt(prompt: PromptCut) -> None:
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
    check(bool((n.reads >= 0).all() and (n.reads < 1 << len(RULES)).all()), "has an unknown rule bit")
    check(bool(((n.reads[1:] & ~n.reads[parent]) == 0).all()), "reads a node but not its parent")


def _check_ends(ends: EndSets) -> None:
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
    check(int(nodes.depth[f.node].sum(dtype=np.int64)) <= MAX_PATH_TOKENS, "has too many tokens in its forms")
    for index, field in enumerate(a.fields):
        check(max(field.anchor, field.suffix) < len(nodes), "has an anchor outside the forest")
        check(nodes.field[field.anchor] in (-1, index), "has an anchor in another field")
    _check_places(a, counts)


def _check_example(fields: Sequence[CompiledField], example: WorkedExample) -> None:
    asked = [field for field, _ in example.answers]
    check(bool(asked) and asked == sorted(set(asked)), "has an example whose answers are not in order")
    check(asked[0] >= 0 and asked[-1] < len(fields), "has an example that answers an unknown field")
    known = all(0 <= choice < len(fields[field].candidates) for field, choice in example.answers)
    check(known, "has an example with an unknown choice")


def _check_places(a: Artifact, counts: NDArray[np.int64]) -> None:
    """Where the forms of each choice stand; `counts` has their number by choice over all fields."""
    f, nodes = a.forms, a.nodes
    owner = np.repeat(np.arange(len(a.fields)), [len(field.candidates) for field in a.fields])
    anchors = np.array([field.anchor for field in a.fields])
    suffixes = np.array([field.suffix for field in a.fields])
    asked = owner[f.choice]
    held = nodes.field[f.node]
    check(bool(((held == -1) | (held == asked)).all()), "has a form in another field")
    anchored = (f.node == anchors[asked]) | _below(nodes, anchors)[f.node]
    check(bool(anchored.all()), "has a form that is not below its field's anchor")
    events = nodes.depth[f.node] - nodes.depth[anchors[asked]] + 1
    check(bool(((f.cut >= 1) & (f.cut <= events)).all()), "has a form cut outside its path")
    first = np.cumsum(counts) - counts
    read = np.bitwise_or.reduceat(f.reads, first)
    check(bool((read == (1 << len(RULES)) - 1).all()), "has a choice that a rule never reads")
    ends = f.node[first]
    placed = (ends == suffixes[owner]) | _below(nodes, suffixes)[ends]
    check(bool(placed.all()), "has a choice that is not below its field's suffix")


def _below(nodes: Nodes, tops: NDArray[np.int64]) -> NDArray[np.bool_]:
    """For each node but the root, whether the top of its field is the node itself or above it."""
    top = tops[nodes.field]
    below: NDArray[np.bool_] = (top == np.arange(len(nodes))) | (top == nodes.parent)
    below[0] = False
    # Each round looks twice as far up, so that a deep forest takes few.
    above = np.maximum(nodes.parent, 0)
    while above.any():
        below |= below[above]
        above = above[above]
    return below
