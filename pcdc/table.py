"""Catalog files as rows of a value and a description: text, CSV, JSON, JSON lines. Every value is text."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from pcdc_runtime.artifact import Value
from pcdc_runtime.rules import MAX_CHOICES

from .diagnostics import quoted
from .keywords import suggestion
from .reader import read_json, read_json_lines
from .source import Array, Node, Object, Report, Scalar, SchemaSource, Unread, kind_of

DELIMITERS = {".csv": ",", ".tsv": "\t"}
_NAMES_SHOWN = 12


@dataclass(frozen=True)
class Row:
    """One entry and the place of its value."""

    value: str
    at: int
    description: str = ""


@dataclass(frozen=True)
class Problem:
    """Why one row is no entry; `at` is a place in the catalog."""

    code: str
    at: int
    fact: str
    limit: str = ""
    help: str = ""


@dataclass
class Table:
    """Rows in their order, None where one is no entry. What is beyond a field's limit is only counted."""

    source: SchemaSource
    rows: list[Row | None] = field(default_factory=list)
    total: int = 0
    problems: list[Problem] = field(default_factory=list)

    def add(self, row: Row | Problem) -> None:
        """Append one row."""
        self.total += 1
        if isinstance(row, Problem):
            self.problems.append(row)
        if self.total <= MAX_CHOICES:
            self.rows.append(None if isinstance(row, Problem) else row)


@dataclass(frozen=True)
class Columns:
    """What a definition asks of a table: its columns by name, and what rows must be equal to."""

    value: str = ""
    description: str = ""
    where: Mapping[str, Value] = field(default_factory=dict)


class ColumnError(Exception):
    """A `keyword` of the definition does not fit the columns that there are."""

    def __init__(self, keyword: str, code: str, fact: str, limit: str = "", help: str = "") -> None:
        super().__init__(keyword, code, fact, limit, help)
        self.keyword, self.code, self.fact, self.limit, self.help = keyword, code, fact, limit, help


def read_table(kind: str, report: Report, columns: Columns) -> Table | None:
    """The rows of a catalog file, by its suffix; None after reporting that it cannot be read at all.

    Raises ColumnError.
    """
    if kind == ".txt":
        return _lines(report.source)
    if kind in DELIMITERS:
        return _cells(report.source, DELIMITERS[kind], columns)
    if kind == ".jsonl":
        values = read_json_lines(report)
        return None if values is None else _values(report.source, values, columns)
    root = read_json(report, "catalog")
    if isinstance(root, Array):
        return _values(report.source, root.items, columns)
    if isinstance(root, Scalar | Object):
        fact, limit = f"is {kind_of(root)}", "a catalog is an array of texts or objects"
        report.add("PCDC105", root.at, "catalog", fact, limit)
    return None


def find_column(names: Sequence[str], wanted: str, keyword: str) -> int:
    """The position of a named column. Raises ColumnError where there is none or several."""
    if names.count(wanted) == 1:
        return names.index(wanted)
    listed = ", ".join(map(quoted, names[:_NAMES_SHOWN])) + (", …" if len(names) > _NAMES_SHOWN else "")
    if wanted in names:
        fact = f"names the column {quoted(wanted)}, which stands {names.count(wanted)} times"
        raise ColumnError(keyword, "PCDC231", fact, f"the columns are {listed}", "rename one of them")
    fact = f"names the column {quoted(wanted)}, which is not there"
    help = suggestion(wanted, frozenset(names))
    raise ColumnError(keyword, "PCDC231", fact, f"the columns are {listed}" if names else "", help)


def _lines(source: SchemaSource) -> Table:
    table = Table(source)
    for start, end in source.line_spans():
        table.add(Row(source.text[start:end], start))
    return table


def _cells(source: SchemaSource, delimiter: str, columns: Columns) -> Table:
    table, text = Table(source), source.text
    starts = [start for start, _ in source.line_spans()]
    lines = (text[start:end] for start, end in pairwise([*starts, len(text)]))
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    header, value, description, wanted = list[str](), -1, -1, list[tuple[int, str]]()
    while True:
        line = reader.line_num
        try:
            row = next(reader)
        except StopIteration:
            break
        except csv.Error as error:
            help = "quote a cell that holds a quote, a line break or the separator, and double its quotes"
            table.add(Problem("PCDC109", starts[line], f"is not readable ({error})", "", help))
            break
        if line == 0 and row:
            header = row
            value, description, wanted = _positions(header, columns)
        elif not header:
            break
        elif len(row) != len(header):
            table.add(_ragged(row, header, starts[line]))
        elif all(row[position] == text for position, text in wanted):
            at = (
                starts[line] if table.total >= MAX_CHOICES else _cell_at(text, starts[line], value, delimiter)
            )
            table.add(Row(row[value], at, "" if description < 0 else row[description]))
    if not header:
        table.add(Problem("PCDC109", 0, "is empty", "the first row names the columns"))
    return table


def _positions(header: list[str], columns: Columns) -> tuple[int, int, list[tuple[int, str]]]:
    if not columns.value:
        listed = ", ".join(map(quoted, header[:_NAMES_SHOWN]))
        fact, limit = "names no column for the value", f"the columns are {listed}"
        raise ColumnError("source", "PCDC230", fact, limit, f'add `"value": {quoted(header[0])}`')
    value = find_column(header, columns.value, "value")
    description = find_column(header, columns.description, "description") if columns.description else -1
    wanted = list[tuple[int, str]]()
    for name, text in columns.where.items():
        position = find_column(header, name, "where")
        if not isinstance(text, str):
            fact, limit = f"compares {quoted(name)} with what is no text", "every cell is text"
            raise ColumnError("where", "PCDC230", fact, limit, "write it in quotes, as it stands in the file")
        wanted.append((position, text))
    return value, description, wanted


def _ragged(row: list[str], header: list[str], at: int) -> Problem:
    if not row:
        return Problem("PCDC109", at, "is a blank line", "every line is a row", "remove it")
    fact, limit = f"has {len(row)} cells", f"the first row names {len(header)} columns"
    return Problem("PCDC109", at, fact, limit, "put quotes around a cell that holds the separator")


def _cell_at(text: str, start: int, position: int, delimiter: str) -> int:
    cell = re.compile(rf'(?:"(?:[^"]|"")*"|[^{delimiter}]*){delimiter}')
    for _ in range(position):
        match = cell.match(text, start)
        start = match.end() if match else start
    return start


def _values(source: SchemaSource, values: Iterable[Node], columns: Columns) -> Table:
    table, items = Table(source), tuple(values)
    keys = list(dict.fromkeys(key for item in items if isinstance(item, Object) for key in item.members))
    named = {"value": columns.value or "value", "description": columns.description or "description"}
    checked = [("where", key) for key in columns.where]
    checked += [(word, named[word]) for word in named if getattr(columns, word)]
    for keyword, key in checked if keys else ():
        find_column(keys, key, keyword)
    for item in items:
        row = _entry(item, named["value"], named["description"], columns.where)
        if row is not None:
            table.add(row)
    return table


def _entry(item: Node, value: str, description: str, where: Mapping[str, Value]) -> Row | Problem | None:
    """One item's row, or None where it is not wanted."""
    if not isinstance(item, Object):
        if where:
            return Problem("PCDC109", item.at, "is no object", "`where` compares an object's values")
        return _text_row(item, item, "")
    if not all(_equal(item.get(key), wanted) for key, wanted in where.items()):
        return None
    found, note = item.get(value), item.get(description)
    if found is None:
        near = suggestion(value, frozenset(item.members))
        help = near or "name its key with `value` in the definition"
        return Problem("PCDC109", item.at, f"has no {quoted(value)}", "an entry is text or an object", help)
    if note is None or (isinstance(note, Scalar) and note.value is None):
        return _text_row(item, found, "")
    if isinstance(note, Scalar) and isinstance(note.value, str):
        return _text_row(item, found, note.value)
    assert not isinstance(note, Unread)
    return Problem("PCDC232", note.at, f"has a description that is {kind_of(note)}", "descriptions are text")


def _text_row(item: Node, found: Node, description: str) -> Row | Problem:
    if isinstance(found, Scalar) and isinstance(found.value, str):
        return Row(found.value, found.at, description)
    assert not isinstance(found, Unread)
    fact = f"is {kind_of(found)}" if item is found else f"has a value that is {kind_of(found)}"
    help = f'write it as text: "{found.spelling}"' if isinstance(found, Scalar) and found.spelling else ""
    return Problem("PCDC232", found.at, fact, "values of a catalog are text", help)


def _equal(node: Node | None, wanted: Value) -> bool:
    if not isinstance(node, Scalar) or isinstance(node.value, bool) != isinstance(wanted, bool):
        return False
    return node.value == wanted
