"""A verifier in plain Python floats, row by row: the methods are tested on it, whatever the real one does."""

import math

import numpy as np
from pcdc_runtime.selecting.options import Options
from tables import forms_of


class PlainVerifier:
    """With `top`, a token is valid only among the `top` most probable, and all are where none of those is."""

    def __init__(self, rows, top=None):
        self.forms = forms_of(rows)
        self.top = top

    def options(self, spans, read):
        return [self._one(span, read.logit[i], float(read.norm[i])) for i, span in enumerate(spans)]

    def _one(self, span, logit, norm):
        chance = [math.exp(float(x) - norm) for x in logit]
        closings, children = [], {}
        for row in range(span.low, span.high):
            entry, path, end = self.forms[row]
            if len(path) == span.depth:
                closings.append((entry, math.fsum(chance[token] for token in end)))
            else:
                children.setdefault(path[span.depth], []).append(row)
        kept = sorted(children)
        if self.top is not None:
            ranked = sorted(range(len(chance)), key=lambda token: (-chance[token], token))[: self.top]
            kept = [token for token in kept if token in ranked] or kept
        missed = math.fsum(chance[token] for token in children if token not in kept)
        with np.errstate(divide="ignore"):
            return Options(
                token=np.array(kept, dtype=np.int32),
                low=np.array([children[token][0] for token in kept], dtype=np.int32),
                high=np.array([children[token][-1] + 1 for token in kept], dtype=np.int32),
                log_prob=np.log(np.array([chance[token] for token in kept], dtype=np.float64)),
                entry=np.array([entry for entry, _ in closings], dtype=np.int32),
                close=np.log(np.array([p for _, p in closings], dtype=np.float64)),
                missed=missed,
            )
