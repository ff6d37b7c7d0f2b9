"""The true best entries of an index, by best-first search over prefixes, with a certificate.

A form's probability is the product of its tokens' times its END set's mass, which is at most 1; an entry's is
the sum over its forms, which are disjoint events. The search keeps a partition of all forms: those closed,
whose probability is known, and disjoint open nodes u with all others below them, together at most P(u).

low(e), the sum of e's closed forms, never exceeds P(e). high(e) adds P(u) of each open node that holds a form
of e, once however many it holds: they are disjoint events within P(u). An entry with all its forms below one
open node has high(e) = P(u), so that one number bounds all such entries; only those whose forms have parted
(`Rows.parted`) are told apart, and they alone have a closed form beside an open one. So no entry outside the
answers can have more than the greatest of: P(u) where u holds a form of an entry not told apart, high(e) of
entries told apart, low(e) of those closed altogether.

A node is needed as long as it holds a form of an entry that might belong before an answer. Where no node is
needed the answers are the true ones in the true order, whatever the rest would show: low of each is known and
no high behind it is greater, nor as great with a smaller number. Expanding a node replaces P(u) by parts that
sum to no more, so that lows only rise, highs and the open mass only fall, and the search ends. P_L(S) lies
between what is closed and that plus what is open. What a top-M verifier did not look at stays an open node
that is never expanded: it counts in every bound, and nothing is certified against it.

No certificate can do with less: a model may give all of P(u) to one label below an open node, and nothing
but a run of u tells. So every node that has more than the best answer and holds a form of another entry must
run, and 1 is the only bound of what follows that holds for any model. What else ran was chosen before the
answer was known.

Which nodes run together decides passes and nodes, never answers. A pass costs a model about as much as twenty
nodes, so that one takes several of the most probable needed nodes, and goes on below them before their
beliefs are known where few rows are left: likely labels are run to their ends. Nodes with less than the best
label is expected to have wait, in the hope that it beats them.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcdc_runtime.artifact import Ints
from pcdc_runtime.indexed.rows import Rows, Span

from .beliefs import Beliefs
from .opened import CLOSED, UNSEEN, Opened, Split, Whole
from .options import Floats, Options, Verifier
from .outcome import Found, Outcome, at_most
from .walk import READ

WIDTH = 16
"""How many nodes a pass runs while there is nothing to beat; later as many as ran before, if more are needed.

So at most half of all nodes were chosen without the answers that showed them to be needless.
"""
EAGER = 10
"""How many of them run though they have less than the best label is expected to have."""
DECAY = 0.7
"""What a token is expected to keep of its prefix's probability, shared among the rows that part."""
DIVE = 4
"""How many nodes of a pass go on below the last pass while answers are missing, as a beam of as many does."""
AHEAD = 0.05
"""Below what share of the most probable node's probability nothing runs ahead of its parent's beliefs."""


def search(
    rows: Rows,
    beliefs: Beliefs,
    verifier: Verifier,
    *,
    k: int = 1,
    nodes: int | None = None,
    passes: int | None = None,
    width: int = WIDTH,
) -> Outcome:
    """The `k` most probable entries, of equal ones those of smaller numbers first.

    `nodes` and `passes` are the most that `beliefs` may count in the end, at least 1 each; where they do not
    suffice the outcome is not certified, and its `bound` and the answers' `high` say how far off it may be.
    """
    opened, k, recent = Opened(rows), min(k, rows.entries), 0
    while True:
        split = opened.split()
        standing = _standing(opened, split, k)
        opened.give_up(split, standing.least)
        spent = passes is not None and beliefs.passes >= passes
        room = max(width, beliefs.nodes) if standing.answered else width
        if nodes is not None:
            room = min(room, nodes - beliefs.nodes)
        chosen = [] if spent or room <= 0 else _chosen(opened, rows, standing, room, width, recent)
        if not chosen:
            return _outcome(opened, _standing(opened, opened.split(everything=True), k), k)
        recent = beliefs.nodes
        _run(opened, beliefs, verifier, chosen)


@dataclass(frozen=True, eq=False)
class _Standing:
    """What the answers are so far, and the most that entries beyond them can have.

    `potential` is, of each node that is needed, the log of what an entry below it may have; -inf of others.
    `least` is the log of what belongs to the answers at least; -inf as long as there are too few.
    """

    found: tuple[Found, ...]
    bound: float
    potential: Floats
    least: float

    @property
    def answered(self) -> bool:
        return self.least > -math.inf

    @property
    def certain(self) -> bool:
        return bool((self.potential == -math.inf).all())


@dataclass(frozen=True)
class _Chosen:
    """A node to run: an open one, or one that runs ahead below `above`, an earlier one of the same pass."""

    span: Span
    token: int
    at: int | None
    above: int


def _standing(opened: Opened, split: Split, k: int) -> _Standing:
    nodes, closed = opened.nodes, opened.closed
    best = closed[:k]
    least = best[-1][0] if len(best) == k else -math.inf
    highest = {entry: low for low, entry in best}
    rival = ~np.isin(split.entry, list(highest))
    # What an entry must stay below for the order to be certain.
    beaten = np.full(len(split.entry), least)
    rank = {entry: number for number, (_, entry) in enumerate(best)}
    for own in np.flatnonzero(~rival).tolist():
        entry = int(split.entry[own])
        highest[entry] = float(split.high[own])
        beaten[own] = best[rank[entry] - 1][0] if rank[entry] else math.inf
    inside = split.node != CLOSED
    told = np.bincount(split.node[inside], minlength=len(nodes))
    whole = (told == nodes["high"] - nodes["low"]) & (nodes["token"] != UNSEEN)
    plain = np.where(nodes["open"] & ~whole, nodes["log_prob"], -math.inf)
    contested = (split.high > split.low) & (split.high >= beaten)
    potential = np.where(plain >= least, plain, -math.inf)
    forms = inside & contested[split.of]
    np.maximum.at(potential, split.node[forms], split.high[split.of[forms]])
    potential[nodes["log_prob"] == -math.inf] = -math.inf
    return _Standing(
        found=tuple(Found(entry, low, highest[entry]) for low, entry in best),
        bound=max(
            float(plain.max(initial=-math.inf)),
            float(split.high[rival].max(initial=-math.inf)),
            closed[k][0] if len(closed) > k else -math.inf,
        ),
        potential=potential,
        least=least,
    )


def _chosen(
    opened: Opened, rows: Rows, standing: _Standing, room: int, width: int, recent: int
) -> list[_Chosen]:
    """The needed nodes of most potential, at most `room`; parents come first.

    Among the first `width` is what is expected to have as much below them. While answers are missing the best
    below the model's nodes from `recent` on come before all others, so that each pass is nearer to one.
    """
    nodes, potential = opened.nodes, standing.potential
    able = np.flatnonzero((potential > -math.inf) & (nodes["token"] != UNSEEN))
    if not len(able):
        return []
    best = _most(able, potential, room)
    hopeful = potential[best] >= _expected(rows, nodes[able], potential[able])
    best = best[hopeful | (np.arange(len(best)) < EAGER)]
    ahead = max(standing.least, float(potential[best[0]]) + math.log(AHEAD))
    urgent = best[:0] if standing.answered else _most(able[nodes["parent"][able] >= recent], potential, DIVE)
    order = count()
    heap = [
        (late, -float(potential[at]), next(order), _Chosen(opened.span(at), int(nodes["token"][at]), at, -1))
        for late, part in enumerate((urgent, best[~np.isin(best, urgent)]))
        for at in part.tolist()
    ]
    heapq.heapify(heap)
    chosen: list[_Chosen] = []
    while heap and len(chosen) < min(room, width):
        _, cost, _, node = heapq.heappop(heap)
        chosen.append(node)
        for expected, token, span in _likely(rows, node.span, -cost, ahead):
            below = _Chosen(span, token, None, len(chosen) - 1)
            heapq.heappush(heap, (1, -expected, next(order), below))
    rest = [node for *_, node in sorted(heap, key=lambda item: item[:3]) if node.at is not None]
    return chosen + rest[: room - len(chosen)]


def _expected(rows: Rows, nodes: NDArray[Any], potential: Floats) -> float:
    """The log of what the best label below some nodes is expected to have, by how long theirs are."""
    low, high = nodes["low"], nodes["high"]
    left = (rows.offset[high] - rows.offset[low]) / (high - low) - nodes["depth"]
    return float((potential + math.log(DECAY) * left).max())


def _most(nodes: Whole, potential: Floats, count: int) -> Whole:
    """The `count` of these nodes that have the most potential, the best first."""
    if len(nodes) > count:
        nodes = nodes[np.argpartition(-potential[nodes], count - 1)[:count]]
    return nodes[np.argsort(-potential[nodes], kind="stable")]


def _likely(rows: Rows, span: Span, log_prob: float, least: float) -> list[tuple[float, int, Span]]:
    """Children that are expected to have at least `least`, with what they are expected to have."""
    room = least - log_prob - math.log(DECAY)
    if room > 0:
        return []
    child = rows.children(span)
    share = np.diff(child.start) / (span.high - span.low)
    found = []
    for at in np.flatnonzero(share >= math.exp(room)).tolist():
        below = Span(int(child.start[at]), int(child.start[at + 1]), span.depth + 1)
        found.append((log_prob + math.log(DECAY * share[at]), int(child.token[at]), below))
    return found


def _run(opened: Opened, beliefs: Beliefs, verifier: Verifier, chosen: Sequence[_Chosen]) -> None:
    """Run these nodes in one pass and put their options in their places."""
    numbers = _grown(opened, beliefs, chosen)
    first: list[int | None] = []
    read: list[Options] = []
    for start in range(0, len(chosen), READ):
        part = slice(start, start + READ)
        read += verifier.options([node.span for node in chosen[part]], beliefs.read(numbers[part]))
    for node, number, options in zip(chosen, numbers, read, strict=True):
        at = node.at
        if at is None:
            above = first[node.above]
            at = None if above is None else _place(read[node.above].token, node.token, above)
        first.append(None if at is None else opened.expand(at, number, options))


def _grown(opened: Opened, beliefs: Beliefs, chosen: Sequence[_Chosen]) -> list[int]:
    """The model's numbers of these nodes, the root's is 0."""
    rooted = int(chosen[0].at == 0)
    # Node 0 counts from the first pass on.
    start = max(beliefs.nodes, 1) - rooted
    parents = [
        int(opened.nodes["parent"][node.at]) if node.at is not None else start + node.above
        for node in chosen[rooted:]
    ]
    grown = beliefs.grow(parents, [node.token for node in chosen[rooted:]]) if parents else []
    return [0] * rooted + grown


def _place(tokens: Ints, token: int, first: int) -> int | None:
    """The number of an option's node; None where a verifier did not look at that token."""
    at = int(np.searchsorted(tokens, token))
    return first + at if at < len(tokens) and tokens[at] == token else None


def _outcome(opened: Opened, standing: _Standing, k: int) -> Outcome:
    nodes, found = opened.nodes, standing.found
    if standing.certain:
        # Whatever is left has probability 0.
        rest = opened.impossible[: k - len(found)].tolist()
        found += tuple(Found(entry, -math.inf, -math.inf) for entry in rest)
    left = nodes["log_prob"][nodes["open"]]
    unseen = left[nodes["token"][nodes["open"]] == UNSEEN]
    most = float(np.logaddexp.reduce(left, initial=opened.held))
    return Outcome(
        found=found,
        certified=standing.certain,
        bound=standing.bound,
        log_mass=(min(0.0, opened.held), min(0.0, most)),
        missed=at_most(float(np.logaddexp.reduce(unseen, initial=-math.inf))),
    )
