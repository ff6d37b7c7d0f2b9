"""Dynamic importance sampling for constrained decoding (DISC: Ye et al., algorithm 1).

A candidate of constrained decoding is accepted with the product of its legal masses as probability, which
makes an accepted one a draw from the model's own distribution over the catalog, P_S. After K rejections one
of K new candidates is drawn by those products.
"""

from __future__ import annotations

import math

import numpy as np

from pcdc_runtime.indexed.rows import Rows

from .beliefs import Beliefs
from .drawing import draw, stream
from .options import Verifier
from .outcome import Outcome, Sampling
from .walk import Walk

ATTEMPT, RESAMPLE, CHOICE = range(3)


def disc(rows: Rows, beliefs: Beliefs, verifier: Verifier, *, k: int, seed: int) -> Outcome:
    """One entry, by a law that is P_S up to p_bad^k and tends to it as `k` grows.

    The candidates are drawn side by side, the answer is the first accepted one in their order. Where a top-M
    missed valid tokens, weights and law are those of what was looked at. Raises ScoreError where a draw comes
    to a prefix that nothing possible continues.
    """
    walk = Walk(rows, beliefs, verifier)
    streams = [stream(seed, ATTEMPT, number) for number in range(k)]
    drawn = draw(walk, streams)
    rolls = [each.random() for each in streams]
    hits = (i for i, one in enumerate(drawn) if rolls[i] < math.exp(one.log_weight))
    hit = next(hits, None)
    if hit is not None:
        chosen, new = drawn[hit], []
    else:
        new = draw(walk, [stream(seed, RESAMPLE, number) for number in range(k)])
        log_weight = np.array([one.log_weight for one in new])
        share = np.exp(log_weight - log_weight.max()).cumsum()
        place = stream(seed, CHOICE, 0).random() * share[-1]
        chosen = new[min(int(np.searchsorted(share, place, side="right")), k - 1)]
    sampling = Sampling(
        seed=seed,
        attempts=k if hit is None else hit + 1,
        accepted=hit is not None,
        resampled=len(new),
        weights=tuple(math.exp(one.log_weight) for one in (*drawn, *new)),
    )
    return walk.outcome([chosen.entry], sampling)
