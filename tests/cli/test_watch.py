"""Watching: every real change is built once, and nothing else is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from command_line import ROOT
from families import family_folder
from pcdc_runtime.errors import ModelNotFoundError
from saving import PATTERNS, mount
from watched import Watched, built, choices

import pcdc
from pcdc import definitions, kinds, watching
from pcdc.standstill import OPEN, SETTLE

MODEL = str(family_folder("smollm2"))


def definition(*labels, **more):
    fields = {"team": {"type": "enum", "choices": list(labels), "description": "Which team?", **more}}
    return json.dumps(fields).encode()


@pytest.fixture
def schemas(tmp_path):
    folder = tmp_path / "schemas"
    folder.mkdir()
    (folder / "support.json").write_bytes(definition("A", "B"))
    (folder / "other.json").write_bytes(definition("X", "Y"))
    return folder


@pytest.fixture
def start(schemas, tmp_path):
    """Starts a watch of the schemas and waits for its first event; all are closed in the end."""
    running = []

    def go(paths=schemas, models=MODEL, out=tmp_path / "out", **more):
        running.append(Watched(paths, models, out, **more))
        running[-1].first = running[-1].next()[0]
        return running[-1]

    yield go
    for watched in running:
        watched.close()


def save_elsewhere(pattern, path, content):
    """Save a file from another process."""
    command = [sys.executable, str(ROOT / "tests" / "saving.py")]
    line = json.dumps([pattern, str(path), content.decode()])
    subprocess.run(command, input=line, text=True, stdout=subprocess.DEVNULL, check=True)


def other_is_built(watched, schemas):
    """A change that must be the next event: whatever came before it was no change."""
    path = schemas / "other.json"
    number = len(path.read_bytes())
    path.write_bytes(definition("X", "Z" * number))
    (event,) = watched.next()
    assert (event.changed, built([event])) == ((str(path),), ["other"])


def test_it_starts_with_a_build_of_all(start, schemas, tmp_path):
    first = start().first
    assert (first.event, first.changed, sorted(built([first]))) == ("start", (), ["other", "support"])
    assert choices(tmp_path / "out" / "support.smollm2.pcdc") == ["A", "B"]
    again = start().first
    assert [t.outcome for t in again.targets] == ["fresh", "fresh"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_save_of_every_editor_is_one_rebuild_of_what_depends_on_it(start, schemas, tmp_path, pattern):
    """Field report 40."""
    path = schemas / "support.json"
    if pattern == "mount":
        mount(path, definition("A", "B"))
    watched = start()
    for label in ("C", "D", "E"):
        save_elsewhere(pattern, path, definition("A", label))
        (event,) = watched.next()
        assert (event.event, event.changed, built([event])) == ("change", (str(path),), ["support"])
        assert choices(tmp_path / "out" / "support.smollm2.pcdc") == ["A", label]
    other_is_built(watched, schemas)


def test_reads_chmod_touch_and_its_own_output_set_it_off_never(start, schemas):
    """Field report 41."""
    out = schemas / "build"
    watched = start(out=out)
    log = (out / "log.jsonl").read_bytes()
    path = schemas / "support.json"
    end = time.monotonic() + 1
    while time.monotonic() < end:
        path.read_bytes()
        path.chmod(0o600)
        os.utime(path)
        (out / "support.smollm2.pcdc").touch()
        (schemas / ".support.json.swp").write_bytes(b"draft")
        (schemas / "notes.txt").write_bytes(os.urandom(8))
        time.sleep(0.01)
    path.write_bytes(path.read_bytes())
    time.sleep(3 * SETTLE)
    assert (out / "log.jsonl").read_bytes() == log
    other_is_built(watched, schemas)


@pytest.mark.parametrize("poll", [None, 0.1])
def test_an_edit_of_equal_length_with_the_old_time_is_built(start, schemas, poll):
    """Field reports 32 and 45."""
    watched = start(poll=poll)
    path = schemas / "support.json"
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    path.write_bytes(definition("A", "Q"))
    os.utime(path, ns=times)
    (event,) = watched.next()
    assert event.targets[0].changes == ("field team: choice 'B' removed", "field team: choice 'Q' added")


def test_many_saves_in_a_second_end_with_the_last(start, schemas, tmp_path):
    """Field report 42."""
    watched = start()
    for number in range(200):
        (schemas / "support.json").write_bytes(definition("A", f"B{number}"))
        time.sleep(0.004)
    artifact = tmp_path / "out" / "support.smollm2.pcdc"
    watched.until(lambda _: choices(artifact) == ["A", "B199"])
    time.sleep(3 * SETTLE)
    watched._seen = len(watched.events)
    other_is_built(watched, schemas)


def test_a_save_during_a_build_is_built_next_and_builds_never_overlap(start, schemas, tmp_path, monkeypatch):
    """Field report 42."""
    running, overlaps = [], []
    compile_it = kinds.compile_for

    def slow(schema, lane):
        overlaps.extend(running)
        running.append(schema.name)
        if schema.fields[0].choices[1].label == "C":
            (schemas / "support.json").write_bytes(definition("A", "D"))
            time.sleep(0.5)
        try:
            return compile_it(schema, lane)
        finally:
            running.remove(schema.name)

    watched = start()
    monkeypatch.setattr(kinds, "compile_for", slow)
    (schemas / "support.json").write_bytes(definition("A", "C"))
    first, second = watched.next(2)
    assert built([first, second]) == ["support", "support"]
    assert choices(tmp_path / "out" / "support.smollm2.pcdc") == ["A", "D"]
    assert overlaps == []


def test_a_file_that_changes_while_it_is_read_is_not_built_from(start, schemas, tmp_path, monkeypatch):
    read = definitions.parse_file
    watched = start()

    def interrupted(path):
        found = read(path)
        if b'"C"' in path.read_bytes():
            path.write_bytes(definition("A", "D"))
        return found

    monkeypatch.setattr(definitions, "parse_file", interrupted)
    (schemas / "support.json").write_bytes(definition("A", "C"))
    (event,) = watched.next()
    assert event.targets[0].changes == ("field team: choice 'B' removed", "field team: choice 'D' added")


def test_a_deleted_file_keeps_its_artifact_and_comes_back_fresh(start, schemas, tmp_path):
    """Field report 42."""
    watched = start()
    artifact, path = tmp_path / "out" / "support.smollm2.pcdc", schemas / "support.json"
    before, content = artifact.stat(), path.read_bytes()
    path.unlink()
    (gone,) = watched.next()
    assert (gone.changed, gone.targets, gone.diagnostics) == ((str(path),), (), ())
    assert [(k.what, "is gone" in k.reason) for k in gone.kept] == [(str(artifact), True)]
    path.write_bytes(content)
    (back,) = watched.next()
    assert [t.outcome for t in back.targets] == ["fresh"]
    assert (artifact.stat().st_ino, artifact.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "PCDC105"),
        (definition("A", "B")[:-9], "PCDC105"),
        (b'{"team": {"$ref": "#/$defs/A"}, "$defs": {"A": {"$ref": "#/$defs/A"}}}', "PCDC224"),
        (b'{"team": ' + b"[" * 5000 + b"]" * 5000 + b"}", "PCDC107"),
        (definition("A", "B").decode().encode("utf-16"), "PCDC104"),
        (definition("A", "B").replace(b"B", b"\xff"), "PCDC104"),
    ],
    ids=["empty", "half", "cycle", "deep", "utf-16", "byte"],
)
def test_what_does_not_parse_keeps_the_artifact_is_told_once_and_can_be_mended(
    start, schemas, tmp_path, content, code
):
    """Field reports 27, 29 and 42."""
    watched = start()
    artifact, path = tmp_path / "out" / "support.smollm2.pcdc", schemas / "support.json"
    before = artifact.read_bytes()
    path.write_bytes(content)
    (broken,) = watched.next()
    assert {d.code for d in broken.diagnostics} == {code}
    assert [(k.what, "last good artifact stays" in k.reason) for k in broken.kept] == [(str(artifact), True)]
    assert artifact.read_bytes() == before
    os.utime(path)
    other_is_built(watched, schemas)
    path.write_bytes(b"\xef\xbb\xbf" + definition("A", "C").replace(b", ", b",\r\n"))
    (mended,) = watched.next()
    assert (built([mended]), mended.diagnostics) == (["support"], ())
    assert choices(artifact) == ["A", "C"]


def test_a_writer_that_takes_its_time_is_waited_for(start, schemas, tmp_path):
    """Field report 42."""
    watched = start()
    content = definition("A", "C")
    with (schemas / "support.json").open("wb", buffering=0) as file:
        for at in range(0, len(content), len(content) // 10):
            file.write(content[at : at + len(content) // 10])
            time.sleep(0.15)
    (event,) = watched.next()
    assert (built([event]), choices(tmp_path / "out" / "support.smollm2.pcdc")) == (["support"], ["A", "C"])


def test_a_writer_that_never_ends_is_told_once_and_holds_up_nobody(start, schemas, tmp_path):
    """Field report 42."""
    watched = start()
    stop = threading.Event()

    def grow():
        with (schemas / "support.json").open("ab", buffering=0) as file:
            while not stop.wait(0.05):
                file.write(b" ")

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        other_is_built(watched, schemas)
        (event,) = watched.next()
        artifact = str(tmp_path / "out" / "support.smollm2.pcdc")
        assert [(k.what, k.reason) for k in event.kept] == [(artifact, "still being written")]
        assert (event.targets, event.diagnostics) == ((), ())
        time.sleep(OPEN)
        other_is_built(watched, schemas)
    finally:
        stop.set()
        thread.join()


def test_files_and_folders_that_come_later_are_found(start, schemas):
    watched = start([schemas, schemas.parent / "late" / "one.json"])
    assert [d.code for d in watched.first.diagnostics] == ["PCDC612"]
    (schemas / "new.json").write_bytes(definition("N", "M"))
    assert built(watched.next()) == ["new"]
    (schemas / "deep" / "er").mkdir(parents=True)
    (schemas / "deep" / "er" / "below.json").write_bytes(definition("N", "M"))
    assert built(watched.next()) == ["below"]
    (schemas.parent / "late").mkdir()
    (schemas.parent / "late" / "one.json").write_bytes(definition("N", "M"))
    assert built(watched.next()) == ["one"]


def test_folders_that_are_removed_and_made_again_are_watched_again(start, schemas, tmp_path):
    watched = start()
    for label in ("C", "D"):
        for path in sorted(schemas.iterdir()):
            path.unlink()
        schemas.rmdir()
        gone = {schemas / "support.json", schemas / "other.json"}
        while gone:
            (event,) = watched.next()
            gone -= {Path(name) for name in event.changed}
        schemas.mkdir()
        (schemas / "support.json").write_bytes(definition("A", label))
        assert built(watched.next()) == ["support"]
        (schemas / "support.json").write_bytes(definition("A", label * 2))
        assert built(watched.next()) == ["support"]
        (schemas / "other.json").write_bytes(definition("X", "Y"))
        (back,) = watched.next()
        assert [t.outcome for t in back.targets] == ["fresh"]


def test_a_folder_behind_a_link_can_be_swapped(start, schemas, tmp_path):
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "support.json").write_bytes(definition("A", "C"))
    (tmp_path / "two" / "other.json").write_bytes(definition("X", "Y"))
    link = tmp_path / "link"
    link.symlink_to(schemas)
    watched = start(link)
    (tmp_path / "fresh").symlink_to("two")
    (tmp_path / "fresh").replace(link)
    assert built(watched.next()) == ["support"]
    (tmp_path / "two" / "support.json").write_bytes(definition("A", "D"))
    assert built(watched.next()) == ["support"]
    (schemas / "support.json").write_bytes(definition("A", "E"))
    time.sleep(3 * SETTLE)
    (tmp_path / "two" / "other.json").write_bytes(definition("X", "Z"))
    (event,) = watched.next()
    assert event.changed == (str(link / "other.json"),)


def test_what_could_not_be_written_is_written_when_it_can_be(start, schemas, tmp_path, monkeypatch):
    """Field report 34."""
    monkeypatch.setattr(watching, "RECHECK", 0.3)
    (tmp_path / "out").write_text("in the way")
    watched = start()
    assert {d.code for d in watched.first.diagnostics} == {"PCDC611", "PCDC613"}
    time.sleep(1)
    assert len(watched.events) == 1
    (tmp_path / "out").unlink()
    (event,) = watched.next()
    assert (event.event, sorted(built([event]))) == ("retry", ["other", "support"])


def test_a_model_that_goes_away_is_told_once_and_tried_again(start, schemas, tmp_path, monkeypatch):
    monkeypatch.setattr(watching, "RECHECK", 0.3)
    model = shutil.copytree(MODEL, tmp_path / "model")
    watched = start(models=str(model))
    model.rename(tmp_path / "away")
    (schemas / "support.json").write_bytes(definition("A", "C"))
    (gone,) = watched.next()
    assert ([d.code for d in gone.diagnostics], gone.targets) == (["PCDC401"], ())
    assert [k.reason for k in gone.kept] == ["nothing could be built"]
    time.sleep(1)
    assert len(watched.events) == 2
    (tmp_path / "away").rename(model)
    (back,) = watched.next()
    assert (back.event, built([back]), back.diagnostics) == ("retry", ["support"], ())


def test_the_same_mistake_is_told_again_after_it_was_mended(start, schemas):
    watched = start()
    for label in ("C", "D"):
        (schemas / "support.json").write_bytes(definition("A", "A"))
        (broken,) = watched.next()
        assert [d.code for d in broken.diagnostics] == ["PCDC219"]
        (schemas / "support.json").write_bytes(definition("A", label))
        assert built(watched.next()) == ["support"]


def test_every_model_of_a_source_is_built(start, schemas, tmp_path):
    watched = start(models=[MODEL, str(family_folder("qwen3"))])
    (schemas / "support.json").write_bytes(definition("A", "C"))
    (event,) = watched.next()
    assert [t.artifact.name for t in event.targets] == ["support.smollm2.pcdc", "support.qwen3.pcdc"]


def test_a_model_that_is_not_there_is_an_error_at_once(schemas, tmp_path):
    with pytest.raises(ModelNotFoundError):
        pcdc.watch(schemas, str(tmp_path / "none"), tmp_path / "out")


def test_it_is_public_whatever_was_imported_before(schemas, tmp_path):
    threads = threading.active_count()
    with pcdc.watch(paths=str(schemas), models=MODEL, out=str(tmp_path / "out")) as changes:
        first = next(changes)
        assert isinstance(first, pcdc.ChangeSet)
        assert threading.active_count() > threads
    assert threading.active_count() == threads
    assert list(changes) == []


def test_events_are_data(start, schemas):
    first = start().first
    record = json.loads(json.dumps(first.to_dict()))
    assert record["targets"][0]["reason"] == "there is no artifact yet"
    assert set(record) == {"event", "changed", "targets", "kept", "diagnostics", "ms"}
    assert "\n" not in str(first)
