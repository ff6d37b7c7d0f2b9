"""Latency over each axis of the sweep as PNG and SVG; equal numbers give equal bytes."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from .methods import Entry
from .sweep import AXES, Axis

# Told apart with any colour vision (Okabe and Ito), and by line and marker as well.
COLOURS = (
    "#0072b2", "#56b4e9", "#d55e00", "#009e73", "#e69f00", "#cc79a7",
    "#a6761d", "#444444", "#b2182b", "#7b6fd0", "#999999", "#882255",
)  # fmt: skip
MARKERS = "osP^XD<v*>hp"
LINES = ("-", "--", "-.", ":")
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "pcdc bench",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.7,
}
DOTS_PER_INCH = 150


def plots(
    places: Sequence[Mapping[str, Any]], entries: Sequence[Entry], machine: str
) -> Iterator[tuple[str, bytes]]:
    """File names and contents, for each axis on which at least two points were measured."""
    for axis in AXES.values():
        measured = sorted(
            (place["point"][axis.name], place)
            for place in places
            if axis.name in place["axes"] and place["rows"]
        )
        if len(measured) < 2:
            continue
        for kind in ("png", "svg"):
            with mpl.rc_context(STYLE):
                yield f"latency-{axis.name}.{kind}", _drawn(_figure(axis, measured, entries, machine), kind)


def _figure(
    axis: Axis, measured: Sequence[tuple[int, Mapping[str, Any]]], entries: Sequence[Entry], machine: str
) -> Figure:
    figure = Figure(figsize=(11, 5.5), layout="constrained")
    axes: Axes = figure.add_subplot()
    looks = zip(cycle(COLOURS), cycle(MARKERS), cycle(LINES), strict=False)
    for entry, (colour, marker, line) in zip(entries, looks, strict=False):
        rows = [(value, row) for value, place in measured for row in place["rows"] if row["key"] == entry.key]
        if len(rows) < 2:
            continue
        is_default = entry is entries[0]
        x, times = [value for value, _ in rows], [row["ms"] for _, row in rows]
        y = [ms["median"] for ms in times]
        reach = [
            [m - ms["lower"] for m, ms in zip(y, times, strict=True)],
            [ms["upper"] - m for m, ms in zip(y, times, strict=True)],
        ]
        axes.errorbar(
            x, y, yerr=reach, color=colour, marker=marker, linestyle=line, label=rows[0][1]["title"],
            linewidth=2.6 if is_default else 1.3, markersize=7 if is_default else 5, capsize=3,
            elinewidth=1, zorder=3 if is_default else 2,
        )  # fmt: skip
    values = [value for value, _ in measured]
    if values[-1] > 10 * values[0]:
        axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(FixedLocator(values))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")
    )
    axes.set_xlabel(axis.unit)
    axes.set_ylabel("milliseconds a request\nmedian and quartiles")
    figure.suptitle(f"Latency over {axis.unit}", x=0.01, ha="left", fontsize=13)
    axes.set_title(f"the rest: {_rest(axis)}", fontsize=9, loc="left", color="#555555")
    figure.legend(loc="outside right center", frameon=False, fontsize=8.5, labelspacing=0.9)
    figure.supxlabel(textwrap.fill(machine, 190), x=0.01, ha="left", fontsize=6.5, color="#777777")
    return figure


def _rest(axis: Axis) -> str:
    """The base point without what varies."""
    base = axis.base
    parts = {
        "fields": "1 field" if base.fields == 1 else f"{base.fields} fields",
        "choices": f"{base.choices} choices",
        "length": f"{base.length} tokens a candidate",
        "context": f"{base.context} tokens of text",
    }
    return ", ".join(text for name, text in parts.items() if name != axis.name)


def _drawn(figure: Figure, kind: str) -> bytes:
    written = io.BytesIO()
    if kind == "svg":
        FigureCanvasSVG(figure).print_svg(written, metadata={"Date": None})  # type: ignore[no-untyped-call]
    else:
        figure.set_dpi(DOTS_PER_INCH)
        FigureCanvasAgg(figure).print_png(written, metadata={"Software": None})  # type: ignore[no-untyped-call]
    return written.getvalue()
