"""A catalog of any size as columns: labels, ids and where each row starts, one row in memory at a time."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, islice
from typing import Any, TypeAlias

from pcdc_runtime.artifact import Value

from pcdc.diagnostics import Location, quoted
from pcdc.keywords import suggestion
from pcdc.reader import Refused, each_plain_item, each_plain_line, value_at
from pcdc.source import NOWHERE, Object, Report, Scalar, SchemaSource
from pcdc.table import (
    DELIMITERS,
    MAX_FAULTY,
    VALUE,
    ColumnError,
    Columns,
    Problem,
    blank_line,
    cell_at,
    csv_rows,
    entry,
    find_columns,
    find_keys,
    positions,
    ragged,
)

from .definition import MAX_ENTRIES

TOLD = 20
_ID = "id"


class DatabaseRows(SchemaSource):
    """The rows of a query as a source; a place in it is a row's number, from 0."""

    def locate(self, at: int) -> Location | None:
        return None if at == NOWHERE else Location(self.path, at + 1, 0)

    def excerpt(self, at: int) -> str:
        return ""


@dataclass
class Read:
    """What was read; `ids` is None where none were asked for, `passed` counts what `where` does not want,
    and `left_out` are those labels among it that were asked about.

    Of rows that are no entries the first are kept as `problems`, and `faulty` counts all. `more` says that
    there were more rows than an index takes. After more than MAX_FAULTY faulty rows nothing is read on.
    """

    labels: list[str] = field(default_factory=list)
    ids: list[str] | None = None
    places: array[int] = field(default_factory=lambda: array("q"))
    problems: list[Problem] = field(default_factory=list)
    faulty: int = 0
    passed: int = 0
    left_out: set[str] = field(default_factory=set)
    more: bool = False

    def refuse(self, problem: Problem) -> None:
        """Count a row that is no entry."""
        self.faulty += 1
        if len(self.problems) <= TOLD:
            self.problems.append(problem)

    def leave_out(self, label: object, asked: Container[str]) -> None:
        """Count a row that `where` does not want, and keep its label if that was asked about."""
        self.passed += 1
        if isinstance(label, str) and label in asked:
            self.left_out.add(label)

    def takes_no_more(self) -> bool:
        """Whether to read on is in vain; asked, and noted, when there is one more row."""
        self.more = len(self.labels) + self.faulty >= MAX_ENTRIES
        return self.more or self.given_up

    @property
    def given_up(self) -> bool:
        """Whether so many rows are no entries that the rest was not read."""
        return self.faulty > MAX_FAULTY


ReadQuery: TypeAlias = Read | ColumnError


def read_columns(
    kind: str, report: Report, columns: Columns, asked: Container[str] = frozenset()
) -> Read | None:
    """The rows of a catalog file, by its suffix; None after reporting that it cannot be read at all.

    `asked` are labels to be told of where `where` does not want them. Raises ColumnError.
    """
    if kind == ".txt":
        return _lines(report.source)
    if kind in DELIMITERS:
        return _cells(report.source, DELIMITERS[kind], columns, asked)
    if kind == ".jsonl":
        return _values(report, each_plain_line(report), columns, asked)
    try:
        return _values(report, each_plain_item(report), columns, asked)
    except Refused as refused:
        report.add(refused.code, refused.at, "catalog", refused.fact, refused.limit, refused.help)
        return None


class Places:
    """Where the labels and ids of a catalog's rows stand in its text."""

    def __init__(self, kind: str, source: SchemaSource, columns: Columns) -> None:
        self.source, self._kind, self._columns = source, kind, columns

    @cached_property
    def _header(self) -> list[str]:
        first = next(csv_rows(self.source, DELIMITERS[self._kind]))
        return [] if isinstance(first, Problem) else first.cells

    def of(self, at: int, ids: bool = False) -> int:
        """The place of the label, or of the id, of the row that starts at a place."""
        wanted = self._columns.id if ids else self._columns.value
        if self._kind in DELIMITERS:
            return cell_at(self.source.text, at, self._header.index(wanted), DELIMITERS[self._kind])
        if self._kind in (".json", ".jsonl"):
            node = value_at(Report(self.source), at)
            found = node.get(wanted or VALUE) if isinstance(node, Object) else node
            return at if found is None else found.at
        return at


def rows_of_query(columns: Columns) -> Callable[[tuple[str, ...], Iterator[tuple[Any, ...]]], ReadQuery]:
    """What makes columns of the rows of a query, or says that they do not fit, for `sql.stream`."""

    def read(names: tuple[str, ...], rows: Iterator[tuple[Any, ...]]) -> ReadQuery:
        try:
            find_columns(names, columns)
        except ColumnError as why:
            # What is raised there counts as the database's.
            return why
        value = names.index(columns.value) if columns.value else 0
        key = names.index(columns.id) if columns.id else None
        found = Read(ids=None if key is None else [])
        for number, row in enumerate(rows):
            if found.takes_no_more():
                break
            wrong = _no_text(row[value], number, "value") if type(row[value]) is not str else None
            if key is not None and wrong is None:
                wrong = _no_text(row[key], number, "id") if type(row[key]) is not str else None
            if wrong:
                found.refuse(wrong)
                continue
            found.labels.append(row[value])
            found.places.append(number)
            if found.ids is not None and key is not None:
                found.ids.append(row[key])
        return found

    return read


def _no_text(value: object, at: int, what: str) -> Problem | None:
    if isinstance(value, str):
        return None
    if value is None:
        help = "leave it out with `where ... is not null`, or name it with `coalesce`"
        return Problem("PCDC232", at, f"has the {what} NULL", f"{what}s of a catalog are text", help)
    fact = f"has {'an' if what == 'id' else 'a'} {what} of type {type(value).__name__}"
    return Problem("PCDC232", at, fact, f"{what}s of a catalog are text", "cast it to text in the query")


def _lines(source: SchemaSource) -> Read:
    found, text = Read(), source.text
    if text.count("\n") + text.count("\r") > 2 * MAX_ENTRIES + 1:
        found.more = True
        return found
    if "\r" in text:
        spans = list(source.line_spans())
        lines, starts = [text[start:end] for start, end in spans], array("q", [start for start, _ in spans])
    else:
        lines = text.split("\n")
        starts = array("q", accumulate((len(line) + 1 for line in lines), initial=0))
        starts.pop()
        if not lines[-1]:
            lines.pop()
            starts.pop()
    found.more = len(lines) > MAX_ENTRIES
    blanks = (number for number, line in enumerate(lines) if not line or line.isspace())
    blank = list(islice(blanks, MAX_FAULTY + 1))
    for number in blank:
        found.refuse(blank_line(lines[number], starts[number]))
    if blank and not found.given_up:
        # What is wrong with it keeps the catalog from being used; the others are read to be told of too.
        unused = frozenset(blank)
        starts = array("q", [at for number, at in enumerate(starts) if number not in unused])
        lines = [line for number, line in enumerate(lines) if number not in unused]
    found.labels, found.places = lines, starts
    return found


def _cells(source: SchemaSource, delimiter: str, columns: Columns, asked: Container[str]) -> Read:
    found = Read(ids=[] if columns.id else None)
    header, value, key, wanted = list[str](), 0, 0, list[tuple[int, str]]()
    labels, ids, places = found.labels, found.ids, found.places
    for number, row in enumerate(csv_rows(source, delimiter)):
        if isinstance(row, Problem):
            found.refuse(row)
        elif number == 0 and row.cells:
            header = row.cells
            value, _, wanted = positions(header, columns)
            key = header.index(columns.id) if columns.id else 0
        elif not header or found.takes_no_more():
            break
        elif len(row.cells) != len(header):
            found.refuse(ragged(row, header))
        elif wanted and any(row.cells[position] != text for position, text in wanted):
            found.leave_out(row.cells[value], asked)
        else:
            labels.append(row.cells[value])
            places.append(row.at)
            if ids is not None:
                ids.append(row.cells[key])
    if not header:
        found.refuse(Problem("PCDC109", 0, "is empty", "the first row names the columns"))
    return found


def _values(
    report: Report, items: Iterable[tuple[int, Any] | Refused], columns: Columns, asked: Container[str]
) -> Read:
    found, keys = Read(ids=[] if columns.id else None), dict[str, None]()
    value, key, where = columns.value or VALUE, columns.id, columns.where
    labels, ids, places = found.labels, found.ids, found.places
    for item in items:
        if found.takes_no_more():
            break
        if isinstance(item, Refused):
            found.refuse(Problem(item.code, item.at, item.fact, item.limit, item.help))
            continue
        at, data = item
        if type(data) is dict:
            if not keys.keys() >= data.keys():
                keys.update(dict.fromkeys(data))
            if where and not _wanted(data, where):
                found.leave_out(data.get(value), asked)
                continue
            label = data.get(value)
        else:
            label = None if where else data
        if type(label) is str and ids is None:
            labels.append(label)
            places.append(at)
        elif type(label) is str and type(data) is dict and type(data.get(key)) is str and ids is not None:
            labels.append(label)
            ids.append(data[key])
            places.append(at)
        else:
            found.refuse(_fault(report, at, columns))
    if keys:
        find_keys(list(keys), columns, bool(labels))
    return found


def _wanted(data: Mapping[str, Any], where: Mapping[str, Value]) -> bool:
    return all(
        key in data and isinstance(data[key], bool) == isinstance(wanted, bool) and data[key] == wanted
        for key, wanted in where.items()
    )


def _fault(report: Report, at: int, columns: Columns) -> Problem:
    """Why an item that was read is no entry, with its place."""
    item = value_at(report, at)
    row = entry(item, columns.value or VALUE, "", columns.where)
    if isinstance(row, Problem):
        return row
    if not isinstance(item, Object):
        limit = f"`{_ID}` names a key of objects"
        return Problem("PCDC109", item.at, "is no object, and has no id", limit)
    found = item.get(columns.id)
    if found is None:
        near = suggestion(columns.id, frozenset(item.members))
        return Problem("PCDC109", item.at, f"has no {quoted(columns.id)}", "every entry has an id", near)
    spelled = found.spelling if isinstance(found, Scalar) else ""
    help = f'write it as text: "{spelled}"' if spelled else ""
    return Problem("PCDC232", found.at, "has an id that is no text", "ids of a catalog are text", help)
