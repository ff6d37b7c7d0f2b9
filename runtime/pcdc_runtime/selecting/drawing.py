"""Candidates drawn by constrained decoding (Ye et al., algorithm 1, SampleCandidate), many side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .walk import Prefix, Walk


@dataclass(frozen=True)
class Candidate:
    """A drawn entry and the log of its weight: the product of the legal masses on its way.

    It was drawn with probability P_L(form) / weight.
    """

    entry: int
    log_weight: float


def stream(seed: int, part: int, number: int) -> np.random.Generator:
    """The random numbers of one candidate: the same however many are drawn with it."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(part, number)))


def draw(walk: Walk, streams: Sequence[np.random.Generator]) -> list[Candidate]:
    """One candidate for each stream, independent of one another, in one pass a level.

    END competes: a label can be drawn that begins with another. Raises ScoreError where a draw comes to a
    prefix that nothing possible continues.
    """
    at = [walk.root] * len(streams)
    entry = [0] * len(streams)
    log_weight = [0.0] * len(streams)
    live = list(range(len(streams)))
    while live:
        steps: list[tuple[Prefix, int]] = []
        onward: list[int] = []
        for i in live:
            options = at[i].options
            option = at[i].pick(streams[i].random())
            log_weight[i] += at[i].log_legal
            if option < len(options.close):
                entry[i] = int(options.entry[option])
            else:
                steps.append((at[i], option - len(options.close)))
                onward.append(i)
        for i, prefix in zip(onward, walk.below(steps), strict=True):
            at[i] = prefix
        live = onward
    return [Candidate(e, w) for e, w in zip(entry, log_weight, strict=True)]
