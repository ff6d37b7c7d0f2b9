"""A forest with long, short, deep and wide parts, and what a model's own plain forward says of each path.

The oracle runs every root-to-leaf path as an ordinary text, without a cache. It knows nothing of slots.
"""

import mlx.core as mx
import numpy as np
from pcdc_runtime.mlx_model import MlxModel
from pcdc_runtime.model import cache_windows
from seeded import VOCAB, WINDOW, seeded

PREFIX = 5 * WINDOW + 11
CHUNK = 7
P = PREFIX
FIRST = [P - 1, P, P + 1, P + 1, P - 1, P + 4, P + 5, P + 6, P + 7, P + 8, P + 9, P + 10, P + 11, P]
S = P + len(FIRST)
SECOND = [P + 3, S, P + 12, P + 5, S + 2, P - 1, 20, S + 6]
PARENTS = [*range(-1, P - 1), *FIRST, *SECOND]
IDS = np.random.default_rng(7).integers(0, VOCAB, len(PARENTS)).astype(np.int32)


def tiny(family, dtype="float32", *, bits=None, chunk=CHUNK, **changes):
    """A tiny model of a family, wired as load_model wires one."""
    from mlx_lm.models.cache import make_prompt_cache

    language = seeded(family, dtype, bits=bits, **changes)
    return MlxModel(language, family, cache_windows(family, make_prompt_cache(language)), chunk=chunk)


def fill(sequence):
    """Append the forest: the prefix in uneven parts, then a tree, then a tree below earlier slots."""
    parts = [sequence.append(IDS[low:high]) for low, high in ((0, 1), (1, 20), (20, P))]
    parts.append(sequence.append(IDS[P:S], np.array(FIRST, dtype=np.int32)))
    parts.append(sequence.append(IDS[S:], np.array(SECOND, dtype=np.int32)))
    return mx.concatenate(parts)


def scores(sequence, hidden):
    """Log-probabilities of every row, float64."""
    return log_softmax(sequence.logits(hidden, range(len(hidden))))


def log_softmax(logits):
    x = np.array(logits.astype(mx.float32), dtype=np.float64)
    x -= x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def path(slot, parents=PARENTS):
    """The slots from the root down to one."""
    found = []
    while slot >= 0:
        found.append(slot)
        slot = parents[slot]
    return found[::-1]


def plain(family, dtype="float32", *, bits=None, ids=IDS, parents=PARENTS, **changes):
    """Log-probabilities of every slot by plain forwards of the unwired model."""
    model = seeded(family, dtype, bits=bits, **changes)
    result = np.full((len(parents), VOCAB), np.nan)
    for leaf in sorted(set(range(len(parents))) - set(parents)):
        slots = path(leaf, parents)
        result[slots] = log_softmax(model(mx.array(ids[slots])[None])[0])
    return result


def gap(left, right):
    """The largest difference in nats; NaN counts as infinite."""
    return float(np.nan_to_num(np.abs(left - right), nan=np.inf).max())
