"""The charts of a report as SVG elements for an HTML page: equal numbers give equal bytes.

No text of a user is drawn into them. Colours are told apart with any colour vision, and by line and marker.
"""

from __future__ import annotations

import html
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

BLUE, ORANGE, GREY, INK = "#0072b2", "#d55e00", "#8a8a8a", "#222222"
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}
SIZE = (3.5, 3.3)
MARGINS = {"left": 0.19, "right": 0.965, "bottom": 0.13, "top": 0.91, "hspace": 0.1}
Z = 1.96
"""Standard normal quantile of a 95 % interval."""

_HEAD = re.compile(r"^.*?<svg [^>]*?viewBox=\"([^\"]+)\"[^>]*>", re.DOTALL)
_NOT_SHOWN = re.compile(r"\s*<metadata>.*?</metadata>|\s*<defs>\s*<style.*?</style>\s*</defs>", re.DOTALL)
_GROUP_ID = re.compile(r'<g id="[^"]*">')


@dataclass(frozen=True)
class Curve:
    """One method's line in a chart; `points` are (x, y)."""

    label: str
    points: Sequence[tuple[float, float]]


def reliability(
    bins: Sequence[Mapping[str, Any]], before: Sequence[Mapping[str, Any]] | None, alt: str
) -> str:
    """Accuracy over mean confidence in each bin with its 95 % Wilson interval, and texts per bin below.

    `before` are the bins of the uncalibrated probabilities, where those were another method.
    """
    figure, (top, bottom) = _figure(2)
    top.plot([0, 1], [0, 1], color=GREY, linestyle=":", linewidth=1, label="perfect")
    if before is not None:
        top.plot(*_means(before), color=ORANGE, linestyle="--", marker="s", markersize=4, label="as it was")
    x, y = _means(bins)
    reach = [_wilson(one["accuracy"], one["rows"]) for one in bins]
    below = [max(0.0, a - low) for a, (low, _) in zip(y, reach, strict=True)]
    above = [max(0.0, high - a) for a, (_, high) in zip(y, reach, strict=True)]
    top.errorbar(x, y, yerr=[below, above], fmt="none", ecolor=BLUE, elinewidth=0.8, capsize=2)
    label = "in use" if before is None else "calibrated"
    top.plot(x, y, color=BLUE, marker="o", markersize=5, label=label)
    top.set(xlim=(0, 1.02), ylim=(0, 1.04), ylabel="share that is right")
    top.tick_params(labelbottom=False)
    _legend(figure, top)
    bottom.bar(x, [one["rows"] for one in bins], width=0.014, color=BLUE)
    bottom.set(xlim=(0, 1.02), xlabel="probability of the answer", ylabel="texts")
    bottom.set_ylim(0, max([one["rows"] for one in bins], default=1) * 1.15)
    bottom.locator_params(axis="y", nbins=2, integer=True)
    bottom.yaxis.set_major_formatter(_shortened)
    return _svg(figure, alt)


def risk_coverage(curves: Sequence[Curve], share: float | None, alt: str) -> str:
    """Error rate over the share of texts acted on, surest first; `share` marks a threshold."""
    figure, (axes,) = _figure(1)
    highest = max((risk for curve in curves for _, risk in curve.points), default=0.0)
    for curve, color, line in zip(curves, (BLUE, ORANGE), ("-", "--"), strict=False):
        x, y = zip(*curve.points, strict=True)
        # A single point would draw no line.
        axes.plot([0.0, *x], [y[0], *y], color=color, linestyle=line, label=curve.label)
    if share is not None:
        axes.axvline(share, color=INK, linewidth=0.9, linestyle=":", label=f"threshold ({share:.0%})")
    axes.set(xlim=(0, 1.02), ylim=(0, max(0.02, highest * 1.1)))
    axes.set(xlabel="share of texts answered, surest first", ylabel="share of these that is wrong")
    _legend(figure, axes)
    return _svg(figure, alt)


def legal_mass(counts: Sequence[int], alt: str) -> str:
    """Texts by the probability that the model itself gave to any allowed answer."""
    figure, (axes,) = _figure(1)
    width = 1 / len(counts)
    axes.bar([(n + 0.5) * width for n in range(len(counts))], counts, width=width * 0.92, color=BLUE)
    axes.set(xlim=(0, 1), xlabel="probability of any allowed answer", ylabel="texts")
    axes.set_ylim(0, max(*counts, 1) * 1.08)
    axes.locator_params(axis="y", integer=True)
    axes.yaxis.set_major_formatter(_shortened)
    return _svg(figure, alt)


def _shortened(count: float, _: float) -> str:
    """A number of texts that fits beside an axis."""
    if count < 10_000:
        return f"{count:.0f}"
    return f"{count / 1e6:g}M" if count >= 1e6 else f"{count / 1e3:g}k"


def _figure(rows: int) -> tuple[Figure, list[Axes]]:
    with mpl.rc_context(STYLE):
        # Fixed margins: finding them takes longer than drawing.
        figure = Figure(figsize=SIZE)
        heights = [4, 1] if rows == 2 else [1]
        grid = figure.add_gridspec(rows, 1, height_ratios=heights, **MARGINS)
        return figure, [figure.add_subplot(grid[row]) for row in range(rows)]


def _legend(figure: Figure, axes: Axes) -> None:
    """Above the plot, where it hides no point."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="upper left", bbox_to_anchor=(0.02, 0.99), ncols=3, frameon=False, fontsize=8,
        handlelength=1.6, columnspacing=1.0, borderpad=0, borderaxespad=0,
    )  # fmt: skip


def _means(bins: Sequence[Mapping[str, Any]]) -> tuple[list[float], list[float]]:
    return [one["confidence"] for one in bins], [one["accuracy"] for one in bins]


def _wilson(share: float, rows: int) -> tuple[float, float]:
    """The 95 % score interval of a share (Wilson 1927)."""
    scale = 1 + Z * Z / rows
    middle = (share + Z * Z / (2 * rows)) / scale
    reach = Z / scale * math.sqrt(share * (1 - share) / rows + Z * Z / (4 * rows * rows))
    return middle - reach, middle + reach


def _svg(figure: Figure, alt: str) -> str:
    """The figure as an element of its own: no prolog, no metadata, no names that two charts could share."""
    written = io.BytesIO()
    with mpl.rc_context({**STYLE, "svg.hashsalt": alt}):
        # The canvas itself: `savefig` would draw twice.
        FigureCanvasSVG(figure).print_svg(written, metadata={"Date": None})  # type: ignore[no-untyped-call]
    text = _NOT_SHOWN.sub("", written.getvalue().decode())
    text = _GROUP_ID.sub("<g>", text).replace("xlink:href", "href")
    name = html.escape(alt, quote=True)
    return _HEAD.sub(
        lambda m: f'<svg viewBox="{m[1]}" role="img" aria-label="{name}">', text, count=1
    ).strip()
