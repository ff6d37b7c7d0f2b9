"""Labelled texts: JSON lines or CSV in, rows with choice indices out, and every mistake in its place.

JSON lines: `{"context": "...", "expected": {"field": value, ...}}`, values with their declared JSON types.
CSV and TSV: a column `context` and one per field, cells hold the choice's label. Other keys and columns are
not read, and named in one warning; one that looks like a field's name is a mistake.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice
from pathlib import Path

from pcdc_runtime.artifact import Artifact

from pcdc.diagnostics import Diagnostic, finding, has_errors, quoted, sort_diagnostics
from pcdc.keywords import nearest
from pcdc.reader import Refused, each_json_line
from pcdc.source import Node, Object, Report, Scalar, SchemaSource, Unread, kind_of, read_source
from pcdc.table import DELIMITERS, CsvRow, Problem, cell_at, cell_places, csv_rows, ragged

from .answers import Answers, Wrong

MAX_BYTES = 64 * 1024 * 1024
MAX_FINDINGS = 1000
"""After so many a file is not read on."""
CONTEXT, EXPECTED = "context", "expected"

_NAMED = 8
_ALIKE = 0.7
"""How near to the name of a field without labels another must be to be taken for it."""
_SEPARATORS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}
_RESAVE = "save it as .csv with commas, or as .tsv with tabs"
_SHAPE = 'a row is `{"context": "...", "expected": {"field": value}}`'


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
        limit, help = "data is a file .jsonl, .csv or .tsv", "name the file with the labelled texts"
        if kind == ".json":
            help = "if it has labelled texts, write one a line into a file .jsonl"
        return Labelled((), ""), [finding("PCDC710", None, str(path), "is no data by its name", limit, help)]
    split = "measure a part of it, or split the"
    source, diagnostics = read_source(path, "data file", MAX_BYTES, split, json_lines=kind == ".jsonl")
    if source is None:
        return Labelled((), ""), diagnostics
    report = _Findings(source, diagnostics)
    answers = {f.name: Answers.of(f) for f in artifact.fields}
    rows, ignored = list[Row](), dict[str, int]()
    with suppress(_Enough):
        if kind == ".jsonl":
            items = each_json_line(report)
            rows += (row for item in items if (row := _json_row(item, answers, report, ignored)))
        else:
            rows += _csv_rows(report, DELIMITERS[kind], answers, ignored)
        if ignored:
            what = "keys" if kind == ".jsonl" else "columns"
            fact = f"has {what} that are not read: {_listed(ignored)}"
            report.add("PCDC728", min(ignored.values()), path.name, fact, _fields(answers))
    labelled = tuple(row for row in rows if row.expected)
    if not labelled and not has_errors(diagnostics):
        fact = f"has {len(rows)} rows and no label" if rows else "has no rows"
        report.add("PCDC723", 0, path.name, fact, "each row has a text and what is to be answered", _SHAPE)
    return Labelled(labelled, source.sha256), sort_diagnostics(diagnostics)


def unlabelled(rows: Sequence[Row], artifact: Artifact, path: Path) -> list[Diagnostic]:
    """A warning for each field that no row has a label for."""
    seen = {name for row in rows for name in row.expected}
    limit, help = "it is answered, and not measured", "add labels for it, or leave it out of the schema"
    return [
        finding("PCDC724", None, f"field {quoted(f.name)}", f"has no label in {path}", limit, help)
        for f in artifact.fields
        if f.name not in seen
    ]


def _json_row(
    item: Node | Refused, answers: Mapping[str, Answers], report: Report, ignored: dict[str, int]
) -> Row | None:
    subject = "data row"
    if isinstance(item, Refused):
        report.add(item.code, item.at, subject, item.fact, item.limit or _SHAPE, item.help)
        return None
    if not isinstance(item, Object):
        report.add("PCDC720", item.at, subject, f"is {_kind(item)}", _SHAPE)
        return None
    others = {name: m.at for name, m in item.members.items() if name not in (CONTEXT, EXPECTED)}
    context = _context(item, report, [name for name in others if name not in answers])
    expected = item.get(EXPECTED)
    if not isinstance(expected, Object):
        at = item.at if expected is None else expected.at
        fact = (
            f"has no `{EXPECTED}`" if expected is None else f"has an `{EXPECTED}` that is {_kind(expected)}"
        )
        report.add("PCDC720", at, subject, fact, _SHAPE, _expected_help(others, answers))
        return None
    without = answers.keys() - expected.members.keys()
    for name, at in others.items() if context is not None else ():
        if (near := _near_field(name, frozenset(answers))) in without:
            help = f"put it into `{EXPECTED}`" + (f" as {quoted(near)}" if near != name else "")
            report.add("PCDC721", at, quoted(name), f"is outside `{EXPECTED}`", _fields(answers), help)
        else:
            ignored.setdefault(name, at)
    labels = dict[str, int]()
    for name, member in expected.members.items():
        if name not in answers:
            _unknown(name, member.at, answers, without, report, ignored)
            continue
        node = member.value
        try:
            if not isinstance(node, Scalar):
                raise Wrong(f"is {_kind(node)}", "give one value")
            label = answers[name].of_value(node.value)
        except Wrong as why:
            _misfit(name, node.at, why, answers[name].in_json, report)
            continue
        if label is not None:
            labels[name] = label
    line = report.source.locate(item.at)
    return None if context is None or line is None else Row(line.line, context, labels)


def _context(item: Object, report: Report, others: Sequence[str]) -> str | None:
    node = item.get(CONTEXT)
    if isinstance(node, Scalar) and isinstance(node.value, str):
        if node.value.strip():
            return node.value
        report.add("PCDC720", node.at, "data row", f"has an empty `{CONTEXT}`", "a row has a text")
    elif node is None:
        help = _near(CONTEXT, others) or f"name the key of the text `{CONTEXT}`"
        report.add("PCDC720", item.at, "data row", f"has no `{CONTEXT}`", _SHAPE, help)
    else:
        report.add("PCDC720", node.at, "data row", f"has a `{CONTEXT}` that is {_kind(node)}", "it is text")
    return None


def _near(key: str, names: Iterable[str]) -> str:
    near = get_close_matches(key, names, n=1)
    return f"rename {quoted(near[0])} to `{key}`" if near else ""


def _expected_help(others: Iterable[str], answers: Mapping[str, Answers]) -> str:
    if outside := [name for name in others if name in answers]:
        return f"put {_listed(outside)} into an object `{EXPECTED}`"
    return _near(EXPECTED, others) or f"put the labels into an object `{EXPECTED}`"


@lru_cache(maxsize=1024)
def _near_field(name: str, fields: frozenset[str]) -> str | None:
    # Rows have the same keys again and again.
    return name if name in fields else nearest(name, fields, _ALIKE)


def _listed(names: Collection[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(map(quoted, islice(names, _NAMED))) + (f" and {more} more" if more > 0 else "")


def _fields(answers: Mapping[str, Answers]) -> str:
    return f"the artifact's fields are {_listed(answers)}"


def _kind(node: Node) -> str:
    assert not isinstance(node, Unread)
    return kind_of(node)


def _unknown(
    name: str,
    at: int,
    answers: Mapping[str, Answers],
    without: AbstractSet[str],
    report: Report,
    ignored: dict[str, int],
) -> None:
    """Refuse a name that may stand for one of the fields `without` labels, and note any other."""
    if (near := _near_field(name, frozenset(answers))) in without:
        report.add("PCDC721", at, quoted(name), "is no field", _fields(answers), f"did you mean `{near}`?")
    else:
        ignored.setdefault(name, at)


def _misfit(name: str, at: int, why: Wrong, listed: str, report: Report) -> None:
    report.add("PCDC722", at, f"expected value of {quoted(name)}", why.fact, listed, why.help)


def _csv_rows(
    report: Report, delimiter: str, answers: Mapping[str, Answers], ignored: dict[str, int]
) -> Iterator[Row]:
    with _long_cells():
        rows = csv_rows(report.source, delimiter)
        header = next(rows, None)
        known = header.cells if isinstance(header, CsvRow) else []
        other = None if CONTEXT in known else _separator(report.source, delimiter, answers)
        if other:
            own, found = _SEPARATORS[delimiter], _SEPARATORS[other]
            fact, limit = f"has {found} between its columns", f"by the file's name they are {own}"
            report.add("PCDC720", 0, "header", fact, limit, _RESAVE)
            return
        if header is None or isinstance(header, Problem) or not header.cells:
            fact = header.fact if isinstance(header, Problem) else "is empty"
            report.add("PCDC720", 0, "header", fact, "the first row names the columns")
            return
        columns = _columns(header, delimiter, answers, report, ignored)
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


def _separator(source: SchemaSource, delimiter: str, answers: Mapping[str, Answers]) -> str | None:
    """Another separator than a file's own by which its header has a known column and another one."""
    for other in _SEPARATORS:
        header = next(csv_rows(source, other), None) if other != delimiter else None
        cells = header.cells if isinstance(header, CsvRow) else []
        if len(cells) > 1 and any(name == CONTEXT or name in answers for name in cells):
            return other
    return None


def _columns(
    header: CsvRow, delimiter: str, answers: Mapping[str, Answers], report: Report, ignored: dict[str, int]
) -> dict[str, int]:
    columns, without = dict[str, int](), answers.keys() - set(header.cells)
    others = [name for name in header.cells if name not in answers]
    has_context = CONTEXT in others
    places = cell_places(report.source.text, header.at, delimiter)
    for position, (name, at) in enumerate(zip(header.cells, places, strict=False)):
        if name in columns:
            report.add("PCDC106", at, f"column {quoted(name)}", "is there twice", "", "remove one of them")
        elif name == CONTEXT or name in answers:
            columns[name] = position
        elif has_context:
            _unknown(name, at, answers, without, report, ignored)
    if not has_context:
        fact = f"has no column `{CONTEXT}`"
        help = _near(CONTEXT, others) or f"name the column of the texts `{CONTEXT}`"
        report.add("PCDC720", header.at, "header", fact, "it holds the texts", help)
    return columns


def _csv_row(
    row: CsvRow, delimiter: str, columns: Mapping[str, int], answers: Mapping[str, Answers], report: Report
) -> Row | None:
    def at(position: int) -> int:
        return cell_at(report.source.text, row.at, position, delimiter)

    labels = dict[str, int]()
    for name, position in columns.items():
        if name == CONTEXT:
            continue
        try:
            label = answers[name].of_cell(row.cells[position])
        except Wrong as why:
            _misfit(name, at(position), why, answers[name].in_cells, report)
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
