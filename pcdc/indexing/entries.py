"""From what an `x-catalog` names to checked entries: every label can be scored, every id names one."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Container, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path

from pcdc_runtime.visible import BLANKS, MAX_CHOICE_CHARS, hidden

from pcdc import sql
from pcdc.catalog import Catalog, Catalogs
from pcdc.diagnostics import Location, code_points, quoted
from pcdc.source import NOWHERE, Report, SchemaSource, read_source
from pcdc.table import ColumnError, Columns, given_up

from .columns import TOLD, DatabaseRows, Places, Read, ReadQuery, read_columns, rows_of_query
from .definition import MAX_ENTRIES, MIN_ENTRIES, Entries

MAX_CATALOG_BYTES = 1024 * 1024 * 1024
_SPLIT = "an index has a file of at most 1 GiB; leave out what is not asked for, or split the"
_TOGETHER = 100_000
PLACES = 3

Place = Callable[[int, bool], int]


def read_entries(
    catalog: Catalog, catalogs: Catalogs, report: Report, answers: Container[str] = frozenset()
) -> Entries | None:
    """The entries of a catalog; what keeps it from being read, and what is wrong with it, is reported.

    `answers` are those of the examples.
    """
    columns = catalog.columns
    try:
        if catalog.path is None:
            ask = partial(_stream, rows_of_query(columns))
            answer, source = catalogs.asked(catalog, ask), None
            if isinstance(answer, ColumnError):
                raise answer
            read = answer
        else:
            source = catalogs.opened(catalog, catalog.path, MAX_CATALOG_BYTES, _SPLIT)
            kind = catalog.path.suffix.lower()
            read = None if source is None else read_columns(kind, report.of(source), columns, answers)
    except ColumnError as why:
        catalogs.misfits(catalog, why)
        return None
    if read is None:
        return None
    if source is None or catalog.path is None:
        rows = DatabaseRows(sql.shown(catalog.source), "")
        _check(catalog, read, report, rows, lambda at, _: at)
        return Entries(read.labels, _ids(read), lambda n: rows.locate(read.places[n]))
    _check(catalog, read, report, source, Places(kind, source, columns).of)
    again = _Again(catalog.path, source.sha256, kind, columns)
    places, left_out = read.places, frozenset(read.left_out)
    return Entries(read.labels, _ids(read), lambda n: again.locate(places[n]), left_out)


def _stream(keep: sql.Keep[ReadQuery], url: str, query: str, folder: Path) -> ReadQuery:
    return sql.stream(url, query, folder, keep, sql.INDEX_TIMEOUT)


def _ids(read: Read) -> list[str]:
    return read.labels if read.ids is None else read.ids


class _Again:
    """A catalog's file, which is read once more where a place in it is asked for."""

    def __init__(self, path: Path, sha256: str, kind: str, columns: Columns) -> None:
        self._path, self._sha256, self._kind, self._columns = path, sha256, kind, columns

    @cached_property
    def _places(self) -> Places | None:
        source, _ = read_source(self._path, "catalog", MAX_CATALOG_BYTES)
        if source is None or source.sha256 != self._sha256:
            return None
        return Places(self._kind, source, self._columns)

    def locate(self, at: int) -> Location | None:
        places = self._places
        return places.source.locate(places.of(at)) if places else None


def _check(catalog: Catalog, read: Read, report: Report, source: SchemaSource, place: Place) -> None:
    told, row = report.of(source), f"row of the {catalog.subject}"
    for problem in read.problems[:TOLD]:
        told.add(problem.code, problem.at, row, problem.fact, problem.limit, problem.help)
    if read.faulty > TOLD:
        fact, at = f"has {read.faulty - TOLD} more rows that cannot be read", read.problems[TOLD].at
        limit = f"the first {TOLD} are named"
        if read.given_up:
            fact, limit = given_up(limit)
        told.add("PCDC109", at, catalog.subject, fact, limit)
        if read.given_up:
            return
    at_source = catalog.at("source")
    if read.more:
        help = "leave out rows that are never the answer, or split the question"
        fact, limit = f"has more than {MAX_ENTRIES:,} rows", "an index takes at most that many"
        report.add("PCDC213", at_source, catalog.subject, fact, limit, help)
        return
    if not read.faulty and len(read.labels) < MIN_ENTRIES:
        _few(catalog, read, report)
    check_column(read.labels, "label", lambda n: (told, place(read.places[n], False), row))
    if read.ids is None:
        option = "`--id`" if catalog.node.at == NOWHERE else "`id`"
        help = f"name a column of ids with {option}, and labels may repeat; or remove one"
        if catalog.path is not None and catalog.path.suffix.lower() == ".txt":
            help = f"remove one; in a CSV file with a column of ids, which {option} names, labels may repeat"
        check_distinct(read.labels, "label", lambda n: (told, place(read.places[n], False), row), help)
    else:
        check_column(read.ids, "id", lambda n: (told, place(read.places[n], True), row))
        help = "name another column of ids, or remove one of the rows"
        check_distinct(read.ids, "id", lambda n: (told, place(read.places[n], True), row), help)


def _few(catalog: Catalog, read: Read, report: Report) -> None:
    count = len(read.labels)
    limit, at, help = (
        f"at least {MIN_ENTRIES} entries",
        catalog.at("source"),
        "every row is an entry; add rows",
    )
    fact = "has 1 row" if count else "has no rows"
    if read.passed:
        fact, at = f"{count} of {count + read.passed} rows match `where`", catalog.at("where")
        help = "`where` compares whole values exactly; ask for another one, or add rows"
    report.add("PCDC212", at, catalog.subject, fact, limit, help)


Spot = Callable[[int], tuple[Report, int, str]]
"""Of an entry's number: where to report it, its place there, and how it is called."""


def check_column(texts: Sequence[str], what: str, spot: Spot) -> None:
    """Report labels or ids (`what`) that a model cannot write or nobody can see; the first of very many."""
    count, last = 0, 0
    for number, code, fact, limit, help in _unusable(texts, what):
        count, last = count + 1, number
        if count <= TOLD:
            report, at, subject = spot(number)
            report.add(code, at, subject, fact, limit, help)
    if count > TOLD:
        report, at, subject = spot(last)
        fact, limit = (
            f"is the last of {count} with {what}s that cannot be used",
            f"the first {TOLD} are named",
        )
        report.add("PCDC246" if what == "id" else "PCDC216", at, subject, fact, limit)


def _unusable(texts: Sequence[str], what: str) -> Iterator[tuple[int, str, str, str, str]]:
    allowed = "" if what == "id" else BLANKS
    codes = ("PCDC246",) * 3 if what == "id" else ("PCDC216", "PCDC217", "PCDC218")
    blank, long, unseen = codes
    for start in range(0, len(texts), _TOGETHER):
        part = texts[start : start + _TOGETHER]
        chars = set("".join(part))
        # Each character is looked up once, and only a text that holds one of these is looked at by itself.
        suspects = {c for c in chars if hidden(c, allowed)}
        longest = max(map(len, part))
        for number, text in enumerate(part, start):
            if not text or text.isspace():
                fact = f"has {'an empty' if not text else 'a blank'} {what}"
                help = "remove it, or say what it means"
                yield number, blank, fact, f"{what}s are text that shows", help
            elif longest > MAX_CHOICE_CHARS and len(text) > MAX_CHOICE_CHARS:
                limit = f"at most {MAX_CHOICE_CHARS} characters"
                yield number, long, f"has {_a(what)} of {len(text)} characters", limit, "shorten it"
            elif suspects and not suspects.isdisjoint(text):
                shown = hidden(text, allowed)
                if shown:
                    limit = f"{what}s hold visible characters only"
                    fact = f"has {code_points(shown)} in its {what}"
                    yield number, unseen, fact, limit, "remove it; nobody could see it"


def _a(what: str) -> str:
    return f"an {what}" if what == "id" else f"a {what}"


def check_distinct(texts: Sequence[str], what: str, spot: Spot, help: str) -> None:
    """Report labels or ids (`what`) that stand twice at once: their number, and the places of the first."""
    if len(set(texts)) == len(texts):
        return
    first, again = dict[str, int](), array("q")
    for number, text in enumerate(texts):
        if first.setdefault(text, number) != number and text.strip():
            again.append(number)
    if not again:
        return
    report, at, subject = spot(again[0])
    here, text = report.source.locate(at), texts[again[0]]
    fact = f"has the {what} {quoted(text)}, as {_told(spot(first[text]), here)} has"
    more = len(again) - 1
    if more:
        others = [f"{quoted(texts[n])} {_where(spot(n), here)}".rstrip() for n in again[1:PLACES]]
        fact += f", and {more} more repeat{'s' if more == 1 else ''} one: {', '.join(others)}"
        fact += ", ..." if more > len(others) else ""
    limit = "an id names one entry" if what == "id" else "without ids a label names one entry"
    report.add("PCDC244" if what == "id" else "PCDC245", at, subject, fact, limit, help)


def _told(spot: tuple[Report, int, str], other: Location | None) -> str:
    where = _where(spot, other)
    return f"that {where}" if where.startswith(("in", "on")) else where or "another"


def _where(spot: tuple[Report, int, str], other: Location | None) -> str:
    report, at, _ = spot
    place = None if at == NOWHERE else report.source.locate(at)
    if place is None:
        return ""
    if not place.column:
        return f"row {place.line}"
    same = other is not None and other.line == place.line
    return f"in column {place.column}" if same else f"on line {place.line}"
