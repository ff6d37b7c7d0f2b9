"""Rows of a database: one query in a read-only transaction that is rolled back, within a time limit.

Anything that SQLAlchemy has a driver for. PostgreSQL and SQLite are told to refuse writes; nowhere is
anything committed. Passwords come from the environment and stay out of every message.
"""

from __future__ import annotations

import math
import os
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, quote_plus, unquote

from pcdc_runtime.rules import MAX_CHOICES

from .diagnostics import quoted
from .keywords import suggestion

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection

TIMEOUT = 10
INDEX_TIMEOUT = 300
ROWS = MAX_CHOICES + 1

T = TypeVar("T")
Keep = Callable[[tuple[str, ...], Iterator[tuple[Any, ...]]], T]

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
# Where a port stands. Elsewhere a variable is put in after the URL is taken apart, and needs no escapes.
_PORT = re.compile(r"(?<=:)\$\{([A-Za-z_][A-Za-z0-9_]*)\}(?=[/?]|$)")
_PARTS = re.compile(r"([\w+.-]+)://(.*)", re.DOTALL)
_PLACE = re.compile(r"(?:[^\s:/?#@&;=%]*|\[[0-9a-fA-F:.]+\])(?::(?:\d+|\$\{\w+\}))?(?:/[^\s:?#@&;=%]*)?")
_CONNECT_SECONDS = {
    "pysqlite": "timeout",
    "psycopg": "connect_timeout",
    "psycopg2": "connect_timeout",
    "pymysql": "connect_timeout",
}
_GRACE = 1
"""Seconds that a driver has to end what is late, before it is left behind."""
_CANCELED = "57014"
_MESSAGE = 300
_BUFFER = 2048
# How SQLite, PostgreSQL and MySQL name a column that is not there.
_MISSING = re.compile(r"(?:no such column:|\bcolumn) [\"'`]?(?:\w+\.)?(\w+)", re.IGNORECASE)
_COLUMNS = 12


@dataclass(frozen=True)
class Answer:
    """What a query gave: at most ROWS rows, and how many there were."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    total: int


class Unreadable(Exception):
    """Why a database gave no rows, as parts of a diagnostic; `down` where it gives none to any query.

    `keyword` is the one of the catalog that is to blame.
    """

    def __init__(
        self,
        code: str,
        fact: str,
        limit: str = "",
        help: str = "",
        *,
        down: bool = False,
        keyword: str = "source",
    ) -> None:
        super().__init__(code, fact, limit, help)
        self.keyword = keyword
        self.code, self.fact, self.limit, self.help, self.down = code, fact, limit, help, down


def shown(url: str) -> str:
    """A database URL as it may be shown: kind, host and database, without user and options.

    Of what is no such URL only what stands before its first colon.
    """
    if _VARIABLE.fullmatch(url):
        return url
    parts = _PARTS.fullmatch(url)
    if parts is None:
        head, colon, _ = url.partition(":")
        return f"{head}:..." if colon else url
    kind, rest = parts.groups()
    place, _, options = rest.partition("?")
    if kind.startswith("sqlite") and rest.startswith("/"):
        return f"{kind}://{place}"
    place = place.rpartition("@")[2]
    # An unescaped `?` or `@` in a password leaves no sure place where the password ends.
    return f"{kind}://{place if _PLACE.fullmatch(place) and '@' not in options else '...'}"


def ask(url: str, query: str, folder: Path) -> Answer:
    """The first rows of a query, in the order in which they are returned. Raises Unreadable.

    `${NAME}` in the URL is the environment's; the path of an SQLite file is relative to `folder`.
    """
    return stream(url, query, folder, _first, TIMEOUT)


def _first(columns: tuple[str, ...], rows: Iterator[tuple[Any, ...]]) -> Answer:
    kept = tuple(islice(rows, ROWS))
    return Answer(columns, kept, len(kept) + sum(1 for _ in rows))


def stream(url: str, query: str, folder: Path, keep: Keep[T], seconds: float) -> T:
    """What `keep` makes of a query's columns and rows, which go by one by one. Raises Unreadable as `ask`.

    `keep` runs in a thread of its own; where `seconds` are over it is left behind, and its work is lost.
    """
    try:
        import sqlalchemy.exc
    except ImportError:
        fact, help = "needs SQLAlchemy, which is not installed", "pip install 'pcdc[sql]'"
        raise Unreadable("PCDC404", fact, "", help) from None
    target, secrets = _target(url, folder)
    deadline, connected, columns = time.monotonic() + seconds, threading.Event(), list[str]()
    try:
        return _within(seconds, connected, lambda: _fetch(target, query, deadline, connected, columns, keep))
    except Unreadable:
        raise
    except sqlalchemy.exc.NoSuchModuleError:
        fact = f"is of the kind {target.drivername!r}, which SQLAlchemy does not know"
        raise Unreadable("PCDC230", fact, "", "such as sqlite, postgresql or mysql") from None
    except ImportError as error:
        fact = f"needs the driver {error.name or target.drivername}, which is not installed"
        raise Unreadable(
            "PCDC404", fact, "", "install it, or name another one in the URL: postgresql+psycopg://"
        ) from None
    except Exception as error:
        # Drivers raise what they like; whatever it is, this database gives no rows now.
        reason = getattr(error, "orig", None) or error
        if _stopped(reason) and time.monotonic() >= deadline:
            raise _late(seconds, down=False) from None
        # What PostgreSQL says in full holds the name of a cursor, another one each time.
        text = getattr(getattr(reason, "diag", None), "message_primary", None) or str(reason)
        told = _redacted(" ".join(text.split()), secrets)[:_MESSAGE] or type(reason).__name__
        down = not connected.is_set()
        help = "; ".join([*columns, "check that it is up and that the query runs there"])
        keyword = "source" if down else "query"
        raise Unreadable(
            "PCDC110", f"cannot be read ({told})", "", help, down=down, keyword=keyword
        ) from None


def _target(url: str, folder: Path) -> tuple[URL, frozenset[str]]:
    """The URL to connect to, and every text that must not be shown."""
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    whole = _VARIABLE.fullmatch(url)
    _need_variables(url)
    text = _PORT.sub(_variable, _variable(whole) if whole else url)
    _need_variables(text)
    try:
        given = make_url(text)
    except (ArgumentError, ValueError):
        limit = "such as sqlite:///ops.db or postgresql://user:${PASSWORD}@host/name"
        raise Unreadable("PCDC230", "is no URL of a database", limit) from None
    options = {key: _expanded(value) for key, value in given.query.items()}
    target = given.set(
        username=_expanded(given.username),
        password=_expanded(given.password),
        host=_expanded(given.host),
        database=_expanded(given.database),
        query=options,
    )
    secrets = _secrets(url, text, target)
    if target.get_backend_name() == "sqlite" and target.database not in (None, "", ":memory:"):
        target = _read_only_file(target, folder)
    return target, secrets


def _secrets(url: str, text: str, target: URL) -> frozenset[str]:
    """What a driver may say of a URL and nobody may read: password, options, variables and the whole."""
    login = text.rpartition("@")[0].partition("://")[2].partition(":")[2]
    options = [str(part) for value in target.query.values() for part in _parts(value)]
    hidden = [url, text, str(target.password or ""), login, *re.split("[:/@]", login), *options]
    hidden += [os.environ[name] for name in _VARIABLE.findall(url) + _VARIABLE.findall(text)]
    # Options of ODBC stand in one option: `DRIVER=x;PWD=y`.
    hidden += [pair.partition("=")[2].strip("{}") for value in options for pair in re.split("[;&]", value)]
    forms = [
        form
        for value in hidden
        for form in (value, quote(value), quote_plus(value), repr(value)[1:-1], unquote(value))
    ]
    return frozenset(form for given in forms for form in (given, " ".join(given.split())) if form.strip())


def _parts(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value


def _read_only_file(target: URL, folder: Path) -> URL:
    name = str(target.database)
    if name.startswith("file:"):
        fact, help = "has an SQLite URI", "write the path itself: sqlite:///ops.db"
        raise Unreadable("PCDC230", fact, "a file is opened for reading in any case", help)
    path = (folder / name).absolute()
    if not path.is_file():
        fact = "is no file" if path.exists() else "does not exist"
        help = "the path is relative to the definition; sqlite:////path has an absolute one"
        raise Unreadable("PCDC110", f"cannot be read ({fact})", "", help)
    uri = f"file:{quote(str(path))}"
    return target.set(database=uri, query={**target.query, "mode": "ro", "uri": "true"})


def _need_variables(url: str) -> None:
    missing = [name for name in dict.fromkeys(_VARIABLE.findall(url)) if name not in os.environ]
    if missing:
        several = len(missing) > 1
        fact = f"needs the environment variable{'s' if several else ''} {', '.join(missing)}, "
        fact += f"which {'are' if several else 'is'} not set"
        raise Unreadable("PCDC111", fact, "", "; ".join(f"export {name}=..." for name in missing))


def _variable(match: re.Match[str]) -> str:
    return os.environ[match.group(1)]


def _expanded(part: Any) -> Any:
    if isinstance(part, tuple):
        return tuple(map(_expanded, part))
    return None if part is None else _VARIABLE.sub(_variable, str(part))


def _redacted(text: str, secrets: frozenset[str]) -> str:
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def _stopped(reason: BaseException) -> bool:
    """Whether a query was ended from outside, as the time limits of SQLite and PostgreSQL do."""
    states = (getattr(reason, "sqlstate", None), getattr(reason, "pgcode", None))
    return _CANCELED in states or getattr(reason, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT


def _late(seconds: float, *, down: bool, connected: bool = True) -> Unreadable:
    fact = f"did not answer within {seconds:g} seconds"
    if not connected:
        limit, help = "connecting included", "check that it is up and can be reached from here"
        return Unreadable("PCDC110", fact, limit, help, down=True)
    help = "make the query cheaper, or write its rows to a CSV file"
    return Unreadable("PCDC110", fact, "", help, down=down, keyword="query")


def _within(seconds: float, connected: threading.Event, work: Callable[[], T]) -> T:
    """What `work` gives, from a thread that is left behind where it takes too long: no driver can be trusted
    to come back from a network that swallows packets."""
    done: list[tuple[T] | Exception] = []

    def run() -> None:
        try:
            done.append((work(),))
        except Exception as error:
            done.append(error)

    thread = threading.Thread(target=run, name="pcdc-sql", daemon=True)
    thread.start()
    thread.join(seconds + _GRACE)
    outcome = done[0] if done else None
    if outcome is None:
        raise _late(seconds, down=True, connected=connected.is_set())
    if isinstance(outcome, Exception):
        raise outcome
    return outcome[0]


def _fetch(
    target: URL, query: str, deadline: float, connected: threading.Event, columns: list[str], keep: Keep[T]
) -> T:
    from sqlalchemy import create_engine
    from sqlalchemy.exc import DBAPIError
    from sqlalchemy.pool import NullPool

    option = _CONNECT_SECONDS.get(target.get_driver_name())
    arguments = {option: TIMEOUT} if option and option not in target.query else {}
    engine = create_engine(target, poolclass=NullPool, connect_args=arguments)
    with engine.connect() as connection:
        connected.set()
        _refuse_writes(connection, deadline)
        # Without parameters a driver leaves `%` and `:` in the query alone.
        options = {"no_parameters": True, "stream_results": True, "max_row_buffer": _BUFFER}
        try:
            result = connection.exec_driver_sql(query, execution_options=options)
        except DBAPIError as error:
            missing = _MISSING.search(str(error.orig))
            if missing:
                columns += _near_columns(connection, query, missing.group(1))
            raise
        if not result.returns_rows:
            fact, help = "cannot be read (the query gives no rows)", "write a `select`"
            raise Unreadable("PCDC110", fact, "", help, keyword="query")
        return keep(tuple(result.keys()), (tuple(row) for part in result.partitions(_BUFFER) for row in part))


def _near_columns(connection: Connection, query: str, missing: str) -> list[str]:
    """The column that was meant, or those of the tables that the query names; none where nobody knows."""
    from sqlalchemy import inspect
    from sqlalchemy.exc import SQLAlchemyError

    words = frozenset(re.findall(r"\w+", query.lower()))
    try:
        connection.rollback()
        if connection.dialect.name == "sqlite":
            # From here on only pcdc itself asks, with pragmas that a user's query may not use.
            raw: Any = connection.connection.driver_connection
            raw.set_authorizer(None)
        catalog = inspect(connection)
        tables = [t for t in (*catalog.get_table_names(), *catalog.get_view_names()) if t.lower() in words]
        names = list(dict.fromkeys(column["name"] for t in tables for column in catalog.get_columns(t)))
    except SQLAlchemyError:
        return []
    more = ", …" if len(names) > _COLUMNS else ""
    listed = f"the columns are {', '.join(map(quoted, names[:_COLUMNS]))}{more}" if names else ""
    return [hint for hint in (suggestion(missing, frozenset(names)) or listed,) if hint]


def _refuse_writes(connection: Connection, deadline: float) -> None:
    kind = connection.dialect.name
    if kind == "postgresql":
        connection.execution_options(postgresql_readonly=True)
        left = max(1, math.ceil((deadline - time.monotonic()) * 1000))
        connection.exec_driver_sql(f"set local statement_timeout = {left}")
    elif kind == "sqlite":
        raw: Any = connection.connection.driver_connection
        raw.set_progress_handler(lambda: time.monotonic() > deadline, 10_000)
        connection.exec_driver_sql("pragma query_only = on")
        raw.set_authorizer(_only_reads)


def _only_reads(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """Allows an SQLite statement what reading needs: `attach` and `vacuum into` would make files."""
    reads = action in (
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_FUNCTION,
        sqlite3.SQLITE_RECURSIVE,
    )
    # Tables of extensions, such as full text search, ask for their version and declare their columns; an
    # update of the declarations themselves SQLite refuses.
    reads = reads or (action, first) in (
        (sqlite3.SQLITE_PRAGMA, "data_version"),
        (sqlite3.SQLITE_UPDATE, "sqlite_master"),
    )
    loads = action == sqlite3.SQLITE_FUNCTION and str(second).lower() == "load_extension"
    return sqlite3.SQLITE_OK if reads and not loads else sqlite3.SQLITE_DENY
