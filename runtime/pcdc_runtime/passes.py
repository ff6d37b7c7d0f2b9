"""Runs the forwards of one request on the owner thread: prompt and tree pass in, scores and counts out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TypeAlias

from .artifact import Artifact, Ints
from .plan import Plan
from .prefix import PrefixCache
from .score import FieldScores, read, weigh

Scores: TypeAlias = dict[str, dict[int, FieldScores]]
"""By rule and index of the field."""


@dataclass(frozen=True)
class Counts:
    """What the passes of one request took.

    `prefill_ms` is the time of the forwards that ran only prompt; 0 where there was none, because it was
    cached or went with the first tree pass in one forward. `sequential` are the steps that wait for one
    another: the prefill where it has forwards of its own, and each tree pass. `cached` are the leading
    prompt tokens whose KV was there, `positions` the tokens that went through the model. `kv_bytes` are the
    keys and values that the longest moment needed, `kv_added` those of them that this request computed,
    `kv_copied` those that growing a buffer moved.
    """

    prefill_ms: float
    tree_ms: float
    forwards: int
    sequential: int
    cached: int
    nodes: int
    positions: int
    kv_bytes: int
    kv_added: int
    kv_copied: int


def run_passes(
    prefixes: PrefixCache, artifact: Artifact, prompt: Ints, passes: Sequence[Sequence[Plan]]
) -> tuple[Scores, Counts]:
    """Prefill the prompt and run each pass below it; the plans of one pass share its nodes and picks."""
    base = len(prompt) - 1
    widest = max(len(plans[0].token) for plans in passes)
    scores: Scores = {plan.rule: {} for plan in passes[0]}
    with prefixes.lease(artifact.digest, base + widest) as prefix:
        sequence = prefix.sequence
        started, forwards, copied = perf_counter(), sequence.passes, sequence.bytes_copied
        cached = prefix.advance(prompt[:base], len(passes[0][0].token))
        prefilled, alone = perf_counter(), sequence.length > cached
        for plans in passes:
            shared = plans[0]
            hidden = prefix.branch(shared.token, shared.parent + base, prompt[:base])
            reads = read(sequence, hidden, shared)
            for plan in plans:
                weighed = weigh(plan, reads, artifact.fields)
                scores[plan.rule].update(zip(plan.fields, weighed, strict=True))
            sequence.truncate(base)
        ended = perf_counter()
        nodes = sum(len(plans[0].token) for plans in passes)
        return scores, Counts(
            prefill_ms=(prefilled - started) * 1000 if alone else 0.0,
            tree_ms=(ended - prefilled) * 1000,
            forwards=sequence.passes - forwards,
            sequential=alone + len(passes),
            cached=cached,
            nodes=nodes,
            positions=base - cached + nodes,
            kv_bytes=(base + widest) * prefixes.bytes_per_token,
            kv_added=(base - cached + widest) * prefixes.bytes_per_token,
            kv_copied=sequence.bytes_copied - copied,
        )
