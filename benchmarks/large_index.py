"""What an index costs: building it, opening it, asking what may follow a prefix."""

from __future__ import annotations

import resource
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import numpy as np
from pcdc_runtime.fast_mlx import mx
from pcdc_runtime.indexed.codec import open_index, write_index
from pcdc_runtime.indexed.index import Index
from pcdc_runtime.indexed.rows import Rows, Span
from pcdc_runtime.selecting.beliefs import Read
from pcdc_runtime.selecting.options import Verifier
from pcdc_runtime.selecting.ppv import NumpyVerifier
from pcdc_runtime.selecting.ppv_mlx import MlxVerifier
from pcdc_runtime.tokenizer import encode_texts

from pcdc.indexing.emit import compile_index
from pcdc.indexing.parse import parse_index_file
from pcdc.indexing.prompting import render_index_prompt
from pcdc.prompt import Target
from pcdc.tokenization import line_opening

OPENED = 5
STEPS = 40
BATCH = 16
SEED = 6
CONTINUED = ('"', '"}', '",', '"\n')
"""What a line goes on with: the label's own tokens and each of these decide its forms."""
Tops = Sequence[int | None]


@dataclass(frozen=True)
class Built:
    """One index on disk, and what making it took; times in seconds, `peak` in bytes of this process."""

    path: Path
    index: Index
    labels: int
    read: float
    compiled: float
    cpu: float
    tokenizer: float
    written: float
    again: float
    size: int
    opened_ms: float
    checked_ms: float
    peak: int

    @property
    def cells(self) -> list[str]:
        rows = self.index.rows
        return [
            f"{self.labels:,}",
            f"{rows.entries:,}",
            f"{len(rows):,}",
            f"{len(rows.token) / len(rows):.1f}",
            f"{self.read:.2f}",
            f"{self.compiled:.2f}",
            f"{self.tokenizer:.2f}",
            f"{self.written:.2f}",
            f"{self.again:.2f}",
            f"{self.size / 1e6:.1f}",
            f"{self.size / (4 * max(1, len(rows.token))):.2f}",
            f"{self.opened_ms:.1f}",
            f"{self.checked_ms:.1f}",
            f"{self.peak / 2**30:.2f}",
        ]


BUILT = [
    *("labels", "entries", "rows", "tokens each", "read s", "compile s", "of it tokenizer", "write s"),
    *("again s", "MB", "x raw ids", "open ms", "check ms", "peak GiB"),
]


def build(definition_path: Path, target: Target, path: Path) -> Built:
    """Read, compile and write an index, and compile it again from itself with nothing changed.

    The tokenizer's time is that of encoding the same lines once more, alone.
    """
    started = perf_counter()
    definition, problems = parse_index_file(definition_path)
    if definition is None:
        raise SystemExit(f"{definition_path}: {problems[0].fact}")
    read, used = perf_counter() - started, process_time()
    started = perf_counter()
    index, problems = compile_index(definition, target)
    if index is None:
        raise SystemExit(f"{definition_path}: {problems[0].fact}")
    compiled, cpu = perf_counter() - started, process_time() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    started = perf_counter()
    write_index(path, index)
    written = perf_counter() - started
    opened, checked = [], []
    for _ in range(OPENED):
        started = perf_counter()
        found = open_index(path)
        opened.append(perf_counter() - started)
        _ = found.rows
        checked.append(perf_counter() - started)
    started = perf_counter()
    same, _ = compile_index(definition, target, found)
    again = perf_counter() - started
    if same is None or same.digest != index.digest:
        raise SystemExit(f"{definition_path}: compiling again from the index gives another one")
    prompt = render_index_prompt(definition, target)
    opening = line_opening(definition.field)
    started = perf_counter()
    for first in range(0, len(definition.entries.labels), 8192):
        labels = definition.entries.labels[first : first + 8192]
        for after in CONTINUED:
            texts = [prompt.line_text(opening + '"' + label + after) for label in labels]
            encode_texts(target.tokenizer, texts)
    tokenizer = perf_counter() - started
    return Built(
        path=path,
        index=found,
        labels=len(definition.entries.labels),
        read=read,
        compiled=compiled,
        cpu=cpu,
        tokenizer=tokenizer,
        written=written,
        again=again,
        size=path.stat().st_size,
        opened_ms=1e3 * median(opened),
        checked_ms=1e3 * median(checked),
        peak=peak,
    )


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


def _timed(verifier: Verifier, spans: Sequence[Span], read: Read) -> tuple[float, list]:
    found = verifier.options(spans, read)
    took = []
    for _ in range(STEPS):
        started = perf_counter()
        found = verifier.options(spans, read)
        took.append(perf_counter() - started)
    return 1e3 * median(took), found
