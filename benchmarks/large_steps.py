"""What one step of prefix verification takes: a batch of prefixes and the model's next-token beliefs."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from time import perf_counter

import numpy as np
from pcdc_runtime.fast_mlx import mx
from pcdc_runtime.indexed.rows import Rows, Span
from pcdc_runtime.selecting.beliefs import Read
from pcdc_runtime.selecting.options import Options, Verifier
from pcdc_runtime.selecting.ppv import NumpyVerifier
from pcdc_runtime.selecting.ppv_mlx import MlxVerifier

STEPS = 40
BATCH = 16
SEED = 6
Tops = Sequence[int | None]

STEP = ["one step", "NumPy ms", "MLX ms", "valid tokens a prefix", "missed at most"]


def steps(rows: Rows, width: int, tops: Tops) -> list[list[str]]:
    """One step of prefix verification for a batch of prefixes of random labels, half of them the widest one.

    The logits are random with the labels' own next tokens raised, as a model's would be.
    """
    draw = np.random.default_rng(SEED)
    spans, wanted = _prefixes(rows, draw)
    logits = draw.normal(size=(len(spans), width)).astype(np.float32) * 3
    for row, token in enumerate(wanted):
        logits[row, token] += 12
    norm = np.logaddexp.reduce(logits.astype(np.float64), axis=1)
    shown = []
    for top in tops:
        numpy_ms, found = _timed(NumpyVerifier(rows, top), spans, Read(logits, norm))
        mlx_ms, same = _timed(MlxVerifier(rows, top), spans, Read(mx.array(logits), norm))
        for one, other in zip(found, same, strict=True):
            if one.token.tolist() != other.token.tolist():
                raise SystemExit("NumPy and MLX disagree")
        missed = max(one.missed for one in found)
        valid = float(np.mean([len(one.token) for one in found]))
        name = "all children" if top is None else f"M = {top}"
        shown.append([name, f"{numpy_ms:.2f}", f"{mlx_ms:.2f}", f"{valid:.0f}", f"{missed:.1e}"])
    return shown


def _prefixes(rows: Rows, draw: np.random.Generator) -> tuple[list[Span], list[int]]:
    spans, tokens = [], []
    for number in range(BATCH):
        row = rows.row(int(draw.integers(len(rows)))).tolist()
        span = rows.whole
        # The widest prefix on the way, or one token further.
        widest = max((len(rows.children(s).token), s.depth) for s in _way(rows, row))[1]
        for token in row[: widest + (number % 2)]:
            span = _child(rows, span, token)
        spans.append(span)
        tokens.append(row[span.depth] if span.depth < len(row) else row[-1])
    return spans, tokens


def _way(rows: Rows, row: Sequence[int]) -> list[Span]:
    way = [rows.whole]
    for token in row[:-1]:
        way.append(_child(rows, way[-1], token))
    return way


def _child(rows: Rows, span: Span, token: int) -> Span:
    children = rows.children(span)
    at = int(children.token.searchsorted(token))
    return Span(int(children.start[at]), int(children.start[at + 1]), span.depth + 1)


def _timed(verifier: Verifier, spans: Sequence[Span], read: Read) -> tuple[float, list[Options]]:
    found = verifier.options(spans, read)
    took = []
    for _ in range(STEPS):
        started = perf_counter()
        found = verifier.options(spans, read)
        took.append(perf_counter() - started)
    return 1e3 * median(took), found
