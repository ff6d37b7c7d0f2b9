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
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

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
STEP = 0.006
"""The part of an axis by which markers at one value stand apart."""


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
    figure = Figure(figsize=(10, 7.5), layout="constrained")
    axes: Axes = figure.add_subplot()
    looks = zip(cycle(COLOURS), cycle(MARKERS), cycle(LINES), strict=False)
    values = [value for value, _ in measured]
    is_log = values[-1] > 10 * values[0]
    lines = {entry.key: _rows(measured, entry) for entry in entries}
    drawn = [key for key, rows in lines.items() if len(rows) > 1]
    for entry, (colour, marker, line) in zip(entries, looks, strict=False):
        rows = lines[entry.key]
        if len(rows) < 2:
            continue
        is_default = entry is entries[0]
        # Markers at one value stand side by side; the default's stands where it belongs.
        place = (drawn.index(entry.key) + 1) // 2 * (-1) ** drawn.index(entry.key)
        x = [_beside(value, place, values, is_log=is_log) for value, _ in rows]
        times = [row["ms"] for _, row in rows]
        y = [ms["median"] for ms in times]
        axes.plot(
            x, y, color=colour, marker=marker, linestyle=line, label=rows[0][1]["title"],
            linewidth=2.6 if is_default else 1.3, markersize=8 if is_default else 6.5,
            markerfacecolor=colour if is_default else "white", zorder=3 if is_default else 2,
        )  # fmt: skip
        # A single round has no quartiles.
        for at, (_, row) in zip(x, rows, strict=True):
            if row["rounds"] > 1:
                axes.vlines(at, row["ms"]["lower"], row["ms"]["upper"], colour, linewidth=1.2, zorder=4)
    if is_log:
        axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(FixedLocator(values))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 1000 * low else (1,), numticks=20))
    axes.yaxis.set_minor_locator(LogLocator(subs=range(1, 10), numticks=100))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(visible=True, which="minor", color="#f2f2f2", linewidth=0.5)
    axes.set_xlabel(axis.unit)
    axes.set_ylabel("milliseconds a request, median and quartiles")
    figure.suptitle(f"Latency over {axis.unit}", x=0.01, ha="left", fontsize=13)
    axes.set_title(
        "\n".join(
            textwrap.fill(text, 135) for text in (f"the rest: {_rest(axis)}", *_undrawn(entries, lines))
        ),
        fontsize=8.5,
        loc="left",
        color="#555555",
    )
    axes.legend(
        loc="upper left", bbox_to_anchor=(0, -0.09), borderaxespad=0, ncols=2, frameon=False, fontsize=8,
        handlelength=3,
    )  # fmt: skip
    figure.supxlabel(textwrap.fill(machine, 190), x=0.01, ha="left", fontsize=6.5, color="#777777")
    return figure


def _rows(measured: Sequence[tuple[int, Mapping[str, Any]]], entry: Entry) -> list[tuple[int, Any]]:
    return [(value, row) for value, place in measured for row in place["rows"] if row["key"] == entry.key]


def _beside(value: int, place: int, values: Sequence[int], *, is_log: bool) -> float:
    """The value moved by so many steps, each a small part of the axis."""
    if is_log:
        return float(value * (values[-1] / values[0]) ** (STEP * place))
    return value + STEP * place * (values[-1] - values[0])


def _undrawn(entries: Sequence[Entry], lines: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """Which methods have no line, and why."""
    for why, count in (("not measured", 0), ("at one point only, not drawn", 1)):
        if titles := [entry.title for entry in entries if len(lines[entry.key]) == count]:
            yield f"{why}: {'; '.join(titles)}"


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
