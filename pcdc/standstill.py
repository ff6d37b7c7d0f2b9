"""What a file holds now, and how long it must stay so until its writer counts as done."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

# Seconds without a change: after a save, while a writer has the file open, where there is no file.
SETTLE = 0.1
OPEN = 1.0
GONE = 0.5


@dataclass(frozen=True)
class Look:
    """A file's content, as a digest that is empty where nothing can be read, and its place and times."""

    digest: str
    stamp: tuple[int, ...]


def look(path: Path) -> Look:
    """Read a file. Equal looks before and after another reader mean that it read this content."""
    try:
        # A pipe has no content that could be compared, and opening it would wait for a writer.
        if not path.is_file():
            return Look("", ())
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            stamp = found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
            return Look(hashlib.file_digest(file, "sha256").hexdigest(), stamp)
    except (OSError, ValueError):
        return Look("", ())


@dataclass(frozen=True)
class _Seen:
    look: Look
    since: float
    wait: float


class Standstill:
    """Since when files are as they are; `least` seconds must pass in any case."""

    def __init__(self) -> None:
        self._seen: dict[Path, _Seen] = {}

    def left(self, path: Path, found: Look, now: float, least: float, is_open: bool) -> float:
        """Seconds until the file counts as finished if nothing else happens; not positive when it does.

        A file that changed again before its time was over must stand still for twice the pause that was seen.
        """
        last = self._seen.get(path)
        if last is None or last.look != found:
            wait = least if found.digest else max(least, GONE)
            if last is not None and now - last.since < last.wait:
                wait = max(wait, min(OPEN, max(last.wait, 2 * (now - last.since))))
            last = self._seen[path] = _Seen(found, now, wait)
        return last.since + (max(last.wait, OPEN) if is_open else last.wait) - now
