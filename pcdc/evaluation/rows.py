"""Labelled texts: JSON lines or CSV in, rows with choice indices out, and every mistake in its place.

JSON lines: `{"context": "...", "expected": {"field": value, ...}}`, values with their declared JSON types;
other keys are not read. CSV and TSV: a column `context` and one per field, cells hold the choice's label.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TypeAlias

from pcdc_runtime.artifact import Artifact, CompiledField, Value

from pcdc.diagnostics import Diagnostic, finding, quoted
from pcdc.keywords import suggestion
from pcdc.reader import Refused, each_json_line
from pcdc.source import Node, Object, Report, Scalar, Unread, kind_of, read_source
from pcdc.table import DELIMITERS, CsvRow, Problem, cell_at, cell_places, csv_rows, ragged

MAX_BYTES = 64 * 1024 * 1024
MAX_FINDINGS = 1000
"""After so many a file is not read on."""
CONTEXT, EXPECTED = "context", "expected"

_NAMED = 8
_SHAPE = 'a row is `{"context": "...", "expected": {"field": value}}`'

Label: TypeAlias = "int | None"


@dataclass(frozen=True)
class Row:
    """One text with the indices of its right choices; a field that is not in `expected` has no label."""

    line: int
    context: str
    expected: Mapping[str, int]


@dataclass(frozen=True)
class Labelled:
    """The rows of a data file that have a label, and the sha256 of the bytes that they were read from."""

    rows: tuple[Row, ...]
    sha256: str


class _Enough(Exception):
    """There are MAX_FINDINGS findings."""


class _Findings(Report):
    """Raises _Enough with the last finding that it takes."""

    def add(self, code: str, at: int, subject: str, fact: str, limit: str = "", help: str = "") -> None:
        super().add(code, at, subject, fact, limit, help)
        if len(self.diagnostics) >= MAX_FINDINGS:
            raise _Enough


class _Wrong(Exception):
    """Why a value is none of a field's answers."""

    def __init__(self, fact: str, help: str) -> None:
        super().__init__(fact)
        self.fact, self.help = fact, help


@dataclass(frozen=True)
class _Answers:
    """A field's choices by what stands for them in data: their JSON value, and their label."""

    name: str
    labels: tuple[str, ...]
    values: Mapping[tuple[str, Value], int] = field(repr=False)

    @classmethod
    def of(cls, compiled: CompiledField) -> _Answers:
        values = {_keyed(c.value): i for i, c in enumerate(compiled.candidates)}
        return cls(compiled.name, tuple(c.label for c in compiled.candidates), values)

    @property
    def listed(self) -> str:
        shown = ", ".join(map(quoted, self.labels[:_NAMED]))
        more = len(self.labels) - _NAMED
        return f"its answers are {shown}" + (f" and {more} more" if more > 0 else "")

    def of_value(self, value: Value) -> Label:
        """The choice of a JSON value; null where null is no choice is no label. Raises _Wrong."""
        found = self.values.get(_keyed(value))
        if found is not None or value is None:
            return found
        if not isinstance(value, str):
            label = str(value).lower() if isinstance(value, bool) else str(value)
            help = f"write it as text: {quoted(label)}" if label in self.labels else ""
            raise _Wrong(f"is {label}, {kind_of(Scalar(0, value))}", help)
        if value in self.labels:
            position = self.labels.index(value)
            kind, right = next(key for key, index in self.values.items() if index == position)
            word = "null" if kind == "null" else value
            what = kind_of(Scalar(0, right))
            raise _Wrong(
                f"is the text {quoted(value)}", f"the answer is {what}: write `{word}` without quotes"
            )
        raise _Wrong(f"is {quoted(value)}", suggestion(value, frozenset(self.labels)))

    def of_cell(self, cell: str) -> Label:
        """The choice of a label; an empty cell is no label, since no label is empty. Raises _Wrong."""
        if not cell:
            return None
        if cell not in self.labels:
            raise _Wrong(f"is {quoted(cell)}", suggestion(cell, frozenset(self.labels)))
        return self.labels.index(cell)


def _keyed(value: Value) -> tuple[str, Value]:
    # True is 1 to Python, and not to JSON.
    if value is None:
        return "null", None
    kind = "boolean" if isinstance(value, bool) else "text" if isinstance(value, str) else "number"
    return kind, value


def same_text(context: str) -> str:
    """A text without what does not make it another: blanks and case."""
    return " ".join(context.split()).casefold()


def read_rows(path: Path, artifact: Artifact) -> tuple[tuple[Row, ...], list[Diagnostic]]:
    """The rows of a data file that have a label, and what is wrong with any of them, all at once."""
    data, diagnostics = read_data(path, artifact)
    return data.rows, diagnostics


def read_data(path: Path, artifact: Artifact) -> tuple[Labelled, list[Diagnostic]]:
    """The same with a digest; after MAX_FINDINGS findings the file is not read on."""
    kind = path.suffix.lower()
    if kind != ".jsonl" and kind not in DELIMITERS:
        fact = f"is of no known kind: {quoted(path.name)}"
        limit = "data is a file .jsonl, .csv or .tsv"
        return Labelled((), ""), [finding("PCDC723", None, str(path), fact, limit)]
    split = "measure a part of it, or split the"
    source, diagnostics = read_source(path, "data file", MAX_BYTES, split)
    if source is None:
        return Labelled((), ""), diagnostics
    report = _Findings(source, diagnostics)
    answers = {f.name: _Answers.of(f) for f in artifact.fields}
    rows = list[Row]()
    with suppress(_Enough):
        if kind == ".jsonl":
            rows += (row for item in each_json_line(report) if (row := _json_row(item, answers, report)))
        else:
            rows += _csv_rows(report, DELIMITERS[kind], answers)
    labelled = tuple(row for row in rows if row.expected)
    if not labelled and not diagnostics:
        fact = f"has {len(rows)} rows and no label" if rows else "has no rows"
        report.add("PCDC723", 0, path.name, fact, "each row has a text and what is to be answered", _SHAPE)
    return Labelled(labelled, source.sha256), diagnostics


def unlabelled(rows: Sequence[Row], artifact: Artifact, path: Path) -> list[Diagnostic]:
    """A warning for each field that no row has a label for."""
    seen = {name for row in rows for name in row.expected}
    limit, help = "it is answered, and not measured", "add labels for it, or leave it out of the schema"
    return [
        finding("PCDC724", None, f"field {quoted(f.name)}", f"has no label in {path}", limit, help)
        for f in artifact.fields
        if f.name not in seen
    ]


def _json_row(item: Node | Refused, answers: Mapping[str, _Answers], report: Report) -> Row | None:
    subject = "data row"
    if isinstance(item, Refused):
        report.add(item.code, item.at, subject, item.fact, item.limit, item.help)
        return None
    if not isinstance(item, Object):
        report.add("PCDC720", item.at, subject, f"is {_kind(item)}", _SHAPE)
        return None
    context = _context(item, report)
    expected = item.get(EXPECTED)
    if not isinstance(expected, Object):
        at = item.at if expected is None else expected.at
        fact = (
            f"has no `{EXPECTED}`" if expected is None else f"has an `{EXPECTED}` that is {_kind(expected)}"
        )
        near = _near(EXPECTED, item.members) if expected is None else ""
        report.add("PCDC720", at, subject, fact, _SHAPE, near)
        return None
    labels = dict[str, int]()
    for name, member in expected.members.items():
        if name not in answers:
            _unknown(name, member.at, answers, report)
            continue
        node = member.value
        try:
            if not isinstance(node, Scalar):
                raise _Wrong(f"is {_kind(node)}", "give one value")
            label = answers[name].of_value(node.value)
        except _Wrong as why:
            _misfit(answers[name], node.at, why, report)
            continue
        if label is not None:
            labels[name] = label
    line = report.source.locate(item.at)
    return None if context is None or line is None else Row(line.line, context, labels)


def _context(item: Object, report: Report) -> str | None:
    node = item.get(CONTEXT)
    if isinstance(node, Scalar) and isinstance(node.value, str):
        if node.value.strip():
            return node.value
        report.add("PCDC720", node.at, "data row", f"has an empty `{CONTEXT}`", "a row has a text")
    elif node is None:
        report.add(
            "PCDC720", item.at, "data row", f"has no `{CONTEXT}`", _SHAPE, _near(CONTEXT, item.members)
        )
    else:
        report.add("PCDC720", node.at, "data row", f"has a `{CONTEXT}` that is {_kind(node)}", "it is text")
    return None


def _near(key: str, names: Iterable[str]) -> str:
    near = get_close_matches(key, names, n=1)
    return f"rename {quoted(near[0])} to `{key}`" if near else ""


def _kind(node: Node) -> str:
    assert not isinstance(node, Unread)
    return kind_of(node)


def _unknown(name: str, at: int, answers: Mapping[str, _Answers], report: Report) -> None:
    listed = ", ".join(map(quoted, list(answers)[:_NAMED]))
    more = len(answers) - _NAMED
    limit = f"the artifact's fields are {listed}" + (f" and {more} more" if more > 0 else "")
    help = suggestion(name, frozenset(answers)) or "remove it, or measure the artifact that has it"
    report.add("PCDC721", at, quoted(name), "is no field", limit, help)


def _misfit(answers: _Answers, at: int, why: _Wrong, report: Report) -> None:
    subject = f"expected value of {quoted(answers.name)}"
    report.add("PCDC722", at, subject, why.fact, answers.listed, why.help)


def _csv_rows(report: Report, delimiter: str, answers: Mapping[str, _Answers]) -> Iterator[Row]:
    with _long_cells():
        rows = csv_rows(report.source, delimiter)
        header = next(rows, None)
        if header is None or isinstance(header, Problem) or not header.cells:
            fact = header.fact if isinstance(header, Problem) else "is empty"
            report.add("PCDC720", 0, "header", fact, "the first row names the columns")
            return
        columns = _columns(header, delimiter, answers, report)
        if CONTEXT not in columns:
            return
        for row in rows:
            problem = row if isinstance(row, Problem) else None
            if isinstance(row, CsvRow) and len(row.cells) != len(header.cells):
                problem = ragged(row, header.cells)
            if problem:
                report.add("PCDC720", problem.at, "data row", problem.fact, problem.limit, problem.help)
            elif isinstance(row, CsvRow) and (read := _csv_row(row, delimiter, columns, answers, report)):
                yield read


def _columns(
    header: CsvRow, delimiter: str, answers: Mapping[str, _Answers], report: Report
) -> dict[str, int]:
    columns = dict[str, int]()
    places = cell_places(report.source.text, header.at, delimiter)
    for position, (name, at) in enumerate(zip(header.cells, places, strict=False)):
        if name in columns:
            report.add("PCDC106", at, f"column {quoted(name)}", "is there twice", "", "remove one of them")
        elif name != CONTEXT and name not in answers:
            _unknown(name, at, answers, report)
        else:
            columns[name] = position
    if CONTEXT not in columns:
        fact, help = f"has no column `{CONTEXT}`", _near(CONTEXT, header.cells)
        report.add("PCDC720", header.at, "header", fact, "it holds the texts", help)
    return columns


def _csv_row(
    row: CsvRow, delimiter: str, columns: Mapping[str, int], answers: Mapping[str, _Answers], report: Report
) -> Row | None:
    def at(position: int) -> int:
        return cell_at(report.source.text, row.at, position, delimiter)

    labels = dict[str, int]()
    for name, position in columns.items():
        if name == CONTEXT:
            continue
        try:
            label = answers[name].of_cell(row.cells[position])
        except _Wrong as why:
            _misfit(answers[name], at(position), why, report)
            continue
        if label is not None:
            labels[name] = label
    context = row.cells[columns[CONTEXT]]
    if not context.strip():
        place = at(columns[CONTEXT])
        report.add("PCDC720", place, "data row", f"has an empty `{CONTEXT}`", "a row has a text")
        return None
    line = report.source.locate(row.at)
    return None if line is None else Row(line.line, context, labels)


@contextmanager
def _long_cells() -> Iterator[None]:
    """Let a cell be as long as a file may be; the module's own limit is 128 KiB, for the whole process."""
    before = csv.field_size_limit(MAX_BYTES)
    try:
        yield
    finally:
        csv.field_size_limit(before)
