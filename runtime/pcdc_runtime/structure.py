"""Structural checks of an artifact that came from outside: every index in range, every count agreed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .rules import RULES
from .wire import Ints, check

if TYPE_CHECKING:
    from .artifact import Artifact, CompiledField, EndSets, Nodes, PromptCut, WorkedExample

# A plan walks all forms token by token; real schemas stay a hundred times below.
MAX_PATH_TOKENS = 2_000_000
# Paths of at most so many tokens are walked in step; a longer one alone, where steps of one path cost less.
WALKED_TOGETHER = 64


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
    counts = [c.forms[1] - c.forms[0] for field in a.fields for c in field.candidates]
    check(min(counts) > 0, "has a choice without a form")
    check(
        sum(counts) == len(f) and np.array_equal(f.choice, np.repeat(np.arange(len(counts)), counts)),
        "has form counts that disagree",
    )
    check(bool((f.node >= 0).all() and (f.node < len(nodes)).all()), "has a form at an unknown node")
    check(bool((f.end >= 0).all() and (f.end < len(a.ends)).all()), "has a form with an unknown END set")
    check(bool((f.reads >= 0).all() and (f.reads < 1 << len(RULES)).all()), "has an unknown rule bit")
    check(int(nodes.depth[f.node].sum(dtype=np.int64)) <= MAX_PATH_TOKENS, "has too many tokens in its forms")
    for index, field in enumerate(a.fields):
        check(max(field.anchor, field.suffix) < len(nodes), "has an anchor outside the forest")
        check(nodes.field[field.anchor] in (-1, index), "has an anchor in another field")
    _check_places(a, np.array(counts))


def _check_example(fields: Sequence[CompiledField], example: WorkedExample) -> None:
    asked = [field for field, _ in example.answers]
    check(bool(asked) and asked == sorted(set(asked)), "has an example whose answers are not in order")
    check(asked[0] >= 0 and asked[-1] < len(fields), "has an example that answers an unknown field")
    known = all(0 <= choice < len(fields[field].candidates) for field, choice in example.answers)
    check(known, "has an example with an unknown choice")


def _check_places(a: Artifact, counts: Ints) -> None:
    """Where the forms of each choice stand; `counts` has their number by choice over all fields."""
    f, nodes = a.forms, a.nodes
    owner = np.repeat(np.arange(len(a.fields)), [len(field.candidates) for field in a.fields])
    anchors = np.array([field.anchor for field in a.fields])
    suffixes = np.array([field.suffix for field in a.fields])
    asked = owner[f.choice]
    held = nodes.field[f.node]
    check(bool(((held == -1) | (held == asked)).all()), "has a form in another field")
    anchored = (f.node == anchors[asked]) | _below_anchors(nodes, anchors)[f.node]
    check(bool(anchored.all()), "has a form that is not below its field's anchor")
    events = nodes.depth[f.node] - nodes.depth[anchors[asked]] + 1
    check(bool(((f.cut >= 1) & (f.cut <= events)).all()), "has a form cut outside its path")
    first = np.cumsum(counts) - counts
    read = np.bitwise_or.reduceat(f.reads, first)
    check(bool((read == (1 << len(RULES)) - 1).all()), "has a choice that a rule never reads")
    candidates = [candidate for field in a.fields for candidate in field.candidates]
    _check_ids(nodes, f.node[first], suffixes[owner], [candidate.ids for candidate in candidates])
    single = [candidate.is_single_token == (len(candidate.ids) == 1) for candidate in candidates]
    check(all(single), "has a wrong single-token mark")


def _below_anchors(nodes: Nodes, anchors: Ints) -> NDArray[np.bool_]:
    """For each node but the root, whether the anchor of its field is the node itself or above it."""
    anchor = anchors[nodes.field]
    below: NDArray[np.bool_] = (anchor == np.arange(len(nodes))) | (anchor == nodes.parent)
    below[0] = False
    # Each round looks twice as far up, so that a deep forest takes few.
    above = np.maximum(nodes.parent, 0)
    while above.any():
        below |= below[above]
        above = above[above]
    return below


def _check_ids(nodes: Nodes, ends: Ints, tops: Ints, ids: Sequence[tuple[int, ...]]) -> None:
    """Candidates' ids against their paths, which lead from the `tops` down to the `ends`."""
    fact = "has candidate ids that disagree with the forest"
    sizes = np.array([len(one) for one in ids])
    # The length goes first, so that no path is walked that is longer than what the file spells out.
    check(np.array_equal(nodes.depth[ends] - nodes.depth[tops], sizes), fact)
    flat = np.fromiter(chain.from_iterable(ids), np.int32, int(sizes.sum()))
    stops = np.cumsum(sizes)
    walking = np.flatnonzero((sizes > 0) & (sizes <= WALKED_TOGETHER))
    at, step = ends.copy(), 0
    while len(walking):
        step += 1
        check(bool((nodes.token[at[walking]] == flat[stops[walking] - step]).all()), fact)
        at[walking] = nodes.parent[at[walking]]
        walking = walking[sizes[walking] > step]
    for alone in np.flatnonzero(sizes > WALKED_TOGETHER).tolist():
        check(nodes.path(int(tops[alone]), int(ends[alone])) == ids[alone], fact)
        at[alone] = tops[alone]
    check(np.array_equal(at, tops), fact)
