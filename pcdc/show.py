"""Rendering for people: aligned tables, rich tables on a terminal, trie pictures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from io import StringIO
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

from .describe import ArtifactView, FieldView, Token
from .diagnostics import visible

if TYPE_CHECKING:
    from pcdc_runtime.result import FieldResult, Result

    from .indexing.describe import IndexView, LabelView

MAX_SHOWN = 12
DEFAULT_THRESHOLD = 0.75
"""Below which probability an answer of an uncalibrated run is marked."""


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, terminal: bool, figures: bool = False
) -> str:
    """Rows as text: with rich's rules and colours on a terminal, else only aligned columns.

    With `figures` all but the first column hold figures, which a narrow terminal does not break.
    """
    lines = [[visible(cell) for cell in row] for row in [header, *rows]]
    if terminal:
        drawn = Table(box=SIMPLE_HEAD, show_edge=False) if figures else Table()
        for number, name in enumerate(lines[0]):
            drawn.add_column(escape(name), no_wrap=figures and number > 0)
        for line in lines[1:]:
            drawn.add_row(*map(escape, line))
        return _drawn(drawn, terminal=terminal)
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    padded = (
        [cell + " " * (width - cell_len(cell)) for cell, width in zip(line, widths, strict=True)]
        for line in lines
    )
    return "".join("  ".join(line).rstrip() + "\n" for line in padded)


def result_table(result: Result, threshold: float | None, *, terminal: bool) -> str:
    """Every answer with its probability, then one line about the run.

    Answers below the threshold are marked. None stands for each field's own, and what has none is marked too,
    as `Result.route` decides; in a run without any calibration it stands for DEFAULT_THRESHOLD.
    """
    if threshold is None and not any(f.calibration or f.calibration_dropped for f in result.answers):
        threshold = DEFAULT_THRESHOLD
    rows = [
        [
            name,
            json.dumps(field.value, ensure_ascii=False),
            f"{field.prob:.4f}",
            _legal_mass(field),
            f"{field.margin:.2f}",
            _note(field, threshold),
        ]
        for name, field in result.fields.items()
    ]
    header = ["field", "value", "probability", "legal mass", "margin", "note"]
    heat = "" if result.temperature == 1 else f"temperature {result.temperature:g}, "
    pruned = "" if result.pruning is None else f"pruned within {result.pruning:g}, "
    fitted = sum(field.calibration is not None for field in result.answers)
    calibrated = f"calibrated: {fitted} of {len(result.answers)} fields" if fitted else "uncalibrated"
    # A short text goes through the model together with the tree.
    apart = f"prefill {result.prefill_ms:.1f} ms, tree pass" if result.prefill_ms else "prefill and tree pass"
    count = result.sequential_forward_passes
    run = (
        f"{apart} {result.suffix_eval_ms:.1f} ms, "
        f"{count} {'pass' if count == 1 else 'passes'}, {result.nodes} nodes, "
        f"{result.context_tokens} context tokens, scoring {result.scoring}, {heat}{pruned}{calibrated}, "
        f"artifact {result.artifact_digest[:12]}, model {result.model}\n"
    )
    return table(header, rows, terminal=terminal) + run


def _legal_mass(field: FieldResult) -> str:
    """Marked where what pruning left out could change what is shown of it."""
    if field.legal_mass is None:
        return "-"
    shown, most = (f"{mass:.4f}" for mass in (field.legal_mass, field.legal_mass + field.legal_mass_slack))
    return shown if shown == most else f">={shown}"


def _note(field: FieldResult, threshold: float | None) -> str:
    notes = []
    if threshold is None and field.calibration:
        threshold = field.calibration.threshold
    if threshold is None:
        notes.append("calibration dropped" if field.calibration_dropped else "no threshold")
    elif field.prob < threshold:
        notes.append(f"below {threshold:g}")
    if field.tie or field.near_tie:
        notes.append("tie" if field.tie else "near tie")
    return ", ".join(notes)


def artifact_picture(view: ArtifactView, *, terminal: bool) -> str:
    """An artifact for people: its prompt's size, and per field candidates, END sets, collisions, trie."""
    inputs = "".join(f"  {key}: {value[:12]}\n" for key, value in view.inputs.items())
    head = (
        f"schema {view.name}, model {view.model}, scoring {view.scoring}, temperature {view.temperature:g}\n"
        f"digest {view.digest}\n"
        f"prompt: {view.head_tokens} head tokens, {view.tail_tokens} tail tokens\n"
        f"forest: {view.nodes} nodes, {view.forms} surface forms\n"
        f"inputs:\n{inputs}"
    )
    return head + "".join("\n" + _field_picture(field, terminal) for field in view.fields)


def index_picture(view: IndexView) -> str:
    """An index for people: what it asks, how much it holds, which labels are one answer."""
    inputs = "".join(f"  {visible(key)}: {visible(value[:12])}\n" for key, value in view.inputs.items())
    times = f"{view.file_bytes / view.raw_id_bytes:.2f} times" if view.raw_id_bytes else "beside no"
    lines = [
        f"index {view.name}, model {view.model}, field {view.field}, temperature {view.temperature:g}",
        f"digest {view.digest}",
        f"question: {view.question}",
        f"prompt: {view.head_tokens} head tokens, {view.tail_tokens} tail tokens, "
        f"{view.examples} worked examples",
        f"catalog: {view.entries:,} entries, {view.labels:,} labels"
        + (", with ids" if view.has_ids else ", which are their own ids"),
        f"rows: {view.rows:,} rows of {view.tokens:,} tokens, the longest of {view.longest_row}; "
        f"{view.end_sets} END sets",
        f"file: {view.file_bytes:,} bytes, {times} the raw ids ({view.raw_id_bytes:,} bytes)",
        "inputs:",
    ]
    grouped = f"grouped: {len(view.groups):,} entries of {sum(map(len, view.groups)):,} labels\n"
    shown = "".join(f"one answer: {_labels(_named(group))}\n" for group in view.groups[:MAX_SHOWN])
    more = len(view.groups) - MAX_SHOWN
    return (
        "".join(f"{visible(line)}\n" for line in lines)
        + inputs
        + grouped
        + shown
        + (f"one answer: {more:,} more\n" if more > 0 else "")
    )


def _named(group: Sequence[LabelView]) -> list[str]:
    return [row.label if row.id == row.label else f"{row.label} ({row.id})" for row in group]


def _field_picture(field: FieldView, terminal: bool) -> str:
    reads = ", ".join(f"{rule} {count}" for rule, count in field.reads.items())
    rows = [
        [
            c.choice,
            tokens_text(c.tokens),
            "yes" if c.is_single_token else "no",
            str(len(c.forms)),
        ]
        for c in field.candidates
    ]
    parts = [
        f"field {field.name} ({field.type}): {visible(field.description)}\n",
        f"suffix: {tokens_text(field.suffix)}\n",
        f"nodes: {field.nodes}; read by {reads}\n",
        table(["choice", "tokens", "single token", "forms"], rows, terminal=terminal),
        *(
            f"END set {end.index}: {end.size} tokens"
            + ("" if end.remainder is None else f" that begin with {end.remainder!r}")
            + f", such as {tokens_text(end.examples)}\n"
            for end in field.ends
        ),
        *_collision_lines(field),
        _trie_picture(field, terminal),
    ]
    return "".join(parts)


def _collision_lines(field: FieldView) -> list[str]:
    found = field.collisions
    lines = [f"same first token: {_labels(group)}\n" for group in found.first_token]
    lines += [f"token prefix: {short!r} of {long!r}\n" for short, long in found.prefixes[:MAX_SHOWN]]
    if len(found.prefixes) > MAX_SHOWN:
        lines.append(f"token prefix: {len(found.prefixes) - MAX_SHOWN} more pairs\n")
    if found.merges:
        lines.append(f"merges with a quote: {_labels(found.merges)}\n")
    return lines


def _labels(labels: Sequence[str]) -> str:
    more = f" and {len(labels) - MAX_SHOWN} more" if len(labels) > MAX_SHOWN else ""
    return ", ".join(map(repr, labels[:MAX_SHOWN])) + more


def _trie_picture(field: FieldView, terminal: bool) -> str:
    trees: list[Tree] = []
    for row in field.trie:
        ends = f"  => {_labels(row.ends)}" if row.ends else ""
        label = escape(f"{tokens_text(row.tokens)}{ends}")
        trees.append(Tree(label) if row.parent < 0 else trees[row.parent].add(label))
    return _drawn(trees[0], terminal=terminal)


def tokens_text(tokens: Sequence[Token]) -> str:
    """Tokens as quoted text with ids, or ids alone where their text is not known."""
    return " ".join(str(t.id) if t.text is None else f"{t.text!r}:{t.id}" for t in tokens)


def _drawn(renderable: Table | Tree, *, terminal: bool) -> str:
    buffer = StringIO()
    # A tree is as wide as it is deep: the terminal breaks its lines.
    width = None if isinstance(renderable, Table) else 10_000
    console = Console(file=buffer, force_terminal=terminal, width=width, highlight=False)
    console.print(renderable, soft_wrap=width is not None)
    return buffer.getvalue()
