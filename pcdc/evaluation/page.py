"""HTML from plain values: every text is escaped here and nowhere else."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from typing import TypeAlias

from pcdc.diagnostics import visible


class Markup(str):
    """Text that is HTML already."""


Cell: TypeAlias = str
"""Text, or Markup."""
MISSING = "–"
FEW = "too few texts"
SHOWN = 80
MATRIX_LABEL = 40

STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem; background: #fff; color: #222;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", "Liberation Sans", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .75rem; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 0 0 .5rem; overflow-wrap: anywhere; }
h3 { font-size: 1rem; margin: 1.25rem 0 .4rem; }
section { border-top: 1px solid #ddd; margin-top: 1.75rem; padding-top: 1.25rem; }
p { margin: .4rem 0 .8rem; max-width: 52rem; overflow-wrap: anywhere; }
p.lead { font-size: 1.1rem; }
ul { max-width: 52rem; padding-left: 1.2rem; margin: 0; }
li { margin: .3rem 0; }
.wide { overflow-x: auto; margin: .5rem 0 1rem; }
table { border-collapse: collapse; font-size: .875rem; }
th, td { padding: .3rem .65rem; text-align: left; vertical-align: top; border-bottom: 1px solid #e4e4e4; }
th { color: #444; font-weight: 600; vertical-align: bottom; border-bottom: 2px solid #bbb; }
.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
th.n { white-space: normal; }
td { overflow-wrap: break-word; max-width: 26rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: .5rem 0;
  font-size: .9rem; }
dt { color: #555; }
dd { margin: 0; overflow-wrap: anywhere; }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(20rem, 1fr)); gap: 1.25rem; }
figure { margin: 0; }
figcaption { font-weight: 600; }
figure p { font-size: .8rem; color: #555; margin: .3rem 0 0; max-width: 24rem; }
svg { width: 100%; max-width: 25rem; height: auto; display: block; }
svg * { stroke-linejoin: round; }
details { margin: .6rem 0; }
summary { cursor: pointer; color: #0b5394; }
pre { background: #f6f6f6; padding: .7rem; font-size: .8rem; white-space: pre-wrap; overflow-wrap: anywhere; }
.matrix td, .matrix th { text-align: center; padding: .2rem .3rem; min-width: 2.1rem; border: 1px solid #fff;
  font-variant-numeric: tabular-nums; }
.matrix th { border-bottom: 0; font-weight: 400; vertical-align: middle; }
.matrix th.row { text-align: left; white-space: nowrap; padding-right: .8rem; }
.matrix .right { outline: 2px solid #222; outline-offset: -2px; }
p.note { font-size: .8rem; color: #555; }
a { color: #0b5394; }
@media print { section { break-inside: avoid; } .grid { grid-template-columns: repeat(3, 1fr); } }
"""


def document(title: str, parts: Sequence[Markup]) -> str:
    """A whole page that may load and run nothing."""
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escaped(title)}</title>",
            f"<style>{STYLE}</style>",
            "</head>",
            "<body>",
            f"<h1>{escaped(title)}</h1>",
            *parts,
            "</body>",
            "</html>",
            "",
        ]
    )


def text(value: object) -> str:
    """A value as text that shows every character it has."""
    return visible(str(value))


def escaped(value: object) -> Markup:
    """A value as it may stand in an element or in a quoted attribute; Markup as it is."""
    if isinstance(value, Markup):
        return value
    return Markup(html.escape(text(value), quote=True))


def shortened(value: str) -> str:
    """The beginning of a long text."""
    return value if len(value) <= SHOWN else value[: SHOWN - 1] + "…"


def section(title: str, body: Sequence[Markup], anchor: str = "") -> Markup:
    """A part of the page; `anchor` is a plain name."""
    name = f' id="{anchor}"' if anchor else ""
    return Markup(f"<section{name}>\n<h2>{escaped(title)}</h2>\n" + "\n".join(body) + "\n</section>")


def heading(title: str) -> Markup:
    """A title within a section."""
    return Markup(f"<h3>{escaped(title)}</h3>")


def paragraph(words: str, *, lead: bool = False) -> Markup:
    """A paragraph of plain text."""
    kind = ' class="lead"' if lead else ""
    return Markup(f"<p{kind}>{escaped(words)}</p>")


def preformatted(words: str) -> Markup:
    """A text with its line breaks."""
    return Markup("<pre>" + "\n".join(escaped(line) for line in words.splitlines()) + "</pre>")


def details(summary: str, body: Sequence[Markup]) -> Markup:
    """What is shown on demand."""
    return Markup(f"<details><summary>{escaped(summary)}</summary>\n" + "\n".join(body) + "\n</details>")


def pairs(rows: Sequence[tuple[str, str]]) -> Markup:
    """Names with their values."""
    return Markup(
        "<dl>"
        + "".join(f"<dt>{escaped(name)}</dt><dd>{escaped(value)}</dd>" for name, value in rows)
        + "</dl>"
    )


def link(anchor: str, words: str) -> Markup:
    """A cell that leads to a section of this page."""
    return Markup(f'<a href="#{anchor}">{escaped(words)}</a>')


def strong(words: str) -> Markup:
    """A cell that stands out."""
    return Markup(f"<b>{escaped(words)}</b>")


def figure(caption: str, note: str, chart: str) -> Markup:
    """A chart, which is an SVG element, with what it shows and how to read it."""
    return Markup(
        f"<figure><figcaption>{escaped(caption)}</figcaption>{chart}<p>{escaped(note)}</p></figure>"
    )


def grid(parts: Sequence[Markup]) -> Markup:
    """Parts side by side where there is room."""
    return Markup('<div class="grid">\n' + "\n".join(parts) + "\n</div>")


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    numeric_from: int | None = None,
    text_from: int | None = None,
) -> Markup:
    """A table; columns from `numeric_from` on are set as numbers, those from `text_from` on as text again."""
    end = len(header) if text_from is None else text_from

    def kind(column: int) -> str:
        return ' class="n"' if numeric_from is not None and numeric_from <= column < end else ""

    head = "".join(f'<th scope="col"{kind(n)}>{escaped(name)}</th>' for n, name in enumerate(header))
    body = "".join(
        "<tr>" + "".join(f"<td{kind(n)}>{escaped(cell)}</td>" for n, cell in enumerate(row)) + "</tr>\n"
        for row in rows
    )
    return Markup(
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>'
    )


def matrix(labels: Sequence[str], counts: Sequence[Sequence[int]]) -> Markup:
    """A confusion matrix: a row per label, a column per answer, the last one of `counts` for none."""
    unanswered = any(row[-1] for row in counts)
    columns = [*(str(n) for n in range(1, len(labels) + 1)), *(["none"] if unanswered else [])]
    head = "".join(f'<th scope="col">{name}</th>' for name in columns)
    rows = []
    for position, (label, row) in enumerate(zip(labels, counts, strict=True)):
        total = sum(row)
        cells = "".join(_share_cell(row[n], total, right=n == position) for n in range(len(columns)))
        name = label if len(label) <= MATRIX_LABEL else label[: MATRIX_LABEL - 1] + "…"
        title = f' title="{escaped(label)}"' if name != label else ""
        rows.append(
            f'<tr><th scope="row" class="row"{title}>{position + 1}&ensp;{escaped(name)}</th>{cells}'
            f"<td>{total}</td></tr>\n"
        )
    note = "Each row is a label, each column an answer by its number. Darker: a larger share of the row. "
    note += "Framed: right." + (" none: no valid answer." if unanswered else "")
    return Markup(
        f'<p class="note">{note}</p><div class="wide"><table class="matrix"><thead><tr><th></th>{head}'
        f'<th scope="col">texts</th></tr></thead><tbody>\n{"".join(rows)}</tbody></table></div>'
    )


def number(value: float | None, digits: int = 2, *, signed: bool = False) -> str:
    """A number with so many digits behind the point."""
    return MISSING if value is None else _minus(f"{value:{'+' if signed else ''}.{digits}f}")


def share(value: float | None, digits: int = 1, *, signed: bool = False) -> str:
    """A share in per cent, or a difference of two in points of these."""
    return MISSING if value is None else _minus(f"{100 * value:{'+' if signed else ''}.{digits}f}") + " %"


def count(value: float | None) -> str:
    """A whole number, with groups of three digits apart."""
    return MISSING if value is None else f"{value:,.0f}"


def interval(ends: Sequence[float] | None, shape: Callable[[float], str]) -> str:
    """Both ends of an interval, their unit once."""
    if ends is None:
        return MISSING
    low, high = (shape(end) for end in ends)
    return f"{low.removesuffix(' %')} to {high}"


def between(ends: Sequence[float] | None, shape: Callable[[float], str]) -> str:
    """An interval of resampled figures, or why there is none."""
    return f"{MISSING} ({FEW})" if ends is None else interval(ends, shape)


def plural(counted: int, what: str) -> str:
    """So many of something."""
    return f"{count(counted)} {what}{'' if counted == 1 else 's'}"


def p_value(value: float | None) -> str:
    """A p-value with three digits; small ones as a bound."""
    if value is None:
        return MISSING
    return "<.001" if value < 0.001 else f"{value:.3f}"


def _minus(shown: str) -> str:
    return shown.replace("-", "\u2212")


def _share_cell(counted: int, total: int, *, right: bool) -> str:
    part = counted / total if total else 0.0
    # From white to the blue of the charts; the text is white where black would be harder to read.
    red, green, blue = (round(255 + (end - 255) * part) for end in (0, 114, 178))
    ink = "#fff" if part > 0.93 else "#000"
    marked = ' class="right"' if right else ""
    shown = counted if counted else ""
    return f'<td{marked} style="background:rgb({red},{green},{blue});color:{ink}">{shown}</td>'
