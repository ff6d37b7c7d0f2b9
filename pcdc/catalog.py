"""Choices that live outside a definition: what `x-catalog` asks for, and its rows as choices."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from pcdc_runtime.rules import MIN_CHOICES

from . import sql
from .diagnostics import quoted
from .labels import Declared
from .schema import CatalogUse, Choice
from .source import MAX_FILE_BYTES, SPLIT, Object, Report, Scalar, SchemaSource, read_source
from .table import ColumnError, Columns, Problem, Row, Table, find_columns, given_up, read_table

FILES = (".txt", ".csv", ".tsv", ".json", ".jsonl")
TOLD = 20

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|\$\{[A-Za-z0-9_]+\}$")
_ORDER = re.compile(r"\border\s+by\b", re.IGNORECASE)
_OF_COLUMNS = ("value", "description", "id", "where")
_UNEXPANDED = "variables are for the URLs of databases only; write the path itself"
T = TypeVar("T")
Ask = Callable[[str, str, Path], T]
ShapeCheck = Callable[[str, Object], frozenset[str]]


@dataclass(frozen=True)
class Catalog:
    """A field's `x-catalog`; `path` is None for a database, `node` has the places of its keywords."""

    subject: str
    node: Object
    source: str
    path: Path | None

    def text(self, key: str) -> str:
        """A keyword's text; empty where it is left out."""
        found = self.node.get(key)
        return found.value if isinstance(found, Scalar) and isinstance(found.value, str) else ""

    def at(self, key: str) -> int:
        """The place of a keyword's value, or of the whole."""
        member = self.node.members.get(key)
        return member.value.at if member else self.node.at

    @property
    def columns(self) -> Columns:
        """The names that are asked for."""
        where = self.node.get("where")
        members = where.members if isinstance(where, Object) else {}
        wanted = {key: m.value.value for key, m in members.items() if isinstance(m.value, Scalar)}
        return Columns(self.text("value"), self.text("description"), self.text("id"), wanted)

    @property
    def use(self) -> CatalogUse:
        """For those who wait for changes; the field has no name here."""
        changes = self.text("changes") or None
        if self.path is None:
            return CatalogUse("", None, sql.shown(self.source), changes, self.source, self.text("query"))
        return CatalogUse("", self.path, str(self.path))


@dataclass(frozen=True)
class Few:
    """Why a catalog gives hardly any rows, for a field that has too few choices; `at` is where it asks."""

    at: int
    fact: str
    help: str


@dataclass(frozen=True)
class Rows:
    """A catalog's rows as choices; where they are too many, only their `total`."""

    choices: tuple[Declared | None, ...] = (None,)
    total: int = 0
    whole: bool = False
    uses: tuple[CatalogUse, ...] = ()
    few: Few | None = None


class Catalogs:
    """Reads the catalogs of one definition; a file or query that several fields name is read once.

    `folder` is the definition's, None for one without a file. With `reads` off nothing is opened.
    """

    def __init__(
        self, report: Report, folder: Path | None, malformed: ShapeCheck, reads: bool = True
    ) -> None:
        self._report, self._folder, self._malformed, self._reads = report, folder, malformed, reads
        self._files = dict[Path, SchemaSource | None]()
        self._answers = dict[tuple[str, str, Ask[Any]], Any]()
        self._down = set[str]()

    def read(self, subject: str, node: Object) -> Rows:
        """The rows that an `x-catalog` names; what keeps it from being read is reported."""
        catalog = self.declared(subject, node)
        if catalog is None or not self._reads:
            return Rows(uses=(catalog.use,) if catalog else ())
        if "id" in node.members:
            fact, limit = "has an `id`", "only the answers of an index have ids"
            help = 'leave it out, or make an index: `"x-pcdc": {"index": true}`'
            self._report.add("PCDC230", node.members["id"].at, catalog.subject, fact, limit, help)
            return Rows(uses=(catalog.use,))
        table = self._table(catalog)
        if table is None:
            return Rows(uses=(catalog.use,))
        self._tell(catalog, table)
        if table.given_up:
            return Rows(uses=(catalog.use,))
        few = _few(catalog, table) if table.total < MIN_CHOICES else None
        return Rows(_choices(table), table.total, not table.problems, (catalog.use,), few)

    def declared(self, subject: str, node: Object) -> Catalog | None:
        """What an `x-catalog` names, before any of it is opened; what is wrong with it is reported."""
        if self._folder is None:
            self.misplaced(subject, node.at, "needs a definition file", "its paths are relative to that file")
            return None
        name = f"catalog of {subject}"
        return None if self._malformed(name, node) else self._declared(name, node, self._folder)

    def misplaced(self, subject: str, at: int, fact: str, limit: str) -> None:
        """Report an `x-catalog` where none can be."""
        help = "move it into a field of a definition file; from Python pass the choices themselves"
        self._report.add("PCDC226", at, subject, f"has an `x-catalog`, which {fact}", limit, help)

    def _declared(self, name: str, node: Object, folder: Path) -> Catalog | None:
        catalog = Catalog(name, node, "", None)
        source = catalog.text("source").strip()

        def refuse(key: str, fact: str, limit: str = "", help: str = "") -> None:
            self._report.add("PCDC230", catalog.at(key), name, fact, limit, help)

        if not source:
            refuse(
                "source", "names no source", "", 'add `"source": "teams.csv"`, a path beside this definition'
            )
            return None
        if _URL.match(source):
            if "query" not in node.members:
                help = 'add `"query": "select ..."`; fetch a list on the web into a file first'
                refuse("source", "has no `query`", "a URL names a database", help)
                return None
            if "where" in node.members:
                refuse("where", "has a `where`", "a query has its own", "put it into the query")
                return None
            return Catalog(name, node, source, None)
        kind = Path(source).suffix.lower()
        # A colon and an @ make a mistyped URL, which may hold a password: no path, and not to be shown.
        if kind not in FILES or {":", "@"} <= set(source):
            limit = f"a catalog is a file {', '.join(FILES[:-1])} or {FILES[-1]}, or the URL of a database"
            near = get_close_matches(kind, FILES, n=1) if kind not in FILES else []
            help = f"did you mean `{near[0]}`?" if near else "write its rows to a CSV file"
            help = _UNEXPANDED if "${" in source else help
            refuse("source", f"is of no known kind: {quoted(sql.shown(source))}", limit, help)
            return None
        idle = ("query", "changes", *(_OF_COLUMNS if kind == ".txt" else ()))
        surplus = [key for key in idle if key in node.members]
        for key in surplus:
            what = "a file is read whole" if key in idle[:2] else "a line of text has no columns"
            refuse(
                key,
                f"has {'an' if key == 'id' else 'a'} `{key}`",
                what,
                "leave it out, or name another kind of source",
            )
        return None if surplus else Catalog(name, node, source, folder / source)

    def _table(self, catalog: Catalog) -> Table | None:
        try:
            if catalog.path is None:
                return self._database(catalog)
            return self._file(catalog, catalog.path)
        except ColumnError as why:
            self.misfits(catalog, why)
            return None

    def misfits(self, catalog: Catalog, why: ColumnError) -> None:
        """Report keywords that do not fit the columns that there are."""
        for wrong in why.misfits:
            place = catalog.at(wrong.keyword)
            self._report.add(wrong.code, place, catalog.subject, wrong.fact, wrong.limit, wrong.help)

    def _file(self, catalog: Catalog, path: Path) -> Table | None:
        if path not in self._files:
            self._files[path] = self.opened(catalog, path)
        source = self._files[path]
        if source is None:
            return None
        return read_table(path.suffix.lower(), self._report.of(source), catalog.columns)

    def opened(
        self, catalog: Catalog, path: Path, max_bytes: int = MAX_FILE_BYTES, split: str = SPLIT
    ) -> SchemaSource | None:
        """The text of a catalog's file; `max_bytes` and `split` as in `read_source`."""
        fact = ""
        try:
            if not stat.S_ISREG(path.stat().st_mode):
                fact = "is no regular file"
        except (OSError, ValueError) as error:
            fact = f"cannot be read ({getattr(error, 'strerror', None) or error})"
        if fact:
            help = _UNEXPANDED if "${" in catalog.source else "its path is relative to the definition"
            subject = f"{quoted(catalog.source)}, {catalog.subject}"
            self._report.add("PCDC101", catalog.at("source"), subject, fact, "", help)
            return None
        source, problems = read_source(path, "catalog", max_bytes, split)
        self._report.diagnostics.extend(problems)
        return source

    def _database(self, catalog: Catalog) -> Table | None:
        answer = self.asked(catalog, sql.ask)
        return None if answer is None else _answered(catalog, answer)

    def asked(self, catalog: Catalog, ask: Ask[T]) -> T | None:
        """What `ask` gives for a catalog's query."""
        query = catalog.text("query")
        if not _ORDER.search(query):
            fact, limit = "has no `order by`", "choices keep the order of the rows, and ties go to the first"
            help = "add `order by` to the query"
            self._report.add("PCDC254", catalog.at("query"), f"query of {catalog.subject}", fact, limit, help)
        answer = self._answer(catalog, "query", ask)
        if "changes" in catalog.node.members:
            # Those who wait for changes would wait in vain, and say nothing.
            self._answer(catalog, "changes", sql.ask)
        return answer

    def _answer(self, catalog: Catalog, keyword: str, ask: Ask[T]) -> T | None:
        key = catalog.source, catalog.text(keyword), ask
        if key not in self._answers:
            self._answers[key] = self._tried(catalog, keyword, ask)
        found: T | None = self._answers[key]
        return found

    def _tried(self, catalog: Catalog, keyword: str, ask: Ask[T]) -> T | None:
        if catalog.source in self._down or self._folder is None:
            return None
        try:
            return ask(catalog.source, catalog.text(keyword), self._folder)
        except sql.Unreadable as why:
            if why.down:
                self._down.add(catalog.source)
            subject = f"{sql.shown(catalog.source)}, {catalog.subject}"
            at = catalog.at(keyword if why.keyword == "query" else why.keyword)
            self._report.add(why.code, at, subject, why.fact, why.limit, why.help)
            return None

    def _tell(self, catalog: Catalog, table: Table) -> None:
        """Report rows that are no entries; of very many the first, and how many more there are."""
        report = self._report.of(table.source)
        for problem in table.problems[:TOLD]:
            subject = f"row of the {catalog.subject}"
            report.add(problem.code, problem.at, subject, problem.fact, problem.limit, problem.help)
        more = len(table.problems) - TOLD
        if more > 0:
            fact, at = f"has {more} more rows that cannot be read", table.problems[TOLD].at
            limit = f"the first {TOLD} are named"
            if table.given_up:
                fact, limit = given_up(limit)
            report.add("PCDC109", at, catalog.subject, fact, limit)


def _few(catalog: Catalog, table: Table) -> Few:
    if table.passed:
        help = "`where` compares whole values exactly; ask for another one, or add rows"
        fact = f"{table.total} of {table.total + table.passed} rows match `where`"
        return Few(catalog.at("where"), fact, help)
    fact = "has 1 row" if table.total else "has no rows"
    if catalog.path is None:
        return Few(catalog.at("query"), fact, "every row of the query is a choice; let it find more")
    return Few(catalog.at("source"), fact, "every row is a choice; add rows to the file")


def _choices(table: Table) -> tuple[Declared | None, ...]:
    """Rows as choices that know their place; none where there are more than a field may have."""
    if table.total > len(table.rows):
        return ()
    return tuple(None if row is None else _declared(row, table.source) for row in table.rows)


def _declared(row: Row, source: SchemaSource) -> Declared:
    choice = Choice(row.value, row.value, row.description, source.locate(row.at))
    return Declared(choice, row.at, origin=source)


def _answered(catalog: Catalog, answer: sql.Answer) -> Table:
    """Rows of a database as a table, each a line of a text made up for the messages. Raises ColumnError."""
    names, columns = list(answer.columns), catalog.columns
    find_columns(names, columns)
    value = names.index(columns.value) if columns.value else 0
    note = names.index(columns.description) if columns.description else 1
    lines = [" | ".join(map(_shown, row)) for row in answer.rows]
    table = Table(SchemaSource(sql.shown(catalog.source), "\n".join(lines), rows=True))
    at = 0
    for row, line in zip(answer.rows, lines, strict=True):
        table.add(_row(row[value], row[note] if note < len(row) else None, at))
        at += len(line) + 1
    table.total = answer.total
    return table


def _row(value: object, note: object, at: int) -> Row | Problem:
    if isinstance(value, str) and (note is None or isinstance(note, str)):
        return Row(value, at, note or "")
    if isinstance(value, str):
        fact = f"has a description of type {type(note).__name__}"
        return Problem("PCDC232", at, fact, "descriptions are text", "cast it to text in the query")
    if value is None:
        help = "leave it out with `where ... is not null`, or name it with `coalesce`"
        return Problem("PCDC232", at, "has the value NULL", "values of a catalog are text", help)
    fact, help = f"has a value of type {type(value).__name__}", "cast it to text in the query"
    return Problem("PCDC232", at, fact, "values of a catalog are text", help)


def _shown(value: object) -> str:
    return quoted(value) if isinstance(value, str) else "NULL" if value is None else quoted(str(value))[1:-1]
