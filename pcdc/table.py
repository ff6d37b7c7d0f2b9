"""Catalog files as rows of a value and a description: text, CSV, JSON, JSON lines. Every value is text."""

from __future__ import annotations

import csv
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice, pairwise

from pcdc_runtime.artifact import Value
from pcdc_runtime.rules import MAX_CHOICES
from pcdc_runtime.visible import MAX_CHOICE_CHARS

from .diagnostics import quoted
from .keywords import suggestion
from .reader import Refused, read_json, read_json_lines
from .source import Array, Node, Object, Report, Scalar, SchemaSource, Unread, kind_of

DELIMITERS = {".csv": ",", ".tsv": "\t"}
VALUE = "value"
MAX_FAULTY = 1000
"""After more rows than this that cannot be read nothing is read on."""
_NAMES_SHOWN = 12
_HEADER = "the first row names the columns"
_OTHER_DELIMITERS = frozenset(";\t|,")
_UNSPLIT = "cells are separated by commas in .csv and by tabs in .tsv; write the file so, or rename it"


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
    """Rows in their order, None where one is no entry. What is beyond a field's limit is only counted.

    `passed` counts the rows that `where` does not want.
    """

    source: SchemaSource
    rows: list[Row | None] = field(default_factory=list)
    total: int = 0
    passed: int = 0
    problems: list[Problem] = field(default_factory=list)

    @property
    def given_up(self) -> bool:
        """Whether so many rows are no entries that the rest was not read, and `total` is not of all."""
        return len(self.problems) > MAX_FAULTY

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
    id: str = ""
    where: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Misfit:
    """A `keyword` of the definition that does not fit the columns that there are, or one that it `lacks`."""

    keyword: str
    code: str
    fact: str
    limit: str = ""
    help: str = ""
    lacks: str = ""


class ColumnError(Exception):
    """What a definition asks does not fit the columns that there are, in one way or more."""

    def __init__(self, misfits: Sequence[Misfit]) -> None:
        super().__init__(misfits)
        self.misfits = tuple(misfits)


def given_up(named: str) -> tuple[str, str]:
    """Fact and limit of a catalog that was given up; `named` says how many of its faulty rows are told."""
    fact = f"has more than {MAX_FAULTY:,} rows that cannot be read"
    return fact, f"{named}, and after as many it was not read on"


def read_table(kind: str, report: Report, columns: Columns) -> Table | None:
    """The rows of a catalog file, by its suffix; None after reporting that it cannot be read at all.

    Raises ColumnError.
    """
    if kind == ".txt":
        return _lines(report.source)
    if kind in DELIMITERS:
        return _cells(report.source, DELIMITERS[kind], columns)
    if kind == ".jsonl":
        return _values(report.source, _some(read_json_lines(report)), columns)
    root = read_json(report, "catalog")
    if isinstance(root, Array):
        return _values(report.source, root.items, columns)
    if isinstance(root, Scalar | Object):
        fact, limit = f"is {kind_of(root)}", "a catalog is an array of texts or objects"
        report.add("PCDC105", root.at, "catalog", fact, limit)
    return None


def _some(items: Iterable[Node | Refused]) -> Iterator[Node | Refused]:
    """The items up to where a table gives up."""
    refused = 0
    for item in items:
        yield item
        refused += isinstance(item, Refused)
        if refused > MAX_FAULTY:
            return


def find_columns(names: Sequence[str], columns: Columns, also: Sequence[Misfit] = ()) -> None:
    """See that each column that is asked for is there once. Raises ColumnError with all that are not."""
    asked = [("value", columns.value), ("description", columns.description), ("id", columns.id)]
    asked = [(keyword, name) for keyword, name in asked if name] + [("where", name) for name in columns.where]
    found = [_misfit(names, name, keyword) for keyword, name in asked]
    misfits = [*also, *(misfit for misfit in found if misfit)]
    if misfits:
        raise ColumnError(misfits)


def _misfit(names: Sequence[str], wanted: str, keyword: str) -> Misfit | None:
    if names.count(wanted) == 1:
        return None
    listed = _listed(names)
    if wanted in names:
        fact = f"names the column {quoted(wanted)}, which stands {names.count(wanted)} times"
        return Misfit(keyword, "PCDC231", fact, f"the columns are {listed}", "rename one of them")
    fact = f"names the column {quoted(wanted)}, which is not there"
    help = suggestion(wanted, frozenset(names))
    return Misfit(keyword, "PCDC231", fact, f"the columns are {listed}" if names else "", help)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(quoted, names[:_NAMES_SHOWN])) + (", …" if len(names) > _NAMES_SHOWN else "")


def find_keys(keys: Sequence[str], columns: Columns, usable: bool) -> None:
    """See that the keys of objects are those that are asked for. Raises ColumnError.

    `usable` says that some item is an entry: then the others are told one by one.
    """
    unnamed = not (columns.value or usable or VALUE in keys)
    find_columns(keys, columns, [_unnamed("key", keys)] if unnamed else [])


def _unnamed(what: str, names: Sequence[str]) -> Misfit:
    fact, limit = f"names no {what} for the value", f"the {what}s are {_listed(names)}"
    return Misfit("source", "PCDC230", fact, limit, f'add `"value": {quoted(names[0])}`', "value")


def _lines(source: SchemaSource) -> Table:
    table = Table(source)
    for start, end in source.line_spans():
        if table.given_up:
            break
        line = source.text[start:end]
        table.add(Row(line, start) if line.strip() else blank_line(line, start))
    return table


def blank_line(line: str, at: int) -> Problem:
    """Why a line without text is no entry."""
    fact = "holds only blanks" if line else "is empty"
    return Problem("PCDC216", at, fact, "every line is a choice", "remove the empty line")


@dataclass(frozen=True)
class CsvRow:
    """The cells of one row, and where it starts."""

    at: int
    cells: list[str]


def csv_rows(source: SchemaSource, delimiter: str) -> Iterator[CsvRow | Problem]:
    """The rows of a CSV file, the header first; one that cannot be split ends them as a problem."""
    starts: array[int] = array("q")

    def lines() -> Iterator[str]:
        ends = chain((start for start, _ in source.line_spans()), [len(source.text)])
        for start, end in pairwise(ends):
            starts.append(start)
            yield source.text[start:end]

    reader = csv.reader(lines(), delimiter=delimiter, strict=True)
    while True:
        line = reader.line_num
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield _unsplit(starts[line], error)
            return
        yield CsvRow(starts[line], row)


def _unsplit(at: int, error: csv.Error) -> Problem:
    if "field limit" in str(error):
        fact = f"has a cell of more than {csv.field_size_limit():,} characters"
        help = f"shorten it (a label has at most {MAX_CHOICE_CHARS:,} characters), or close its quotes"
        return Problem("PCDC109", at, fact, "", help)
    help = "quote a cell that holds a quote, a line break or the separator, and double its quotes"
    return Problem("PCDC109", at, f"is not readable ({error})", "", help)


def _cells(source: SchemaSource, delimiter: str, columns: Columns) -> Table:
    table, text = Table(source), source.text
    header, value, description, wanted = list[str](), -1, -1, list[tuple[int, str]]()
    for number, row in enumerate(csv_rows(source, delimiter)):
        if isinstance(row, Problem):
            table.add(row)
        elif number == 0 and row.cells:
            header = row.cells
            value, description, wanted = positions(header, columns)
        elif not header or table.given_up:
            break
        elif len(row.cells) != len(header):
            table.add(ragged(row, header))
        elif all(row.cells[position] == text for position, text in wanted):
            at = row.at if table.total >= MAX_CHOICES else cell_at(text, row.at, value, delimiter)
            table.add(Row(row.cells[value], at, "" if description < 0 else row.cells[description]))
        else:
            table.passed += 1
    if not header:
        table.add(Problem("PCDC109", 0, "is empty", _HEADER))
    return table


def positions(header: list[str], columns: Columns) -> tuple[int, int, list[tuple[int, str]]]:
    """Where value and description stand in a row, and what cells must be equal to. Raises ColumnError."""
    misfits, texts = list[Misfit](), dict[str, str]()
    if not columns.value:
        misfits.append(_unnamed("column", header))
    for name, text in columns.where.items():
        if isinstance(text, str):
            texts[name] = text
        elif name in header:
            fact, limit = f"compares {quoted(name)} with what is no text", "every cell is text"
            help = "write it in quotes, as it stands in the file"
            misfits.append(Misfit("where", "PCDC230", fact, limit, help))
    try:
        find_columns(header, columns, misfits)
    except ColumnError as why:
        split = len(header) > 1 or _OTHER_DELIMITERS.isdisjoint(header[0])
        if not split or not any(map(str.strip, header)):
            help = _HEADER if split else _UNSPLIT
            raise ColumnError([replace(misfit, help=help, lacks="") for misfit in why.misfits]) from None
        raise ColumnError([replace(m, help=m.help or _HEADER) for m in why.misfits]) from None
    description = header.index(columns.description) if columns.description else -1
    return header.index(columns.value), description, [(header.index(n), text) for n, text in texts.items()]


def ragged(row: CsvRow, header: list[str]) -> Problem:
    """Why a row with another number of cells than the header is none."""
    if not row.cells:
        return Problem("PCDC109", row.at, "is a blank line", "every line is a row", "remove it")
    fact, limit = (
        f"has {_counted(len(row.cells), 'cell')}",
        f"the first row names {_counted(len(header), 'column')}",
    )
    return Problem("PCDC109", row.at, fact, limit, "put quotes around a cell that holds the separator")


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def cell_places(text: str, start: int, delimiter: str) -> Iterator[int]:
    """Where the cells of the row that begins at `start` begin; there is no end to them."""
    cell = re.compile(rf'(?:"(?:[^"]|"")*"|[^{delimiter}]*){delimiter}')
    while True:
        yield start
        match = cell.match(text, start)
        start = match.end() if match else start


def cell_at(text: str, start: int, position: int, delimiter: str) -> int:
    """Where the cell at a position (from 0) of the row that begins at `start` begins."""
    return next(islice(cell_places(text, start, delimiter), position, None))


def _values(source: SchemaSource, values: Iterable[Node | Refused], columns: Columns) -> Table:
    table, items = Table(source), tuple(values)
    keys = list(dict.fromkeys(key for item in items if isinstance(item, Object) for key in item.members))
    value, description = columns.value or VALUE, columns.description or "description"
    for item in items:
        if table.given_up:
            break
        row = entry(item, value, description, columns.where)
        if row is None:
            table.passed += 1
        else:
            table.add(row)
    if keys:
        find_keys(keys, columns, any(table.rows))
    return table


def entry(
    item: Node | Refused, value: str, description: str, where: Mapping[str, Value]
) -> Row | Problem | None:
    """One item's row, or None where it is not wanted."""
    if isinstance(item, Refused):
        return Problem(item.code, item.at, item.fact, item.limit, item.help)
    if not isinstance(item, Object):
        if where:
            return Problem("PCDC109", item.at, "is no object", "`where` compares an object's values")
        return _text_row(item, item, "")
    if not all(_equal(item.get(key), wanted) for key, wanted in where.items()):
        return None
    found, note = item.get(value), item.get(description)
    if found is None:
        near = suggestion(value, frozenset(item.members))
        help = near or "add it, or remove the entry"
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
