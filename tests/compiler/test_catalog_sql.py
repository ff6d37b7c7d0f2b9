"""Choices from databases: a real SQLite file and a real PostgreSQL server, changed by other connections."""

from __future__ import annotations

import json
import logging
import sqlite3
import subprocess
import sys
import threading
import warnings
from contextlib import closing

import postgres
import pytest
from command_line import ENVIRONMENT, PROGRAM
from families import family_folder
from pcdc_runtime.codec import read

from pcdc import sql
from pcdc.build import build
from pcdc.diagnostics import RULES, render_json, render_text
from pcdc.parse import catalogs_of, parse_file

MODEL = str(family_folder("smollm2"))
QUERY = "select code, label from tariff where active order by code"
ENDLESS = "with recursive n(i) as (select 1 union all select i + 1 from n) select max(i) from n order by 1"
SECRET = "hunter2/not@here"


@pytest.fixture(scope="module")
def server():
    with postgres.server() as running:
        yield running


@pytest.fixture
def environment(monkeypatch):
    monkeypatch.setenv("PCDC_TEST_PASSWORD", postgres.PASSWORD)


class SQLite:
    """A file beside the definition."""

    url = "sqlite:///ops.db"

    def __init__(self, folder):
        self.path = folder / "ops.db"

    def execute(self, *statements):
        with closing(sqlite3.connect(self.path)) as connection:
            for statement in statements:
                connection.execute(statement)
            connection.commit()


@pytest.fixture(params=["sqlite", "sqlite-wal", "postgresql"])
def database(request, tmp_path):
    """A database with a tariff table of two active rows and one that is not."""
    if request.param == "postgresql":
        request.getfixturevalue("environment")
        found = request.getfixturevalue("server")
        found.execute("drop table if exists tariff, big")
    else:
        found = SQLite(tmp_path)
        if request.param == "sqlite-wal":
            found.execute("pragma journal_mode = wal")
    found.execute(
        "create table tariff (code text, label text, active boolean, weight integer)",
        "insert into tariff values ('0101.21', 'Horses', true, 1), ('00060', 'a ''b''', true, 2)",
        "insert into tariff values ('NA', 'Gone', false, 3)",
    )
    return found


def catalog(folder, source, query=QUERY, **more):
    more = {"x-catalog": {"source": source, "query": query, **more}}
    path = folder / "goods.json"
    path.write_text(json.dumps({"code": {"description": "Which code?", **more}}), encoding="utf-8")
    return path


def choices(path):
    schema, diagnostics = parse_file(path)
    assert schema is not None, render_text(diagnostics)
    return [(c.value, c.description) for c in schema.fields[0].choices]


def findings(path):
    return parse_file(path)[1]


def finding(path):
    (one,) = findings(path)
    return one


def test_rows_are_choices_in_the_order_that_the_query_asks_for(database, tmp_path):
    assert choices(catalog(tmp_path, database.url)) == [("00060", "a 'b'"), ("0101.21", "Horses")]
    backwards = catalog(tmp_path, database.url, "select label, code from tariff order by weight desc;")
    assert choices(backwards) == [("Gone", "NA"), ("a 'b'", "00060"), ("Horses", "0101.21")]
    named = catalog(tmp_path, database.url, "select * from tariff order by code", value="label")
    assert [value for value, _ in choices(named)] == ["a 'b'", "Horses", "Gone"]
    one = catalog(tmp_path, database.url, "select code from tariff order by code")
    assert choices(one) == [("00060", ""), ("0101.21", ""), ("NA", "")]


def test_percent_signs_colons_and_question_marks_are_the_querys_own(database, tmp_path):
    query = "select code from tariff where code like '0%' and ':x' <> '?' and '%s' <> '%(a)s' order by 1"
    assert [value for value, _ in choices(catalog(tmp_path, database.url, query))] == ["00060", "0101.21"]


def test_rows_that_another_connection_changes_are_seen_by_the_next_build(database, tmp_path):
    path, out = catalog(tmp_path, database.url, description="label"), tmp_path / "out"
    first, again = (build([path], [MODEL], out) for _ in range(2))
    database.execute(
        "update tariff set label = 'Ponies' where code = '0101.21'",
        "update tariff set active = true where code = 'NA'",
        "delete from tariff where code = '00060'",
    )
    changed = build([path], [MODEL], out)
    assert [r.targets[0].outcome for r in (first, again, changed)] == ["built", "fresh", "built"]
    assert changed.targets[0].changes == (
        "field code: choice '00060' removed",
        "field code: choice 'NA' added",
        "field code: description of choice '0101.21' changed",
    )
    (artifact,) = out.glob("*.pcdc")
    assert [c.label for c in read(artifact).fields[0].candidates] == ["0101.21", "NA"]


def test_rows_that_are_not_committed_are_not_read(database, tmp_path):
    path = catalog(tmp_path, database.url, "select code from tariff order by code")
    before = choices(path)
    if isinstance(database, SQLite):
        connection = sqlite3.connect(database.path)
    else:
        import psycopg

        connection = psycopg.connect(
            host=str(database.folder), user=postgres.USER, password=postgres.PASSWORD, dbname="postgres"
        )
    with closing(connection):
        connection.execute("insert into tariff values ('ZZ', 'z', true, 9)")
        assert choices(path) == before
        connection.commit()
    assert choices(path) == [*before, ("ZZ", "")]


@pytest.mark.parametrize(
    "query",
    [
        "delete from tariff",
        "insert into tariff values ('X', 'x', true, 9) returning code, label",
        "create table more (code text)",
        "select code from tariff; commit; delete from tariff",
    ],
)
def test_a_query_that_writes_is_refused_and_writes_nothing(database, tmp_path, query):
    assert [d.code for d in findings(catalog(tmp_path, database.url, query)) if d.severity == "error"] == [
        "PCDC110"
    ]
    assert len(choices(catalog(tmp_path, database.url, "select code from tariff order by code"))) == 3


def test_beyond_the_limit_rows_are_counted_and_not_listed(database, tmp_path):
    numbers = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 100000) "
    database.execute(f"create table big as {numbers} select 'c' || i as code from n")
    found = finding(catalog(tmp_path, database.url, "select code from big order by code"))
    assert (found.code, found.fact, found.limit) == ("PCDC213", "has 100000 choices", "at most 255")
    assert (
        len(choices(catalog(tmp_path, database.url, "select code from big order by code limit 255"))) == 255
    )


def test_what_is_wrong_with_a_row_is_told_with_its_number(database, tmp_path):
    database.execute("insert into tariff values ('0101.21', 'again', true, 4), ('', 'empty', true, 5)")
    database.execute("insert into tariff values (null, 'none', true, 6)")
    path = catalog(tmp_path, database.url, "select code, label from tariff order by weight")
    found = findings(path)
    assert [(d.code, d.location.line, d.location.column) for d in found] == [
        ("PCDC219", 4, 0),
        ("PCDC216", 5, 0),
        ("PCDC232", 6, 0),
    ]
    shown = sql.shown(database.url)
    assert (
        f'{shown} row 4: error[PCDC219]: choice 4 of field "code": "0101.21" is choice 1 again'
        in render_text(found)
    )
    assert '    4 | "0101.21" | "again"\n' in render_text(found)
    number = finding(catalog(tmp_path, database.url, "select weight from tariff where weight = 1 order by 1"))
    assert (number.code, number.help) == ("PCDC232", "cast it to text in the query")


@pytest.mark.parametrize(
    ("query", "more", "code", "help"),
    [
        (QUERY, {"value": "cod"}, "PCDC231", "did you mean `code`?"),
        (QUERY, {"description": "lable"}, "PCDC231", "did you mean `label`?"),
        (QUERY, {"where": {"active": "yes"}}, "PCDC230", "put it into the query"),
        ("select nope from tariff order by 1", {}, "PCDC110", "the query runs there"),
        ("selec code order by 1", {}, "PCDC110", "the query runs there"),
    ],
)
def test_a_wrong_question_is_told_where_it_is_asked(database, tmp_path, query, more, code, help):
    path = catalog(tmp_path, database.url, query, **more)
    found = finding(path)
    assert (found.code, found.location.path) == (code, str(path))
    assert help in found.help
    assert findings(path) == [found]


def test_a_query_without_an_order_is_a_warning(database, tmp_path):
    found = finding(catalog(tmp_path, database.url, "select code from tariff"))
    assert (found.code, found.severity) == ("PCDC254", "warning")


@pytest.mark.parametrize("more", [{}, {"changes": ENDLESS}], ids=["query", "changes"])
def test_a_query_that_takes_too_long_is_given_up_and_told_with_the_limit(
    database, tmp_path, monkeypatch, more
):
    monkeypatch.setattr(sql, "TIMEOUT", 0.3)
    path = catalog(tmp_path, database.url, QUERY if more else ENDLESS, **more)
    (found,) = (d for d in findings(path) if d.severity == "error")
    assert (found.code, RULES[found.code].in_content) == ("PCDC110", False)
    assert (found.fact, found.limit) == ("did not answer within 0.3 seconds", "")
    assert found.help == "make the query cheaper, or write its rows to a CSV file"


def test_what_never_comes_back_is_left_behind_and_told_with_the_limit(tmp_path, monkeypatch):
    over = threading.Event()
    monkeypatch.setattr(sql, "_GRACE", 0)
    monkeypatch.setattr(sql, "_fetch", lambda *_: over.wait(60))
    try:
        with pytest.raises(sql.Unreadable) as caught:
            sql.stream("sqlite://", "select 1", tmp_path, lambda *_: None, 0.1)
    finally:
        over.set()
    found = caught.value
    assert (found.fact, found.down) == ("did not answer within 0.1 seconds", True)
    assert "check that it is up" in found.help


def test_a_database_that_is_down_keeps_the_artifact_and_is_told_once(server, environment, tmp_path):
    server.execute(
        "drop table if exists tariff", "create table tariff (code text, label text, active boolean)"
    )
    server.execute("insert into tariff values ('A', 'a', true), ('B', 'b', true)")
    asked = {"source": server.url, "query": QUERY}
    fields = {
        name: {"description": "?", "x-catalog": {**asked, "query": f"{QUERY} limit {limit}"}}
        for name, limit in (("a", 2), ("b", 3))
    }
    path, out = tmp_path / "goods.json", tmp_path / "out"
    path.write_text(json.dumps(fields), encoding="utf-8")
    call = [*PROGRAM, "build", str(path), "--model", MODEL, "--out", str(out)]
    environment = {**ENVIRONMENT, "PCDC_TEST_PASSWORD": postgres.PASSWORD}
    assert subprocess.run(call, env=environment, capture_output=True, check=False).returncode == 0
    (artifact,) = out.glob("*.pcdc")
    before = artifact.read_bytes(), artifact.stat().st_mtime_ns
    server.stop()
    try:
        done = subprocess.run(call, env=environment, capture_output=True, text=True, check=False)
    finally:
        server.start()
    assert done.returncode == 2
    assert done.stderr.count("error[") == done.stderr.count("error[PCDC110]") == 1
    assert "Traceback" not in done.stderr
    assert (artifact.read_bytes(), artifact.stat().st_mtime_ns) == before
    assert "last good artifact stays" in (out / "log.jsonl").read_text(encoding="utf-8")
    assert subprocess.run(call, env=environment, capture_output=True, check=False).returncode == 0


def test_no_password_reaches_an_artifact_a_log_or_a_message(server, tmp_path, monkeypatch, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    server.execute(
        "drop table if exists tariff", "create table tariff (code text, label text, active boolean)"
    )
    server.execute("insert into tariff values ('A', 'a', true), ('B', 'b', true)")
    out = tmp_path / "out"
    monkeypatch.setenv("PCDC_TEST_PASSWORD", postgres.PASSWORD)
    assert build([catalog(tmp_path, server.url)], [MODEL], out).targets[0].outcome == "built"
    monkeypatch.setenv("PCDC_TEST_PASSWORD", SECRET)
    escaped = SECRET.replace("/", "%2F").replace("@", "%40")
    monkeypatch.setenv("PCDC_TEST_URL", f"postgresql+psycopg://owner:{escaped}@127.0.0.1:1/postgres")
    urls = [
        server.url,
        server.url.replace("${PCDC_TEST_PASSWORD}", escaped),
        f"postgresql+psycopg://owner:{SECRET}@127.0.0.1:1/postgres",
        f"postgresql+psycopg://127.0.0.1:1/postgres?user=owner&password={escaped}",
        f"postgresql+psycopg://127.0.0.1:1/postgres?PassWord={escaped}&user=owner",
        f"postgresql+psycopg://owner:{escaped}@127.0.0.1:port/postgres",
        f"unheard-of://owner:{escaped}@127.0.0.1:1/postgres",
        "${PCDC_TEST_URL}",
    ]
    told = ""
    for url in urls:
        path = catalog(tmp_path, url)
        report = build([path], [MODEL], out)
        assert len([d for d in report.diagnostics if d.severity == "error"]) == 1
        told += render_text(report.diagnostics) + render_json(report.diagnostics)
        told += repr(parse_file(path)) + repr(catalogs_of(path)) + repr(report)
    told += "".join(p.read_text(encoding="latin-1") for p in out.iterdir() if p.is_file())
    told += caplog.text + "".join(capfd.readouterr())
    for secret in (SECRET, escaped, postgres.PASSWORD, "hunter2"):
        assert secret not in told
    assert "postgresql+psycopg://127.0.0.1:1/postgres, catalog of" in told


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://u:p@h/d", "postgresql://h/d"),
        ("postgresql://u:p@:/x@h:1/d", "postgresql://h:1/d"),
        ("postgresql://u:p\nq@h/d", "postgresql://h/d"),
        ("postgresql://u:p?q@h/d", "postgresql://..."),
        ("postgresql://u:p/d", "postgresql://..."),
        ("postgresql://u@h/d?password=p&sslmode=x", "postgresql://h/d"),
        ("postgresql://h/d?user=u&%70assword=p", "postgresql://h/d"),
        ("postgresql://h/d?a=b;password=p", "postgresql://h/d"),
        ("postgresql://h/d;password=p", "postgresql://..."),
        ("mssql+pyodbc:///?odbc_connect=DRIVER%3Dx%3BPWD%3Dp", "mssql+pyodbc:///"),
        ("postgresql:/u:p@h/d", "postgresql:..."),
        ("postgresql:u:p@h/d", "postgresql:..."),
        ("sqlite:///a:b@c.db", "sqlite:///a:b@c.db"),
        ("postgresql://u:${P}@${H}:${N}/d", "postgresql://${H}:${N}/d"),
        ("${DATABASE_URL}", "${DATABASE_URL}"),
        ("teams.csv", "teams.csv"),
    ],
)
def test_a_shown_url_has_no_password(url, expected):
    assert sql.shown(url) == expected


def test_any_part_of_a_url_may_come_from_the_environment(server, environment, tmp_path, monkeypatch):
    server.execute(
        "drop table if exists tariff", "create table tariff (code text, label text, active boolean)"
    )
    server.execute("insert into tariff values ('A', 'a', true), ('B', 'b', true)")
    monkeypatch.setenv("WHO", postgres.USER)
    monkeypatch.setenv("WHERE", str(server.folder))
    url = "postgresql+psycopg://${WHO}:${PCDC_TEST_PASSWORD}@/${NAME}?host=${WHERE}"
    found = finding(catalog(tmp_path, url))
    assert (found.code, RULES[found.code].in_content) == ("PCDC111", False)
    assert "NAME" in found.fact
    monkeypatch.setenv("NAME", "postgres")
    assert len(choices(catalog(tmp_path, url))) == 2
    SQLite(tmp_path).execute(
        "create table tariff (code, label, active)", "insert into tariff values ('A', '', 1)"
    )
    SQLite(tmp_path).execute("insert into tariff values ('B', '', 1)")
    monkeypatch.setenv("WHOLE", SQLite.url)
    assert len(choices(catalog(tmp_path, "${WHOLE}"))) == 2
    monkeypatch.setenv("PORT", "70001")
    (refused,) = findings(catalog(tmp_path, "postgresql+psycopg://u:${NAME}@127.0.0.1:${PORT}/d"))
    assert "invalid port number" in refused.fact
    assert "70001" not in refused.fact


@pytest.mark.parametrize("name", ["missing.db", ".", "pipe.db", "text.db"])
def test_what_is_no_sqlite_file_is_told_and_never_made(tmp_path, name):
    import os

    os.mkfifo(tmp_path / "pipe.db")
    (tmp_path / "text.db").write_text("no database, " * 100, encoding="utf-8")
    assert finding(catalog(tmp_path, f"sqlite:///{name}")).code == "PCDC110"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["goods.json", "pipe.db", "text.db"]


def test_an_sqlite_uri_is_refused_because_its_path_is_nowhere(tmp_path):
    found = finding(catalog(tmp_path, "sqlite:///file:ops.db?mode=rwc&uri=true"))
    assert (found.code, "sqlite:///ops.db" in found.help) == ("PCDC230", True)
    assert [p.name for p in tmp_path.iterdir()] == ["goods.json"]


def test_fields_that_ask_the_same_are_answered_by_one_query(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        sql, "ask", lambda *call: asked.append(call) or sql.Answer(("c",), (("a",), ("b",)), 2)
    )
    same = {"description": "?", "x-catalog": {"source": SQLite.url, "query": QUERY}}
    other = {"description": "?", "x-catalog": {"source": SQLite.url, "query": f"{QUERY} desc"}}
    path = tmp_path / "goods.json"
    path.write_text(json.dumps({"a": same, "b": same, "c": other}), encoding="utf-8")
    assert [c.label for f in parse_file(path)[0].fields for c in f.choices] == ["a", "b"] * 3
    assert asked == [(SQLite.url, QUERY, tmp_path), (SQLite.url, f"{QUERY} desc", tmp_path)]


def test_without_sqlalchemy_the_extra_is_named(tmp_path):
    path = catalog(tmp_path, "sqlite:///ops.db")
    program = (
        "import sys; sys.modules['sqlalchemy'] = None; from pathlib import Path; "
        "from pcdc.parse import parse_file; "
        f"(d,) = parse_file(Path({str(path)!r}))[1]; print(d.code, d.fact, d.help)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "PCDC404 needs SQLAlchemy, which is not installed pip install 'pcdc[sql]'\n"


def test_without_a_database_sqlalchemy_is_not_loaded(tmp_path):
    (tmp_path / "t.txt").write_text("a\nb\n", encoding="utf-8")
    path = tmp_path / "s.json"
    path.write_text('{"f": {"description": "?", "x-catalog": {"source": "t.txt"}}}', encoding="utf-8")
    program = (
        "import sys; from pathlib import Path; from pcdc.parse import parse_file; "
        f"assert parse_file(Path({str(path)!r}))[0]; print('sqlalchemy' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


def test_a_driver_that_is_not_installed_is_named(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = finding(catalog(tmp_path, "mysql+mysqldb://u:p@h/d"))
    assert (found.code, "MySQLdb" in found.fact) == ("PCDC404", True)


@pytest.mark.parametrize(
    "spelling",
    [
        r"postgresql+psycopg:\/\/u:S3cret@127.0.0.1:1\/d",
        r"postgresql+psycopg://u\u003aS3cret@127.0.0.1:1/d",
        r"postgresql+psycopg://u:S3cret\nx@127.0.0.1:1/d",
        "postgresql+psycopg://127.0.0.1:1/d?user=u&%70assword=S3cret",
        "postgresql+psycopg://127.0.0.1:1/d?a=b;password=S3cret",
        "mssql+pyodbc:///?odbc_connect=DRIVER%3Dx%3BPWD%3DS3cret",
        "sqlite:///goods.json?nothing=S3cret",
        "postgresql:/u:S3cret@h/d",
        "postgresql:u:S3cret@h/d",
        "postgresql: u:S3cret@h/d",
    ],
)
@pytest.mark.parametrize("broken", ["", ",,", '"'])
def test_no_spelling_of_a_url_shows_its_password(tmp_path, spelling, broken):
    path = tmp_path / "goods.json"
    path.write_text(
        '{"code": {"description": "?", "x-catalog": {"query": "select 1 order by 1", '
        f'"source": "{spelling}"{broken}}}}}}}',
        encoding="utf-8",
    )
    found = findings(path)
    assert found
    assert "S3cret" not in render_text(found) + render_json(found)


def test_what_a_driver_says_holds_nothing_of_a_url(tmp_path, monkeypatch):
    monkeypatch.setenv("PCDC_TEST_NAME", "variable/1")
    url = "postgresql+psycopg://u:pass%2Fword@h/${PCDC_TEST_NAME}?sslmode=mode&o=PWD%3Dinner"

    def fail(target, *_):
        raise OSError(f"{url} {target.password} {target.database} {dict(target.query)} inner")

    monkeypatch.setattr(sql, "_fetch", fail)
    with pytest.raises(sql.Unreadable) as caught:
        sql.ask(url, "select 1", tmp_path)
    for secret in ("pass%2Fword", "pass/word", "variable/1", "'mode'", "inner"):
        assert secret not in caught.value.fact
    assert "***" in caught.value.fact


@pytest.mark.parametrize(
    "query",
    [
        "attach 'new.db' as x",
        "detach main",
        "vacuum into 'new.db'",
        "pragma query_only = off",
        "select load_extension('new.db')",
    ],
)
def test_a_statement_of_sqlite_that_does_not_read_makes_no_file(tmp_path, monkeypatch, query):
    monkeypatch.chdir(tmp_path)
    SQLite(tmp_path).execute("create table tariff (code, label, active)")
    with pytest.raises(sql.Unreadable, match="PCDC110"):
        sql.ask(SQLite.url, query, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["ops.db"]


def test_views_recursion_and_full_text_search_are_read(tmp_path):
    SQLite(tmp_path).execute(
        "create virtual table notes using fts5(code)",
        "insert into notes values ('a horse')",
        "create view seen as select upper(code) as code from notes",
    )
    recursive = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 3) select i from n"
    for query, rows in (
        ("select code from notes where notes match 'horse'", (("a horse",),)),
        ("select code from seen order by 1", (("A HORSE",),)),
        (recursive, ((1,), (2,), (3,))),
        ("select value from json_each('[7]')", ((7,),)),
    ):
        assert sql.ask(SQLite.url, query, tmp_path).rows == rows


@pytest.mark.parametrize("changes", ["attach 'new.db' as x", "vacuum into 'new.db'", "selec 1", "commit"])
def test_changes_that_cannot_be_asked_for_are_told_where_they_stand(tmp_path, monkeypatch, changes):
    monkeypatch.chdir(tmp_path)
    SQLite(tmp_path).execute(
        "create table tariff (code, label, active)", "insert into tariff values ('A', '', 1), ('B', '', 1)"
    )
    path = catalog(tmp_path, SQLite.url, changes=changes)
    found = finding(path)
    assert (found.code, found.location.column) == (
        "PCDC110",
        path.read_text("utf-8").index(f'"{changes}') + 1,
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == ["goods.json", "ops.db"]
