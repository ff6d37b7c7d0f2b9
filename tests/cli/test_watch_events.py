"""What wakes a watch: the folders it needs, the limits of the system, the time a file must stand still."""

from __future__ import annotations

import errno
import json
import os

import pytest
from families import family_folder
from watched import Watched, built

from pcdc import events, watching
from pcdc.events import places
from pcdc.standstill import GONE, OPEN, SETTLE, Look, Standstill

MODEL = str(family_folder("smollm2"))


def definition(*labels):
    return json.dumps({"team": {"type": "enum", "choices": labels, "description": "Which?"}})


class Exhausted:
    """An observer on a system that has no room for it."""

    started = 0

    def __init__(self, number):
        self.number = number

    def start(self):
        type(self).started += 1

    def schedule(self, *_arguments, **_more):
        raise OSError(self.number, os.strerror(self.number))

    def stop(self):
        type(self).started -= 1

    def is_alive(self):
        return False


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EMFILE, ["fs.inotify.max_user_instances is ", "open files ", "ulimit -n"]),
        (errno.ENOSPC, ["fs.inotify.max_user_watches is ", "sysctl fs.inotify.max_user_watches="]),
        (errno.ENOSYS, ["gives no events", "--poll"]),
    ],
)
def test_a_limit_of_the_system_is_named_once_and_contents_are_polled(tmp_path, monkeypatch, number, words):
    """Field report 45."""
    monkeypatch.setattr(events, "Observer", lambda: Exhausted(number))
    monkeypatch.setattr(watching, "FALLBACK", 0.1)
    (tmp_path / "a.json").write_text(definition("A", "B"))
    watched = Watched(tmp_path, MODEL, tmp_path / "out")
    try:
        (first,) = watched.next()
        assert [d.code for d in first.diagnostics] == ["PCDC614"]
        told = events_text(first)
        assert [word for word in [*words, "every 0.1 s"] if word not in told] == []
        assert Exhausted.started == 0
        (tmp_path / "a.json").write_text(definition("A", "C"))
        (second,) = watched.next()
        assert (built([second]), second.diagnostics) == (["a"], ())
    finally:
        watched.close()


def events_text(event):
    from pcdc.diagnostics import render_text

    return render_text(event.diagnostics)


def test_an_error_that_is_no_limit_is_raised(tmp_path, monkeypatch):
    monkeypatch.setattr(events, "Observer", lambda: Exhausted(errno.EIO))
    (tmp_path / "a.json").write_text(definition("A", "B"))
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        next(watching.watch(tmp_path, MODEL, tmp_path / "out"))


def test_only_the_folders_that_are_needed_are_watched(tmp_path):
    """Field report 45."""
    (tmp_path / "one" / "deep").mkdir(parents=True)
    (tmp_path / "two").mkdir()
    (tmp_path / "link").symlink_to("one")
    (tmp_path / "one" / "a.json").write_text("{}")
    found = places([tmp_path / "link" / "a.json"], [])
    assert found.folders == {tmp_path / "one": True, tmp_path: False}
    assert {tmp_path / "link", tmp_path / "one", tmp_path / "one" / "a.json"} <= found.names
    assert places([], [tmp_path / "link"]).open == {tmp_path / "one"}


def test_a_missing_file_is_waited_for_in_the_last_folder_that_is_there(tmp_path):
    found = places([tmp_path / "no" / "such" / "a.json"], [])
    assert found.folders == {tmp_path: True, tmp_path.parent: False}
    assert tmp_path / "no" in found.names


def test_a_loop_of_links_ends(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert places([tmp_path / "a" / "x.json"], []).folders[tmp_path]


def test_the_way_goes_through_parents_and_absolute_links(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "link.json").symlink_to(tmp_path / "two" / ".." / "one" / "a.json")
    found = places([tmp_path / "two" / "link.json"], [])
    assert (found.folders[tmp_path / "one"], found.folders[tmp_path / "two"]) == (True, False)


class Clock:
    """Looks at one file at chosen times."""

    def __init__(self, is_open=False):
        self.standstill, self.is_open = Standstill(), is_open

    def left(self, content, now, least=SETTLE):
        found = Look(content, (len(content),))
        return round(self.standstill.left("file", found, now, least, self.is_open), 6)


def test_a_file_is_finished_when_nothing_changed_for_a_while():
    clock = Clock()
    assert clock.left("one", 10.0) == SETTLE
    assert clock.left("one", 10.04) == round(SETTLE - 0.04, 6)
    assert clock.left("one", 10.0 + SETTLE) == 0
    assert clock.left("two", 11.0) == SETTLE


def test_a_writer_with_pauses_must_be_silent_for_twice_the_longest():
    clock = Clock()
    clock.left("1", 0)
    assert clock.left("12", 0.09) == 0.18
    assert clock.left("123", 0.25) == 0.32
    assert clock.left("1234", 0.27) == 0.32
    assert clock.left("12345", 0.58) == 0.62
    assert clock.left("123456", 1.19) == OPEN
    assert clock.left("other", 9) == SETTLE


def test_a_file_held_open_or_gone_must_stand_still_longer():
    assert Clock(is_open=True).left("one", 0) == OPEN
    assert Clock().left("", 0) == GONE
    assert Clock().left("one", 0, least=0.5) == 0.5
