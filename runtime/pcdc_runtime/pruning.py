"""Bounded pruning: the first levels of every field's trie, then only branches that can still matter.

The first pass runs each field down to a level that its numbers of nodes choose. What it read gives the
probability of every path that leads on, and with it the most that all choices beyond can have; `frontier`
says which of these nodes must be run so that no probability is off by the bound and the winner is exact.
They are run with all that is below them, in one pass for all fields, which hangs them under the nodes of
the first. Before that pass little of a field's weight may be known, so that it takes an expected one; where
the real one then turns out too small for what was dropped, another pass runs the rest. At temperature 1
that is the last one: known weight only grows, and potentials stay. At others a potential may grow with what
is known of its choices, and one more pass follow; each runs what it is for to the end.

Under `trie` the probability of a path bounds what is below it as well; it is refused because its legal mass
needs nodes that no score does, and what it is there for is to show the published method as it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from .artifact import Artifact, CompiledField, Ints
from .errors import PruningError
from .fast_mlx import mx
from .frontier import Frontier, Whole, share
from .passes import Counts, Scores
from .plan import EndPicks, Plan
from .prefix import Prefix, PrefixCache
from .score import Dropped, FieldScores, Weighing, check_scores, in_vocabulary, read

PASS_NODES = {"cpu": 16, "gpu": 256}
"""How many more nodes in a pass cost as much as one more pass.

Measured on two CPU cores with the embedded model: a pass of one node takes as long as 9 more nodes in one
of hundreds. A GPU reads all weights in the time in which it computes some hundred nodes.
"""
SURVIVORS = 32
"""How many branches of a level are expected to matter. It decides costs, never what is dropped."""

Flags = NDArray[np.bool_]


def check_bound(prune: object) -> float:
    """The bound as a float. Raises PruningError unless it is a number between 0 and 1."""
    if isinstance(prune, int | float) and not isinstance(prune, bool) and 0 < prune < 1:
        return float(prune)
    raise PruningError(
        "pruning",
        f"has the bound {prune!r:.40}",
        "it must be a number above 0 and below 1",
        "1e-4 is a good one; leave it out to evaluate every choice",
    )


def _check_rule(rule: str) -> None:
    """Raises PruningError for a rule that is not pruned."""
    if rule == "trie":
        raise PruningError(
            "pruning",
            "does not go with the rule trie",
            "joint and identify can be pruned",
            "leave the bound out, or give `scoring`",
        )


def run_pruned(
    prefixes: PrefixCache,
    artifact: Artifact,
    prompt: Ints,
    plans: Sequence[Plan],
    weighings: Mapping[int, Weighing],
    bound: float,
) -> tuple[Scores, Counts]:
    """Prefill the prompt, and run of each plan what its fields need; `weighings` by index of the field.

    Raises PruningError for a rule that is not pruned, ScoreError as `weigh` does.
    """
    rule, base = plans[0].rule, len(prompt) - 1
    _check_rule(rule)
    scores: dict[int, FieldScores] = {}
    with prefixes.lease(artifact.digest, base + max(len(plan.token) for plan in plans)) as prefix:
        sequence = prefix.sequence
        started, forwards, copied = perf_counter(), sequence.passes, sequence.bytes_copied
        firsts = [first_nodes(plan) for plan in plans]
        cached = prefix.advance(prompt[:base], int(firsts[0].sum()))
        prefilled, alone = perf_counter(), sequence.length > cached
        trees = []
        for plan, first in zip(plans, firsts, strict=True):
            tree = _Tree(
                plan, artifact.fields, [weighings[index] for index in plan.fields], prefix, prompt[:base]
            )
            tree.evaluate(first, bound)
            scores.update(tree.scores())
            trees.append(tree)
            sequence.truncate(base)
        nodes, widest = sum(tree.held for tree in trees), max(tree.held for tree in trees)
        return {rule: scores}, Counts(
            prefill_ms=(prefilled - started) * 1000 if alone else 0.0,
            tree_ms=(perf_counter() - prefilled) * 1000,
            forwards=sequence.passes - forwards,
            sequential=alone + sum(tree.passes for tree in trees),
            cached=cached,
            nodes=nodes,
            positions=base - cached + nodes,
            kv_bytes=(base + widest) * prefixes.bytes_per_token,
            kv_added=(base - cached + widest) * prefixes.bytes_per_token,
            kv_copied=sequence.bytes_copied - copied,
        )


def first_nodes(plan: Plan) -> Flags:
    """Which nodes [N] the first pass runs; all of them where a second one is not expected to pay."""
    chosen, saved = np.ones(len(plan.token), dtype=np.bool_), 0.0
    depth = np.zeros(len(plan.token), dtype=np.int64)
    for node, parent in enumerate(plan.parent[1:].tolist(), 1):
        depth[node] = depth[parent] + 1
    for part in _parts(plan):
        nodes = np.unique(part.entry_node)
        level = depth[nodes] - depth[nodes].min()
        width = np.bincount(level)
        # With levels up to L run, the nodes of level L + 1 are the branches that some of may survive.
        beyond = len(nodes) - np.cumsum(width)[:-1]
        spared = beyond * np.maximum(0.0, 1 - SURVIVORS / width[1:])
        if len(spared) and spared.max() > 0:
            last = int(spared.argmax())
            saved += float(spared[last])
            chosen[nodes[level > last]] = False
    device = "cpu" if mx.default_device().type == mx.DeviceType.cpu else "gpu"
    return chosen if saved > PASS_NODES[device] else np.ones_like(chosen)


@dataclass(frozen=True, eq=False)
class _Part:
    """One field's share of a plan: its entries, each a pick of a form, and how forms make choices."""

    entry_pick: Whole
    entry_form: Whole
    entry_node: Whole
    offset: Whole
    choice: Whole


def _parts(plan: Plan) -> list[_Part]:
    """By field; forms and choices count from 0 in each."""
    sums, parts = plan.score, []
    node = plan.row[plan.pick_row[sums.pick]]
    for first, last in zip(plan.field_offset[:-1], plan.field_offset[1:], strict=True):
        offset = sums.choice_offset[first : last + 1]
        entries = slice(*np.searchsorted(sums.form, (offset[0], offset[-1])))
        parts.append(
            _Part(
                entry_pick=sums.pick[entries],
                entry_form=sums.form[entries] - offset[0],
                entry_node=node[entries],
                offset=offset - offset[0],
                choice=np.repeat(np.arange(last - first), np.diff(offset)),
            )
        )
    return parts


class _Tree:
    """A plan that is run piece by piece; `held` counts the nodes that were."""

    def __init__(
        self,
        plan: Plan,
        fields: Sequence[CompiledField],
        weighings: Sequence[Weighing],
        prefix: Prefix,
        prompt: Ints,
    ) -> None:
        self.passes = 0
        self.held = 0
        self._plan = plan
        self._names = [fields[index].name for index in plan.fields]
        self._weighings = weighings
        self._prefix = prefix
        self._prompt = prompt
        self._parts = _parts(plan)
        self._slot = np.full(len(plan.token), -1, dtype=np.int32)
        self._pick = np.full(len(plan.pick_row), np.nan)
        self._vocabulary = np.full(len(plan.row), np.nan)
        self._frontiers: dict[int, Frontier] = {}

    def evaluate(self, first: Flags, bound: float) -> None:
        """Run the first nodes, then what must be run until every field is within the bound."""
        self._run(first)
        open_fields, hopeful = list(range(len(self._parts))), True
        while open_fields:
            needed = {at: self._needed(at, bound, hopeful) for at in open_fields}
            open_fields = [at for at in open_fields if len(needed[at])]
            if open_fields:
                self._run(self._below(np.concatenate([needed[at] for at in open_fields])))
            hopeful = False

    def scores(self) -> dict[int, FieldScores]:
        """By index of the field."""
        return {index: self._scores(at) for at, index in enumerate(self._plan.fields)}

    def _run(self, flags: Flags) -> None:
        """Run these nodes in one pass and read their picks."""
        plan, base = self._plan, len(self._prompt)
        nodes = np.flatnonzero(flags)
        self._slot[nodes] = base + self.held + np.arange(len(nodes))
        above = plan.parent[nodes]
        parents = np.where(above < 0, base - 1, self._slot[above])
        hidden = self._prefix.branch(plan.token[nodes], parents.astype(np.int32), self._prompt)
        rows = np.flatnonzero(flags[plan.row])
        picks = np.flatnonzero(flags[plan.row[plan.pick_row]])
        found = read(self._prefix.sequence, hidden, _piece(plan, nodes, rows, picks))
        self._pick[picks] = found.pick
        if found.vocabulary is not None:
            self._vocabulary[rows] = found.vocabulary
        self.held += len(nodes)
        self.passes += 1

    def _needed(self, at: int, bound: float, hopeful: bool) -> Whole:
        frontier = self._frontiers[at] = self._frontier(at)
        weighing = self._weighings[at]
        potential = frontier.potential(weighing)
        if hopeful:
            needed = frontier.needed(potential, frontier.hoped(weighing), bound)
            if len(needed):
                return needed
        needed = frontier.needed(potential, frontier.weight(weighing), bound)
        return np.union1d(needed, frontier.contested(weighing))

    def _frontier(self, at: int) -> Frontier:
        part = self._parts[at]
        log = in_vocabulary(self._plan, self._pick, self._vocabulary)[part.entry_pick]
        unread = self._slot[part.entry_node] < 0
        forms = len(part.choice)
        with np.errstate(invalid="ignore"):
            summed = np.bincount(part.entry_form, weights=np.where(unread, 0.0, log), minlength=forms)
        prefix = summed.astype(np.float64)
        check_scores(self._names[at], prefix)
        node = np.full(forms, -1, dtype=np.int64)
        # The entries of a form go down its path: what is written last is the first that was not read.
        last_to_first = np.flatnonzero(unread)[::-1]
        node[part.entry_form[last_to_first]] = part.entry_node[last_to_first]
        return Frontier.of(prefix, node, part.choice, part.offset)

    def _below(self, nodes: Whole) -> Flags:
        """These nodes and all below them."""
        flags = np.zeros(len(self._slot), dtype=np.bool_)
        flags[nodes] = True
        for node, parent in enumerate(self._plan.parent[1:].tolist(), 1):
            if flags[parent]:
                flags[node] = True
        return flags

    def _scores(self, at: int) -> FieldScores:
        frontier, weighing = self._frontiers[at], self._weighings[at]
        held = None
        if self._plan.mass is not None:
            held = min(1.0, float(np.exp(frontier.known).sum()))
        if not frontier.pruned:
            return FieldScores(frontier.known, held)
        missing = np.logaddexp.reduce(frontier.potential(weighing), initial=-math.inf)
        dropped = Dropped(
            most=frontier.most,
            choices=frontier.pruned,
            bound=share(float(missing), frontier.weight(weighing)),
            mass=min(1.0 - (held or 0.0), float(np.exp(frontier.mass).sum())),
        )
        return FieldScores(frontier.known, held, dropped)


def _piece(plan: Plan, nodes: Whole, rows: Whole, picks: Whole) -> Plan:
    """What `read` takes of a plan for some of its nodes: rows count in `nodes`, picks in `rows`."""
    cuts = [(end, *np.searchsorted(picks, (end.first, end.last)).tolist()) for end in plan.ends]
    return replace(
        plan,
        row=np.searchsorted(nodes, plan.row[rows]).astype(np.int32),
        pick_row=np.searchsorted(rows, plan.pick_row[picks]).astype(np.int32),
        edge_token=plan.edge_token[picks[picks < len(plan.edge_token)]],
        ends=tuple(EndPicks(end.ids, first, last) for end, first, last in cuts if first < last),
    )
