"""Several prompts as one forest: each a chain below what all of them begin with, its nodes below its end.

Nothing is padded and nothing copied, and the output head reads the rows of all prompts at once. A slot sees
its own ancestors only, so no prompt changes the scores of another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import perf_counter
from typing import TypeAlias

import numpy as np

from .artifact import Artifact, Ints
from .errors import ScoreError
from .passes import Counts
from .plan import EndPicks, Plan
from .prefix import PrefixCache
from .score import FieldScores, Reads, read, weigh
from .tokenizer import common_prefix
from .tree import CHUNK

KV_BUDGET = 1024**3
"""Bytes of keys and values that a group needs at most, unless one prompt alone needs more."""

Answered: TypeAlias = "tuple[dict[int, FieldScores], Counts] | ScoreError"
"""Scores by index of the field with a share of what the group took; or why a prompt has no scores."""


@dataclass(frozen=True, eq=False)
class Group:
    """Prompts that one forward answers; `shared` leading tokens are the same in all, `head` are cached."""

    head: int
    nodes: int
    prompts: tuple[Ints, ...] = ()
    shared: int = 0

    @property
    def below(self) -> int:
        """How many slots the forest has below the shared tokens."""
        return sum(len(prompt) - 1 - self.shared + self.nodes for prompt in self.prompts)

    def joined(self, prompt: Ints, slots: int) -> Group | None:
        """The group with one prompt more, None where one forward, or `slots` slots, do not take it too."""
        # The last token of a prompt is node 0 of its own tree.
        shared = len(prompt) - 1
        if self.prompts:
            shared = common_prefix(self.prompts[0][: min(self.shared, shared)], prompt)
        group = replace(self, prompts=(*self.prompts, prompt), shared=shared)
        run = max(0, shared - self.head) + group.below
        fits = run <= CHUNK and shared + group.below <= slots
        return group if fits or not self.prompts else None


def run_group(prefixes: PrefixCache, artifact: Artifact, group: Group, plan: Plan) -> list[Answered]:
    """Run and read one plan below each prompt, in one forward where the head's KV is there.

    Counts of passes and the largest KV are those of the group, the times are equal shares of its times. What
    is run for all counts for the first prompt.
    """
    base, stem = group.shared, group.prompts[0][: group.shared]
    token, parent, first = _forest(group, plan)
    per_token = prefixes.bytes_per_token
    with prefixes.lease(artifact.digest, base + len(token)) as prefix:
        sequence = prefix.sequence
        started, forwards, copied = perf_counter(), sequence.passes, sequence.bytes_copied
        cached = prefix.advance(stem, len(token))
        prefilled, alone = perf_counter(), sequence.length > cached
        hidden = prefix.branch(token, parent, stem)
        reads = _apart(read(sequence, hidden, tiled(plan, first)), plan, len(first))
        sequence.truncate(base)
        scores = [_weighed(plan, one, artifact) for one in reads]
        share = 1000 / len(first)
        counts = Counts(
            prefill_ms=(prefilled - started) * share if alone else 0.0,
            tree_ms=(perf_counter() - prefilled) * share,
            forwards=sequence.passes - forwards,
            sequential=alone + 1,
            cached=base,
            nodes=len(plan.token),
            positions=0,
            kv_bytes=(base + len(token)) * per_token,
            kv_added=0,
            kv_copied=0,
        )
        own = [len(prompt) - 1 - base + len(plan.token) for prompt in group.prompts]
        every = [replace(counts, positions=n, kv_added=n * per_token) for n in own]
        own[0] += base - cached
        every[0] = replace(
            every[0],
            cached=cached,
            positions=own[0],
            kv_added=own[0] * per_token,
            kv_copied=sequence.bytes_copied - copied,
        )
        pairs = zip(scores, every, strict=True)
        return [one if isinstance(one, ScoreError) else (one, counts) for one, counts in pairs]


def _forest(group: Group, plan: Plan) -> tuple[Ints, Ints, Ints]:
    """Tokens and parents below the shared slots, and which of the tokens is node 0 of each prompt."""
    tokens: list[Ints] = []
    parents: list[Ints] = []
    first: list[int] = []
    base, slot = group.shared, group.shared
    for prompt in group.prompts:
        chain = prompt[base:-1]
        above = np.arange(slot - 1, slot - 1 + len(chain), dtype=np.int32)
        above[:1] = base - 1
        slot += len(chain)
        first.append(slot - base)
        nodes = plan.parent + slot
        nodes[0] = slot - 1 if len(chain) else base - 1
        slot += len(plan.token)
        tokens += [chain, plan.token]
        parents += [above, nodes]
    return np.concatenate(tokens), np.concatenate(parents), np.array(first, dtype=np.int32)


def tiled(plan: Plan, first: Ints) -> Plan:
    """What `read` takes of a plan, once for each tree whose node 0 is hidden row `first[i]`."""
    rows = np.arange(len(first), dtype=np.int32)[:, None] * len(plan.row)

    def repeated(part: Ints) -> Ints:
        return (rows + part).ravel()

    return replace(
        plan,
        row=(first[:, None] + plan.row).ravel(),
        pick_row=np.concatenate([repeated(plan.pick_row[run]) for run in _runs(plan)]),
        edge_token=np.tile(plan.edge_token, len(first)),
        ends=tuple(EndPicks(e.ids, e.first * len(first), e.last * len(first)) for e in plan.ends),
    )


def _runs(plan: Plan) -> list[slice]:
    """The edge picks and each run of END picks; within each, rows rise."""
    return [slice(0, len(plan.edge_token)), *(slice(end.first, end.last) for end in plan.ends)]


def _apart(reads: Reads, plan: Plan, trees: int) -> list[Reads]:
    """The reads of a tiled plan, tree by tree and in the plan's own order."""
    runs = [reads.pick[run.start * trees : run.stop * trees].reshape(trees, -1) for run in _runs(plan)]
    picks = np.concatenate(runs, axis=1)
    if reads.vocabulary is None:
        return [Reads(pick, None) for pick in picks]
    return [Reads(*one) for one in zip(picks, reads.vocabulary.reshape(trees, -1), strict=True)]


def _weighed(plan: Plan, reads: Reads, artifact: Artifact) -> dict[int, FieldScores] | ScoreError:
    try:
        return dict(zip(plan.fields, weigh(plan, reads, artifact.fields), strict=True))
    except ScoreError as error:
        return error
