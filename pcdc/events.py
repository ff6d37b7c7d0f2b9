"""What wakes a watch: events of exactly the folders that are needed, or a clock where there are none.

An event only says that it is time to look again; what changed is decided by content, elsewhere.
"""

from __future__ import annotations

import errno
import logging
import os
import resource
import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from watchdog.events import (
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileClosedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver, ObservedWatch

from .diagnostics import Diagnostic, finding
from .folders import real

MAX_STEPS = 256
_LIMITS = Path("/proc/sys/fs/inotify")
_NAMES: list[type[FileSystemEvent]] = [
    FileCreatedEvent,
    FileMovedEvent,
    FileDeletedEvent,
    DirCreatedEvent,
    DirMovedEvent,
    DirDeletedEvent,
]
_CONTENTS: list[type[FileSystemEvent]] = [*_NAMES, FileModifiedEvent, FileClosedEvent]
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.ENOSYS, errno.ENOMEM})

# Its threads warn about what a watch recovers from by itself; who configures logging still sees them.
logging.getLogger("watchdog").addHandler(logging.NullHandler())


@dataclass(frozen=True)
class Places:
    """Where changes of some files show.

    `names` are all paths passed on the way to them, each with its folder resolved; `folders` are the real
    folders to watch, True where the content of their files counts and not only their names; in those of
    `open` new definitions may appear.
    """

    names: frozenset[Path]
    folders: Mapping[Path, bool]
    open: frozenset[Path]


NOWHERE = Places(frozenset(), {}, frozenset())


def places(files: Iterable[Path], folders: Iterable[Path]) -> Places:
    """The places of `files`, which need not exist, and of `folders`, in which any definition counts."""
    names, watched, open_folders = set[Path](), dict[Path, bool](), set[Path]()
    ways = [(_way_to(file), False) for file in files] + [(_way_to(folder), True) for folder in folders]
    for (passed, links), is_folder in ways:
        names.update(passed)
        last = passed[-1] if is_folder else passed[-1].parent
        watched[last] = True
        open_folders |= {last} if is_folder else set()
        for name in (last, *links):
            watched.setdefault(name.parent, False)
    return Places(frozenset(names), watched, frozenset(open_folders))


def _way_to(file: Path) -> tuple[list[Path], list[Path]]:
    """Every path passed when `file` is opened, as far as there is one, and which of them are links."""
    whole = file.absolute()
    at, todo = Path(whole.anchor), [*whole.parts[:0:-1]]
    passed, links = [at], list[Path]()
    while todo and len(passed) < MAX_STEPS:
        part = todo.pop()
        if part == "..":
            at = at.parent
            continue
        here = at / part
        passed.append(here)
        try:
            target = here.readlink()
        except (OSError, ValueError):
            if not os.path.lexists(here):
                break
            at = here
            continue
        links.append(here)
        todo += [step for step in reversed(target.parts) if step != target.anchor]
        at = Path(target.anchor) if target.anchor else at
    return passed, links


class Wakeups(FileSystemEventHandler):
    """Wakes one waiting thread: by events, or every `poll` seconds; `poll` may change from None to a number.

    `trouble` says why events are not available although they were wanted.
    """

    def __init__(self, poll: float | None, fallback: float) -> None:
        self.poll = poll
        self.trouble: Diagnostic | None = None
        self._fallback = fallback
        self._condition = threading.Condition()
        self._woken = False
        self._places = NOWHERE
        self._stale = set[Path]()
        self._written = set[Path]()
        self._observer: BaseObserver | None = None
        self._watches: dict[Path, tuple[ObservedWatch, bool]] = {}

    def wait(self, seconds: float | None) -> None:
        """Block until something happened, `wake` was called, or the time is over."""
        with self._condition:
            self._condition.wait_for(lambda: self._woken, seconds)
            self._woken = False

    def wake(self) -> None:
        """End the wait, or the next one. May be called from any thread."""
        with self._condition:
            self._woken = True
            self._condition.notify_all()

    def is_open(self, path: Path) -> bool:
        """Whether a writer was seen at work on a file and not seen closing it."""
        with self._condition:
            return bool(self._written) and real(path) in self._written

    def follow(self, wanted: Places) -> bool:
        """Watch these places and no others; whether some are new, so that it is time to look again.

        Where the system has no room for more events, polls from then on.
        """
        with self._condition:
            self._places = wanted
            stale, self._stale = self._stale, set()
        if self.poll is not None:
            return False
        try:
            return self._follow(wanted, stale)
        except OSError as error:
            if error.errno not in _EXHAUSTED:
                raise
            self.close()
            self.poll = self._fallback
            self.trouble = _exhausted(error, self._fallback)
            return True

    def _follow(self, wanted: Places, stale: set[Path]) -> bool:
        if self._observer is None:
            self._observer = Observer()
            self._observer.start()
        for folder, (watch, contents) in list(self._watches.items()):
            if not stale.isdisjoint((folder, *folder.parents)) or wanted.folders.get(folder) != contents:
                del self._watches[folder]
                self._observer.unschedule(watch)
        added = False
        for folder, contents in wanted.folders.items():
            if folder not in self._watches:
                kinds = _CONTENTS if contents else _NAMES
                try:
                    watch = self._observer.schedule(self, str(folder), event_filter=kinds)
                except (FileNotFoundError, NotADirectoryError):
                    continue
                self._watches[folder] = watch, contents
                added = True
        return added

    def close(self) -> None:
        """Stop the threads that wait for events."""
        observer, self._observer = self._observer, None
        self._watches.clear()
        if observer is not None:
            observer.stop()
            if observer.is_alive():
                observer.join()

    def on_any_event(self, event: FileSystemEvent) -> None:
        """Take note of an event, from the observer's thread."""
        given = (os.fsdecode(path) for path in (event.src_path, event.dest_path) if path)
        paths = {Path(path) for path in given}
        with self._condition:
            if event.is_directory:
                self._stale |= paths
            if not isinstance(event, FileCreatedEvent | FileModifiedEvent):
                self._written -= paths
            if any(self._counts(path, event.is_directory) for path in paths):
                # Elsewhere than on Linux nobody says when a file is closed.
                if isinstance(event, FileModifiedEvent) and sys.platform == "linux":
                    self._written |= paths
                self._woken = True
                self._condition.notify_all()

    def _counts(self, path: Path, is_directory: bool) -> bool:
        if path in self._places.names or path in self._places.folders:
            return True
        may_be_source = (is_directory or path.suffix == ".json") and not path.name.startswith(".")
        return may_be_source and path.parent in self._places.open


def _exhausted(error: OSError, fallback: float) -> Diagnostic:
    if error.errno == errno.ENOSPC:
        fact = "has no inotify watch left for this user"
        limit = f"fs.inotify.max_user_watches is {_limit('max_user_watches')}"
        help = "raise it with `sysctl fs.inotify.max_user_watches=524288`"
    elif error.errno in (errno.EMFILE, errno.ENFILE):
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        fact = "has no inotify instance or no open file left"
        limit = f"fs.inotify.max_user_instances is {_limit('max_user_instances')}, open files {files}"
        help = "raise them with `sysctl fs.inotify.max_user_instances=1024` and `ulimit -n`"
    else:
        fact = f"gives no events ({error.strerror or error})"
        limit, help = "", "give --poll to choose the interval"
    limit = f"{limit}; " if limit else ""
    return finding(
        "PCDC614", None, "file system", fact, f"{limit}content is compared every {fallback:g} s", help
    )


def _limit(name: str) -> str:
    try:
        return (_LIMITS / name).read_text(encoding="ascii").strip()
    except OSError:
        return "not known"
