"""How long each way to keep a catalog takes to be ready, and to say what may follow a prefix."""

from __future__ import annotations

import gc
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import TYPE_CHECKING

from pcdc.show import table

from .tries import Mask, MaskBaseline, baselines

if TYPE_CHECKING:
    from pcdc_runtime.indexed.index import Index

WALKS = 200
ROUNDS = 3
"""How often each file is opened; the least time counts, with the file in memory."""


@dataclass(frozen=True)
class MaskFigures:
    """What one way took, or why it is `missing`; wall clock in milliseconds, `cpu` of the process.

    `ready` is opening the file and the mask where labels first part, `step` the mean and `usual` the median
    over the prefixes of random labels, the first visit of each included. `agrees` says that each mask is the
    index's.
    """

    key: str
    title: str
    missing: str = ""
    build: float = 0.0
    size: int = 0
    ready: float = 0.0
    cpu: float = 0.0
    step: float = 0.0
    usual: float = 0.0
    agrees: bool = False


def mask_figures(index: Index, ways: Sequence[MaskBaseline] = (), walks: int = WALKS) -> list[MaskFigures]:
    """Measures all ways at the same prefixes of one catalog; the first is what the others must agree with."""
    prefixes = walked(index, walks)
    figures: list[MaskFigures] = []
    known: list[Mask] = []
    for way in ways or baselines():
        try:
            with TemporaryDirectory() as folder:
                one, masks = _measured(way, index, Path(folder), prefixes)
        except (ImportError, RecursionError, MemoryError) as error:
            one, masks = MaskFigures(way.key, way.title, missing=f"{type(error).__name__}: {error}"), []
        known = known or masks
        figures.append(one if one.missing else _judged(one, masks, known))
    return figures


def mask_table(figures: Sequence[MaskFigures], *, terminal: bool) -> str:
    """The figures for people; every factor is against the first of them."""
    first = figures[0]
    header = ["kept as", "build s", "MB", "ready ms", "factor", "mean step us", "median", "same"]
    rows = [
        [
            one.title,
            f"{one.build / 1e3:.2f}",
            f"{one.size / 1e6:.1f}",
            f"{one.ready:.1f}",
            f"{one.ready / first.ready:.1f}",
            f"{1e3 * one.step:.0f}",
            f"{1e3 * one.usual:.1f}",
            "yes" if one.agrees else "NO",
        ]
        for one in figures
        if not one.missing
    ]
    notes = [f"  missing: {one.title}: {one.missing}\n" for one in figures if one.missing]
    return table(header, rows, terminal=terminal, figures=True) + "".join(notes)


def walked(index: Index, walks: int) -> list[tuple[int, ...]]:
    """Where labels first part, then every prefix on the way of some random labels from there on."""
    rows = index.rows
    first, last = (tuple(rows.row(row).tolist()) for row in (0, len(rows) - 1))
    parting = next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), 0)
    prefixes = [first[:parting]]
    draw = random.Random(len(rows))
    for _ in range(walks):
        path = tuple(rows.row(draw.randrange(len(rows))).tolist())
        prefixes += [path[:depth] for depth in range(parting, len(path) + 1)]
    return prefixes


def _measured(
    way: MaskBaseline, index: Index, folder: Path, prefixes: Sequence[tuple[int, ...]]
) -> tuple[MaskFigures, list[Mask]]:
    path = folder / way.key
    began = perf_counter()
    way.build(index, path)
    build = perf_counter() - began
    ready: list[tuple[float, float]] = []
    for _ in range(ROUNDS):
        gc.collect()
        began, used = perf_counter(), process_time()
        way.open(path)
        way.mask(prefixes[0])
        ready.append((perf_counter() - began, process_time() - used))
    steps: list[float] = []
    masks: list[Mask] = []
    for prefix in prefixes:
        began = perf_counter()
        masks.append(way.mask(prefix))
        steps.append(perf_counter() - began)
    wall, cpu = min(ready)
    size = sum(file.stat().st_size for file in folder.iterdir())
    times = (1e3 * seconds for seconds in (build, wall, cpu, fmean(steps), median(steps)))
    build, wall, cpu, step, usual = times
    return MaskFigures(way.key, way.title, "", build, size, wall, cpu, step, usual), masks


def _judged(one: MaskFigures, masks: Sequence[Mask], known: Sequence[Mask]) -> MaskFigures:
    same = all(
        sorted(mine.tokens) == sorted(theirs.tokens) and mine.closes == theirs.closes
        for mine, theirs in zip(masks, known, strict=True)
    )
    return replace(one, agrees=same)
