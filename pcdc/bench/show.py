"""The figures of one place for people: the reference's lines, then three tables."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from pcdc.show import table

from .methods import PUBLISHED
from .rounds import MANY
from .written import FREE, GUIDED, STEPWISE

WIDTH = 100
"""Of a line of what was left out."""

# Three tables, each of which a terminal of 80 columns can show.
TIMES = ("method", "ms", "quartiles", "x ours", "passes", "rounds")
WORK = ("method", "forwards", "positions", "KV MB", "copied", "peak MB")
ANSWERS = ("method", "valid", "as oracle", "nats off", "per s", f"{MANY} at once")


def block(place: Mapping[str, Any], *, terminal: bool) -> str:
    """Everything that was measured at one place."""
    if place["refused"]:
        return f"{place['title']}\n  not measured: {place['refused']}\n"
    if not place["rows"]:
        short = {one["reason"] for one in place["left_out"] if one["needed_seconds"] is not None}
        reasons = short or {"there was no time"}
        return f"{place['title']}\n  not measured: {'; '.join(sorted(reasons))}\n"
    rows = {row["key"]: row for row in place["rows"]}
    notes = [f"  missing: {m['title']}: {m['reason']}\n" for m in place["missing"]]
    notes += _left_out(place["left_out"])
    return (
        _title(place)
        + "".join(_lines(rows, place["rows"][0]))
        + "\n".join(
            table(header, [cells(row) for row in place["rows"]], terminal=terminal, figures=True)
            for header, cells in ((TIMES, _times), (WORK, _work), (ANSWERS, _answers))
        )
        + "".join(notes)
    )


def _left_out(ones: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for what had no time, and one for each other reason."""
    lines: list[str] = []
    if short := [one for one in ones if one["needed_seconds"] is not None]:
        left = sorted({f"{one['left_seconds']:.2g}" for one in short}, key=float)
        span = left[0] if len(left) == 1 else f"{left[0]} to {left[-1]}"
        titles = [f"{one['title']} (about {one['needed_seconds']:.2g} s)" for one in short]
        lines.append(f"left out, no time ({span} s left): {'; '.join(titles)}")
    others: dict[str, list[str]] = {}
    for one in ones:
        if one["needed_seconds"] is None:
            others.setdefault(one["reason"], []).append(one["title"])
    lines += [f"left out, {reason}: {'; '.join(titles)}" for reason, titles in others.items()]
    return [
        textwrap.fill(line, WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
        + "\n"
        for line in lines
    ]


def _title(place: Mapping[str, Any]) -> str:
    schema = place["schema"]
    fields = "1 field" if schema["fields"] == 1 else f"{schema['fields']} fields"
    # A point of the sweep has its fields in its title.
    size = "" if place["point"] else f" ({fields})"
    rounds = "1 round" if place["rounds"] == 1 else f"{place['rounds']} rounds"
    return (
        f"{place['title']}{size}\n"
        f"  {schema['choices']} choices, {schema['nodes']} nodes, {schema['head_tokens']} head tokens; "
        f"{rounds} in {place['seconds']:.0f} s of {place['budget_seconds']:.0f} s\n"
    )


def _lines(rows: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
    """As the published benchmark prints them; every speedup names its baseline.

    What writes one token a pass stands for autoregressive decoding where nothing free is valid.
    """
    free = rows.get(FREE.key)
    alone = FREE if (free and not _invalid(free)) or STEPWISE.key not in rows else STEPWISE
    written = [
        (label, rows[writing.key])
        for label, writing in (("Autoregressive", alone), ("Constrained", GUIDED))
        if writing.key in rows
    ]
    lines = [
        f"  {label:<14} :{_took(row)}  {row['title']}{_invalid(row)}\n"
        for label, row in (*written, ("Parallel", ours))
    ]
    for row in (rows[key] for key in _BASELINES if key in rows):
        if row["ratio"]:
            steps = row["passes"] / ours["passes"]
            lines.append(
                f"  SPEEDUP: {row['ratio']['median']:.1f}x (step reduction {steps:.3g}x) "
                f"over {row['title']}{_invalid(row)}\n"
            )
    return lines


_BASELINES = (STEPWISE.key, GUIDED.key, PUBLISHED, FREE.key)


def _invalid(row: Mapping[str, Any]) -> str:
    """The mark of a row whose answers are not all valid: its time is not that of the whole answer."""
    valid = row["valid"]
    return "" if valid["yes"] == valid["of"] else f" (not valid: {valid['of'] - valid['yes']}/{valid['of']})"


def _took(row: Mapping[str, Any]) -> str:
    return f" {row['ms']['median']:8.1f} ms | {row['tokens']:3d} tokens | Passes: {row['passes']:<4d}"


def _times(row: Mapping[str, Any]) -> list[str]:
    ms = row["ms"]
    return [
        row["title"],
        _short(ms["median"]),
        "-" if row["rounds"] == 1 else f"{_short(ms['lower'])}-{_short(ms['upper'])}",
        "-" if row["ratio"] is None else f"{row['ratio']['median']:.2f}",
        str(row["passes"]),
        str(row["rounds"]),
    ]


def _work(row: Mapping[str, Any]) -> list[str]:
    megabytes = [f"{row[name] / 1e6:.1f}" for name in ("kv_bytes", "kv_copied", "peak_bytes")]
    return [row["title"], str(row["forwards"]), str(row["positions"]), *megabytes]


def _answers(row: Mapping[str, Any]) -> list[str]:
    agreement, second = row["agreement"], row["per_second"]
    off = None if agreement is None else agreement["largest_difference"]
    return [
        row["title"],
        f"{row['valid']['yes']}/{row['valid']['of']}",
        "-" if agreement is None else f"{agreement['same']}/{agreement['of']}",
        "-" if off is None else f"{off:.1e}",
        f"{second['one']:.2f}",
        "-" if second["many"] is None else f"{second['many']:.2f}",
    ]


def _short(ms: float) -> str:
    return f"{ms:.0f}" if ms >= 1000 else f"{ms:.1f}"
