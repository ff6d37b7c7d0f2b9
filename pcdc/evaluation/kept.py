"""What was computed for each text, kept in a file as it comes, so that a run that was ended goes on."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from pcdc_runtime.errors import PcdcError
from pcdc_runtime.storage import replacing, way_to_write

from pcdc.diagnostics import json_text

_ELSEWHERE = "choose another folder with --out"
_START, _KEY = b'{"key": "', 64
_FLAGS = os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC
_RECORD = re.compile(rb'\{"key": "[0-9a-f]{64}"')
_TORN = re.compile(rb'\{"key": "[0-9a-f]{0,64}')


class ReportError(PcdcError):
    """A file of an evaluation cannot be written."""

    code = "PCDC712"
    title = "report cannot be written"


@dataclass(frozen=True)
class Purpose:
    """What is said of a file of records: of what they are, which program writes them, and what is raised."""

    of: str
    program: str
    elsewhere: str
    error: type[PcdcError]

    def unwritable(self, path: Path, error: OSError) -> PcdcError:
        """The same fact for every file."""
        help = way_to_write(error, self.elsewhere)
        return self.error(str(path), f"cannot be written ({error.strerror})", "", help)


_EVALUATION = Purpose("an evaluation", "pcdc eval", _ELSEWHERE, ReportError)


def unwritable(path: Path, error: OSError) -> PcdcError:
    """The same fact for every file of a report."""
    return _EVALUATION.unwritable(path, error)


def see_outputs(folder: Path, outputs: Sequence[Path], inputs: Sequence[Path]) -> None:
    """See that writing into a folder destroys nothing that is read. Raises ReportError."""
    if folder.exists() and not folder.is_dir():
        raise ReportError(str(folder), "is a file, not a folder", "", "choose a folder with --out")
    for path in outputs:
        if path.is_dir():
            raise ReportError(str(path), "is a folder where a file is to be written", "", _ELSEWHERE)
        for source in inputs:
            if _same(path, source):
                fact, limit = f"would replace {source}, which it reads", "an evaluation keeps its inputs"
                raise ReportError(str(path), fact, limit, _ELSEWHERE)


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def key_of(*parts: object) -> str:
    """sha256 of what decides a record, as hexadecimal text."""
    return hashlib.sha256(json.dumps(parts, ensure_ascii=False).encode("utf-8", "surrogatepass")).hexdigest()


class Kept:
    """Records by key, one JSON object a line, each written through at once; one process at a time.

    A last line without its end, as a killed process leaves it, is dropped; a file with a line of another
    kind stays as it is and is refused. Raises the error of its purpose.
    """

    def __init__(self, path: Path, purpose: Purpose = _EVALUATION) -> None:
        self.path = path
        self._purpose = purpose
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # A pipe in the file's place must not make the run wait.
            self._file = os.open(path, _FLAGS | os.O_CREAT, 0o666)
        except OSError as error:
            raise purpose.unwritable(path, error) from error
        try:
            if not stat.S_ISREG(os.fstat(self._file).st_mode):
                raise purpose.error(str(path), "is not a regular file", "", purpose.elsewhere)
            self._lock()
            self._places, self._end = self._index()
        except BaseException:
            self.close()
            raise

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fact = f"is in use by another `{self._purpose.program}`"
            help = f"wait for it, or {self._purpose.elsewhere}"
            raise self._purpose.error(str(self.path), fact, "", help) from None
        except OSError:
            # A file system without locks: two runs there write what the other one also computes.
            return

    def _index(self) -> tuple[dict[str, tuple[int, int]], int]:
        """Where the record of each key is and how long it is, and where the last of them ends."""
        places, end = dict[str, tuple[int, int]](), 0
        with os.fdopen(os.dup(self._file), "rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n") and _begins_like_a_record(line):
                    break
                if not _RECORD.match(line) or not line.endswith(b"\n"):
                    fact = f"has a line {number} that is no record of {self._purpose.of}"
                    limit = "nothing else is written into such a file"
                    help = f"move it away, or {self._purpose.elsewhere}"
                    raise self._purpose.error(str(self.path), fact, limit, help)
                places[line[len(_START) : len(_START) + _KEY].decode()] = (end, len(line))
                end += len(line)
        try:
            os.ftruncate(self._file, end)
        except OSError as error:
            raise self._purpose.unwritable(self.path, error) from error
        return places, end

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys in the order of their first records."""
        return tuple(self._places)

    def get(self, key: str) -> Mapping[str, Any] | None:
        """The record of a key; None where there is none, or none that is strict JSON."""
        if key not in self._places:
            return None
        place, length = self._places[key]
        try:
            line = os.pread(self._file, length, place)
            record = json.loads(line, object_pairs_hook=_unique, parse_constant=_refuse)
        except (OSError, ValueError, RecursionError):
            return None
        return record if isinstance(record, dict) and record.pop("key", None) == key else None

    def add(self, key: str, record: Mapping[str, Any]) -> None:
        """Append one record. Raises the error of the file's purpose."""
        line = _line(key, record)
        try:
            written = 0
            while written < len(line):
                written += os.pwrite(self._file, line[written:], self._end + written)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._file, self._end)
            raise self._purpose.unwritable(self.path, error) from error
        self._places[key] = (self._end, len(line))
        self._end += len(line)

    def replace(self, others: Mapping[str, tuple[str, Mapping[str, Any]]]) -> None:
        """Put other keys and records in the places of some; the file changes whole or not at all.

        Raises the error of the file's purpose.
        """
        # A link stays a link.
        path = Path(os.path.realpath(self.path))
        try:
            with replacing(path) as temporary:
                with temporary.open("wb") as file:
                    for key, (place, length) in self._places.items():
                        old = os.pread(self._file, length, place)
                        file.write(_line(*others[key]) if key in others else old)
                temporary.chmod(stat.S_IMODE(os.fstat(self._file).st_mode))
            before, self._file = self._file, os.open(path, _FLAGS)
            os.close(before)
        except OSError as error:
            raise self._purpose.unwritable(self.path, error) from error
        self._lock()
        self._places, self._end = self._index()

    def close(self) -> None:
        """Let others write."""
        os.close(self._file)

    def __enter__(self) -> Kept:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _line(key: str, record: Mapping[str, Any]) -> bytes:
    return json_text({"key": key, **record}).encode() + b"\n"


def _begins_like_a_record(line: bytes) -> bool:
    whole = _RECORD.match(line) or _TORN.fullmatch(line)
    return whole is not None or _START.startswith(line)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("repeats a key")
    return result


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)
