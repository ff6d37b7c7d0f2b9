"""Watching index definitions: their catalogs in files and databases, whole indexes only."""

from __future__ import annotations

import json
import sqlite3
import time

import pytest
from families import family_folder
from pcdc_runtime.indexed.codec import open_index
from watched import Watched, built, seen_by

from pcdc.standstill import OPEN, SETTLE

MODEL = str(family_folder("smollm2"))


def definition(**catalog):
    field = {"description": "Which part is it?", "x-catalog": catalog}
    return json.dumps({"x-pcdc": {"index": True}, "part": field})


def labels(path):
    index = open_index(path)
    return [index.labels.label(n) for n in range(len(index.labels))]


@pytest.fixture
def schemas(tmp_path):
    folder = tmp_path / "schemas"
    (folder / "catalogs").mkdir(parents=True)
    (folder / "catalogs" / "parts.txt").write_text("bolt\nnut\n")
    (folder / "parts.json").write_text(definition(source="catalogs/parts.txt"))
    return folder


@pytest.fixture
def path(tmp_path):
    return tmp_path / "out" / "parts.smollm2.pcdx"


@pytest.fixture
def start(schemas, tmp_path):
    running = []

    def go(**more):
        running.append(Watched(schemas, MODEL, tmp_path / "out", **more))
        running[-1].first = running[-1].next()[0]
        return running[-1]

    yield go
    for watched in running:
        watched.close()


def test_a_changed_catalog_rebuilds_its_index_and_says_what_changed(start, schemas, path):
    catalog = schemas / "catalogs" / "parts.txt"
    watched = start()
    assert built([watched.first]) == ["parts"]
    catalog.write_text("bolt\nwasher\nnut\n")
    (event,) = watched.next()
    assert (event.changed, built([event])) == ((str(catalog),), ["parts"])
    assert event.targets[0].changes == ("entries: 1 added, 0 removed", "tokens of 2 of 3 labels reused")
    assert labels(path) == ["bolt", "washer", "nut"]


def test_a_catalog_that_is_written_for_seconds_is_never_indexed_in_part(start, schemas, path):
    """Field report 42."""
    catalog = schemas / "catalogs" / "parts.txt"
    catalog.write_text("".join(f"old part {n}\n" for n in range(300)))
    watched = start()
    with seen_by(lambda: len(labels(path)), 0.01) as seen:
        with catalog.open("w") as file:
            time.sleep(2 * OPEN)
            for chunk in range(40):
                file.writelines(f"new part {chunk} {n}\n" for n in range(20))
                file.flush()
                time.sleep(0.03)
        watched.until(lambda events: built(events) == ["parts", "parts"])
        time.sleep(3 * SETTLE)
    assert sorted(set(seen)) == [300, 800]


def test_a_broken_definition_or_catalog_keeps_the_last_good_index(start, schemas, path):
    watched = start()
    good = path.read_bytes()
    (schemas / "catalogs" / "parts.txt").write_text("only one\n")
    (few,) = watched.next()
    assert few.kept[0].what == str(path)
    (schemas / "parts.json").write_text("{")
    (broken,) = watched.next()
    assert broken.kept[0].what == str(path)
    assert path.read_bytes() == good


@pytest.mark.parametrize("changes", [None, "select max(revision) from parts"])
def test_rows_of_a_database_that_change_are_indexed(start, schemas, path, changes):
    database = schemas / "ops.db"
    with sqlite3.connect(database) as rows:
        rows.execute("create table parts (code text, label text, revision integer)")
        rows.executemany("insert into parts values (?, ?, 1)", [(f"P{n}", f"part {n}") for n in range(400)])
    query = {"query": "select label, code from parts order by revision, rowid", "id": "code"}
    more = {"changes": changes} if changes else {}
    (schemas / "parts.json").write_text(definition(source="sqlite:///ops.db", **query, **more))
    watched = start(sql_interval=0.2)
    assert built([watched.first]) == ["parts"]
    with sqlite3.connect(database) as rows:
        rows.execute("insert into parts values ('P1000', 'part 1000', 2)")
    (event,) = watched.next()
    assert event.targets[0].changes == ("entries: 1 added, 0 removed", "tokens of 400 of 401 labels reused")
    index = open_index(path)
    assert (index.labels.label(400), index.labels.id(400)) == ("part 1000", "P1000")
