"""Constrained decoding over an index (Cao et al., 2021), the biased baseline: greedy, sampled, beam.

At every step only tokens that continue a label are possible, and the label's END set competes with them as
one more token. What comes out is the model's choice token by token, not its most probable label.
"""

from __future__ import annotations

import math

import numpy as np

from pcdc_runtime.errors import ScoreError
from pcdc_runtime.indexed.rows import Rows

from .beliefs import Beliefs
from .drawing import draw, stream
from .options import Verifier
from .outcome import Outcome
from .walk import Prefix, Walk


def greedy(rows: Rows, beliefs: Beliefs, verifier: Verifier) -> Outcome:
    """The most probable way to go on at every step; among equals the closing, then the lowest token."""
    return beam(rows, beliefs, verifier, width=1)


def sampled(rows: Rows, beliefs: Beliefs, verifier: Verifier, *, seed: int) -> Outcome:
    """One label drawn step by step, each by its share of the legal mass.

    Raises ScoreError where the draw comes to a prefix that nothing possible continues.
    """
    walk = Walk(rows, beliefs, verifier)
    (candidate,) = draw(walk, [stream(seed, 0, 0)])
    return walk.outcome([candidate.entry])


def beam(rows: Rows, beliefs: Beliefs, verifier: Verifier, *, width: int, k: int = 1) -> Outcome:
    """The `k` best labels of a beam search, fewer where it finishes fewer.

    At every step the `width` best of all continuations go on, ranked by P_L of what is written so far, not
    renormalized by the legal mass (as generative retrieval ranks them). A closing among them is finished and
    kept. The search ends where no live prefix is more probable than the k-th finished label. A label's
    finished forms count together. Raises ScoreError where nothing finishes.
    """
    walk = Walk(rows, beliefs, verifier)
    live = [walk.root]
    finished: dict[int, float] = {}
    while live:
        steps: list[tuple[Prefix, int]] = []
        best = -math.inf
        for chance, prefix, option in _best(live, width):
            child = option - len(prefix.options.close)
            if child >= 0:
                best = max(best, chance)
                steps.append((prefix, child))
            else:
                entry = int(prefix.options.entry[option])
                finished[entry] = float(np.logaddexp(finished.get(entry, -math.inf), chance))
        if len(finished) >= k and sorted(finished.values(), reverse=True)[k - 1] >= best:
            break
        live = walk.below(steps)
    if not finished:
        raise ScoreError(
            f"a beam of {width}",
            "finished no label: every continuation that it kept has probability zero",
            "one label at least must be possible",
            "take a wider beam or another method",
        )
    return walk.outcome(sorted(finished, key=lambda entry: -finished[entry])[:k])


def _best(live: list[Prefix], width: int) -> list[tuple[float, Prefix, int]]:
    """The `width` most probable continuations, those of earlier prefixes first among equals."""
    chances = [prefix.log_prob + prefix.log_options for prefix in live]
    owner = np.repeat(np.arange(len(live)), [len(part) for part in chances])
    option = np.concatenate([np.arange(len(part)) for part in chances])
    chance = np.concatenate(chances)
    order = np.argsort(-chance, kind="stable")[:width]
    return [(float(chance[i]), live[owner[i]], int(option[i])) for i in order if chance[i] > -math.inf]
