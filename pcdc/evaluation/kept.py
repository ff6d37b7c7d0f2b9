"""What was computed for each text, kept in a file as it comes, so that a run that was ended goes on."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pcdc_runtime.errors import PcdcError
from pcdc_runtime.storage import way_to_write

_START, _KEY = b'{"key": "', 64


class ReportError(PcdcError):
    """A file of an evaluation cannot be written."""

    code = "PCDC712"
    title = "report cannot be written"


def unwritable(path: Path, error: OSError) -> ReportError:
    """The same fact for every file of a report."""
    help = way_to_write(error, "choose another folder with --out")
    return ReportError(str(path), f"cannot be written ({error.strerror})", "", help)


def key_of(*parts: object) -> str:
    """sha256 of what decides a record, as hexadecimal text."""
    return hashlib.sha256(json.dumps(parts, ensure_ascii=False).encode("utf-8", "surrogatepass")).hexdigest()


class Kept:
    """Records by key, one JSON object a line, each written through at once; one process at a time.

    A last line without its end, as a killed process leaves it, is dropped. Raises ReportError.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Not "a+": a descriptor in append mode could not be cut.
            self._file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
        except OSError as error:
            raise unwritable(path, error) from error
        try:
            self._lock()
            self._places = self._index()
        except BaseException:
            self._file.close()
            raise

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            help = "wait for it, or choose another folder with --out"
            raise ReportError(str(self.path), "is in use by another `pcdc eval`", "", help) from None
        except OSError:
            # A file system without locks: two runs there write what the other one also computes.
            return

    def _index(self) -> dict[str, int]:
        places, end = dict[str, int](), 0
        for line in self._file:
            if not line.endswith(b"\n"):
                break
            if line.startswith(_START):
                places[line[len(_START) : len(_START) + _KEY].decode("ascii", "replace")] = end
            end += len(line)
        try:
            self._file.seek(end)
            self._file.truncate()
        except OSError as error:
            raise unwritable(self.path, error) from error
        return places

    def get(self, key: str) -> Mapping[str, Any] | None:
        """The record of a key; None where there is none, or none that can be read."""
        if key not in self._places:
            return None
        self._file.seek(self._places[key])
        try:
            record = json.loads(self._file.readline())
        except (ValueError, RecursionError):
            return None
        return record if isinstance(record, dict) and record.get("key") == key else None

    def add(self, key: str, record: Mapping[str, Any]) -> None:
        """Append one record. Raises ReportError."""
        line = json.dumps({"key": key, **record}, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        try:
            place = self._file.seek(0, os.SEEK_END)
            self._file.write(line)
            self._file.flush()
        except OSError as error:
            raise unwritable(self.path, error) from error
        self._places[key] = place

    def close(self) -> None:
        """Let others write."""
        self._file.close()

    def __enter__(self) -> Kept:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
