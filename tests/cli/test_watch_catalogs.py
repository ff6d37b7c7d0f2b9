"""Watching catalogs: files and databases that definitions name, and only what depends on them."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from pathlib import Path

import pytest
from families import family_folder
from saving import PATTERNS, mount
from watched import Watched, built, choices, seen_by

from pcdc.standstill import OPEN, SETTLE

MODEL = str(family_folder("smollm2"))


def definition(**catalog):
    return json.dumps({"team": {"type": "string", "description": "Which team?", "x-catalog": catalog}})


@pytest.fixture
def schemas(tmp_path):
    folder = tmp_path / "schemas"
    (folder / "catalogs").mkdir(parents=True)
    (folder / "catalogs" / "teams.csv").write_text("code,label\nA,Team A\nB,Team B\n")
    teams = {"source": "catalogs/teams.csv", "value": "code", "description": "label"}
    (folder / "one.json").write_text(definition(**teams))
    (folder / "two.json").write_text(definition(**teams))
    (folder / "three.json").write_text(
        '{"team": {"type": "enum", "choices": ["X", "Y"], "description": "Which?"}}'
    )
    return folder


@pytest.fixture
def start(schemas, tmp_path):
    running = []

    def go(paths=schemas, **more):
        running.append(Watched(paths, MODEL, tmp_path / "out", **more))
        running[-1].first = running[-1].next()[0]
        return running[-1]

    yield go
    for watched in running:
        watched.close()


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_catalog_rebuilds_those_that_name_it_once_however_it_is_saved(start, schemas, tmp_path, pattern):
    """Field report 40."""
    catalog = schemas / "catalogs" / "teams.csv"
    if pattern == "mount":
        mount(catalog, catalog.read_bytes())
    watched = start()
    assert sorted(built([watched.first])) == ["one", "three", "two"]
    for label in ("C", "D"):
        PATTERNS[pattern](catalog, f"code,label\nA,Team A\n{label},Team {label}\n".encode())
        (event,) = watched.next()
        assert (event.changed, sorted(built([event]))) == ((str(catalog),), ["one", "two"])
        assert choices(tmp_path / "out" / "one.smollm2.pcdc") == ["A", label]


def test_a_catalog_that_is_written_for_seconds_is_never_built_in_part(start, schemas, tmp_path):
    """Field report 42."""
    (schemas / "one.json").write_text(definition(source="catalogs/codes.txt"))
    codes = schemas / "catalogs" / "codes.txt"
    codes.write_text("".join(f"old {n}\n" for n in range(100)))
    watched = start(schemas / "one.json")
    artifact = tmp_path / "out" / "one.smollm2.pcdc"
    with seen_by(lambda: len(choices(artifact)), 0.005) as seen:
        with codes.open("w") as file:
            time.sleep(2 * OPEN)
            for chunk in range(50):
                file.writelines(f"new {chunk} {n}\n" for n in range(4))
                file.flush()
                time.sleep(0.03)
        watched.until(lambda events: built(events) == ["one", "one"])
        time.sleep(3 * SETTLE)
    assert sorted(set(seen)) == [100, 200]
    assert [d.code for event in watched.events for d in event.diagnostics] == ["PCDC212"]


def test_a_catalog_that_is_missing_keeps_the_artifact_and_is_found_later(start, schemas, tmp_path):
    catalog = schemas / "catalogs" / "teams.csv"
    content = catalog.read_bytes()
    watched = start([schemas / "one.json"])
    before = (tmp_path / "out" / "one.smollm2.pcdc").read_bytes()
    catalog.unlink()
    catalog.parent.rmdir()
    (gone,) = watched.next()
    assert {d.code for d in gone.diagnostics} == {"PCDC101"}
    assert "last good artifact stays" in gone.kept[0].reason
    assert (tmp_path / "out" / "one.smollm2.pcdc").read_bytes() == before
    catalog.parent.mkdir()
    catalog.write_bytes(content)
    (back,) = watched.next()
    assert ([t.outcome for t in back.targets], back.diagnostics) == (["fresh"], ())


def test_a_catalog_that_is_not_there_yet_is_waited_for(start, schemas):
    (schemas / "one.json").write_text(definition(source="later/codes.txt"))
    watched = start([schemas / "one.json"])
    assert {d.code for d in watched.first.diagnostics} == {"PCDC101"}
    (schemas / "later").mkdir()
    (schemas / "later" / "codes.txt").write_text("A\nB\n")
    assert built(watched.next()) == ["one"]


@pytest.mark.parametrize(
    "source", ["a\0b.txt", "x" * 5000 + ".txt", "loop.txt", "pipe.txt", "three.json/x.txt"]
)
def test_a_catalog_that_no_file_can_be_is_survived(start, schemas, source):
    (schemas / "loop.txt").symlink_to("loop.txt")
    (schemas / "loop.json").symlink_to("loop.json")
    os.mkfifo(schemas / "pipe.txt")
    (schemas / "one.json").write_text(definition(source=source))
    watched = start()
    assert sorted(built([watched.first])) == ["three", "two"]
    assert {Path(d.location.path).name for d in watched.first.diagnostics} == {"one.json", "loop.json"}
    (schemas / "one.json").write_text(definition(source="catalogs/teams.csv", value="code"))
    assert built(watched.next()) == ["one"]


def test_a_definition_that_names_another_catalog_follows_that_one(start, schemas, tmp_path):
    other = tmp_path / "elsewhere" / "codes.txt"
    other.parent.mkdir()
    other.write_text("P\nQ\n")
    watched = start([schemas / "one.json"])
    (schemas / "one.json").write_text(definition(source="../elsewhere/codes.txt"))
    assert built(watched.next()) == ["one"]
    other.write_text("P\nR\n")
    assert built(watched.next()) == ["one"]
    (schemas / "catalogs" / "teams.csv").write_text("code,label\nZ,z\nY,y\n")
    time.sleep(3 * SETTLE)
    other.write_text("P\nS\n")
    (event,) = watched.next()
    assert [name.endswith("codes.txt") for name in event.changed] == [True]
    assert choices(tmp_path / "out" / "one.smollm2.pcdc") == ["P", "S"]


def test_a_json_catalog_is_no_definition_while_the_one_that_names_it_is_broken(start, tmp_path):
    folder = tmp_path / "flat"
    folder.mkdir()
    (folder / "teams.json").write_text('["A", "B"]')
    good = definition(source="teams.json")
    (folder / "one.json").write_text(good)
    watched = start(folder)
    (folder / "one.json").write_text(good[:-2])
    (broken,) = watched.next()
    assert [d.location.path for d in broken.diagnostics] == [str(folder / "one.json")]
    (folder / "teams.json").write_text('["A", "C"]')
    (event,) = watched.next()
    assert [t.outcome for t in event.targets] == ["failed"]
    (folder / "one.json").write_text(good)
    assert built(watched.next()) == ["one"]
    assert sorted(p.name for p in (tmp_path / "out").glob("*.pcdc")) == ["one.smollm2.pcdc"]


@pytest.mark.parametrize("changes", [None, "select max(revision) from teams"])
def test_rows_that_another_connection_changes_are_built(start, schemas, tmp_path, changes):
    database = schemas / "ops.db"
    with sqlite3.connect(database) as rows:
        rows.execute("create table teams (code text, label text, revision integer)")
        rows.execute("insert into teams values ('A', 'Team A', 1), ('B', 'Team B', 1)")
    query = {"source": "sqlite:///ops.db", "query": "select code, label from teams order by code"}
    (schemas / "one.json").write_text(definition(**query, **({"changes": changes} if changes else {})))
    watched = start([schemas / "one.json"], sql_interval=0.2)
    assert built([watched.first]) == ["one"]
    with sqlite3.connect(database) as rows:
        rows.execute("insert into teams values ('C', 'Team C', 2)")
    (event,) = watched.next()
    assert built([event]) == ["one"]
    assert [name.startswith("sqlite:///ops.db (select ") for name in event.changed] == [True]
    assert choices(tmp_path / "out" / "one.smollm2.pcdc") == ["A", "B", "C"]
    database.rename(schemas / "away.db")
    (down,) = watched.next()
    assert {d.code for d in down.diagnostics} == {"PCDC110"}
    assert "last good artifact stays" in down.kept[0].reason
    time.sleep(0.5)
    (schemas / "away.db").rename(database)
    (back,) = watched.next()
    assert [t.outcome for t in back.targets] == ["fresh"]
    assert len(watched.events) == 4
