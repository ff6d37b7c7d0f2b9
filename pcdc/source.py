"""Definitions before they mean anything: JSON values with their places, from bytes or from Python."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from itertools import chain
from math import isfinite
from numbers import Integral
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from pcdc_runtime.artifact import OPENING
from pcdc_runtime.indexed.layout import INDEX_MAGIC

from .diagnostics import Diagnostic, Location, finding, quoted, visible

MAX_FILE_BYTES = 8 * 1024 * 1024
MAX_DEPTH = 64
MAX_REPEATS = 100
MAX_VALUES = 1_000_000
MAX_DIGITS = 1000
NOWHERE = -1
SPLIT = "a field has at most 255 choices; split large lists before they reach a"

_EXCERPT = 96
_WIDE = 1024
_LITERAL = r'(?:[^"\\]|\\.)*'
_SOURCE_KEY = "".join(rf"(?:{letter}|\\u00{ord(letter):02x})" for letter in "source")
# The source of a catalog, however it is spelled; where it may be more than a path, none of it is shown.
_SOURCE = re.compile(rf'"{_SOURCE_KEY}"\s*:\s*"({_LITERAL})', re.IGNORECASE | re.DOTALL)
_MORE_THAN_A_PATH = re.compile(r"(?!sqlite:///[^:@%=?&;\\]*$).*[:@%=?&;\\]", re.DOTALL)
# Anything like a URL, also where quotes do not pair.
_URL = re.compile(
    r'(?<![\w+.-])[a-z][\w+.-]{0,40}(?::|\\u003a)(?![\s"])((?:[^"\\\r\n]|\\[^\r\n])*)', re.IGNORECASE
)
_LOGIN = re.compile(r"[@=]|\\u00(?:40|3d)|%(?:40|3d)", re.IGNORECASE)
_BUILT = (
    (OPENING, "is an artifact", "run it with `pcdc run`"),
    (INDEX_MAGIC, "is an index", "ask it with `pcdc select`"),
)
_LINE_BREAK = re.compile(r"\r\n|\n|\r")
_JSON_LINE_BREAK = re.compile(r"\r?\n")


@dataclass(frozen=True, slots=True)
class Scalar:
    """Text, a number, a boolean or null; `spelling` is a number's source text."""

    at: int
    value: str | int | float | bool | None
    spelling: str = ""


@dataclass(frozen=True, slots=True)
class Array:
    """A JSON array."""

    at: int
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Member:
    """A value of an object with the place of its key."""

    at: int
    value: Node


@dataclass(frozen=True, slots=True)
class Object:
    """A JSON object; of a repeated key the first stands here."""

    at: int
    members: dict[str, Member]

    def get(self, key: str) -> Node | None:
        """The value of a key, or None where there is no such key."""
        member = self.members.get(key)
        return member.value if member else None


@dataclass(frozen=True, slots=True)
class Unread:
    """Stands for a Python value without a JSON form; that was told, and nothing else is said about it."""

    at: int


Node: TypeAlias = Scalar | Array | Object | Unread


def kind_of(node: Scalar | Array | Object) -> str:
    """A node's kind in words."""
    if isinstance(node, Object):
        return "an object"
    if isinstance(node, Array):
        return "an array"
    if isinstance(node.value, str):
        return "text"
    if node.value is None:
        return "null"
    return "a boolean" if isinstance(node.value, bool) else "a number"


def plain(node: Node) -> Any:
    """A node as plain data, without members that are unread; an unread item is empty text."""
    if isinstance(node, Object):
        return {key: plain(m.value) for key, m in node.members.items() if not isinstance(m.value, Unread)}
    if isinstance(node, Array):
        return [plain(item) for item in node.items]
    return "" if isinstance(node, Unread) else node.value


@dataclass(frozen=True)
class SchemaSource:
    """A definition's or catalog's text. Offsets (`at`) count characters of it; NOWHERE has no location.

    Of `rows` from a database each is a line of the text. `sha256` is of the bytes of the file that was read.
    Of `json_lines` a carriage return alone is a blank, as in JSON, and ends none.
    """

    path: str
    text: str
    rows: bool = False
    sha256: str = ""
    json_lines: bool = False

    @property
    def _break(self) -> re.Pattern[str]:
        return _JSON_LINE_BREAK if self.json_lines else _LINE_BREAK

    @cached_property
    def _starts(self) -> array[int]:
        return array("q", chain([0], (m.end() for m in self._break.finditer(self.text))))

    def locate(self, at: int) -> Location | None:
        """Line and column of an offset."""
        if at == NOWHERE:
            return None
        line = bisect_right(self._starts, at)
        return Location(self.path, line, 0 if self.rows else at - self._starts[line - 1] + 1)

    def excerpt_of(self, place: Location) -> str:
        """The same for a line and column of this text; empty where they are not of it."""
        if place.path != self.path or not 1 <= place.line <= len(self._starts) or not place.column:
            return ""
        at = self._starts[place.line - 1] + place.column - 1
        return self.excerpt(at) if at < len(self.text) else ""

    def line_spans(self) -> Iterator[tuple[int, int]]:
        """Where each line starts and ends, without its break; a break at the end of the text ends a line."""
        start = 0
        for match in self._break.finditer(self.text):
            yield start, match.start()
            start = match.end()
        if start < len(self.text):
            yield start, len(self.text)

    def line(self, at: int) -> str:
        """The line of an offset, with its break."""
        start, end = self._around(at)
        return self.text[start:end]

    def _around(self, at: int) -> tuple[int, int]:
        number = bisect_right(self._starts, at)
        end = self._starts[number] if number < len(self._starts) else len(self.text)
        return self._starts[number - 1], end

    def excerpt(self, at: int) -> str:
        """The line of an offset with a caret below it, cut to what surrounds the offset."""
        if at == NOWHERE or not self.text:
            return ""
        number = bisect_right(self._starts, at)
        start, end = self._around(at)
        while end > start and self.text[end - 1] in "\r\n":
            end -= 1
        first = max(start, min(at - _EXCERPT // 2, end - _EXCERPT))
        last = min(end, first + _EXCERPT)
        line = self._masked(first, last)
        before = ("…" if first > start else "") + visible(line[: at - first])
        after = visible(line[at - first :]) + ("…" if last < end else "")
        return f"{number:5} | {before}{after}\n      | {' ' * _width(before)}^"

    @cached_property
    def _secrets(self) -> list[tuple[int, int]]:
        """In their order, and apart from each other."""
        sources = (m.span(1) for m in _SOURCE.finditer(self.text) if _MORE_THAN_A_PATH.match(m[1]))
        urls = (m.span(1) for m in _URL.finditer(self.text) if _LOGIN.search(m[1]))
        apart = list[tuple[int, int]]()
        for start, end in sorted([*sources, *urls]):
            if apart and start <= apart[-1][1]:
                apart[-1] = apart[-1][0], max(end, apart[-1][1])
            else:
                apart.append((start, end))
        return apart

    def _masked(self, first: int, last: int) -> str:
        """A part of the text with asterisks for what may hold a password, so that places stay."""
        line = self.text[first:last]
        near = bisect_left(self._secrets, first, key=lambda secret: secret[1])
        beyond = bisect_left(self._secrets, last, key=lambda secret: secret[0])
        for start, end in self._secrets[near:beyond]:
            low, high = max(start, first), min(end, last)
            if low < high:
                line = line[: low - first] + "*" * (high - low) + line[high - first :]
        return line


def _width(text: str) -> int:
    """Terminal columns: wide characters take two, combining marks none."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


@dataclass(frozen=True)
class Report:
    """Collects diagnostics about one source; the one mutable thing is its list."""

    source: SchemaSource
    diagnostics: list[Diagnostic] = field(default_factory=list)

    def add(self, code: str, at: int, subject: str, fact: str, limit: str = "", help: str = "") -> None:
        """Append one diagnostic; the code's rule gives the severity."""
        place, excerpt = self.source.locate(at), self.source.excerpt(at)
        self.diagnostics.append(finding(code, place, subject, fact, limit, help, excerpt))

    def of(self, source: SchemaSource | None) -> Report:
        """For places in another source, such as a catalog; collects into the same list."""
        return self if source is None else Report(source, self.diagnostics)


def read_source(
    path: Path,
    kind: str = "definition",
    max_bytes: int = MAX_FILE_BYTES,
    split: str = SPLIT,
    stream: BinaryIO | None = None,
    *,
    json_lines: bool = False,
) -> tuple[SchemaSource | None, list[Diagnostic]]:
    """The text of a file of one kind, such as a catalog, without a byte order mark.

    `split` is what helps, put before the kind, where it has more than `max_bytes`. A `stream` is read in the
    file's place, from where it stands.
    """
    name = str(path)

    def refuse(
        code: str, fact: str, limit: str, help: str, line: int = 1, column: int = 1
    ) -> list[Diagnostic]:
        return [finding(code, Location(name, line, column), path.name, fact, limit, help)]

    if kind == "definition" and path.suffix.lower() in (".yaml", ".yml"):
        help = "write the same definition as JSON, where `NO` and `0101.21` cannot change their type"
        return None, refuse("PCDC103", "is a YAML file", "definitions are JSON", help)
    try:
        with path.open("rb") if stream is None else nullcontext(stream) as file:
            data = file.read(max_bytes + 1)
    except (OSError, ValueError) as error:
        fact = f"cannot be read ({getattr(error, 'strerror', None) or error})"
        return None, refuse("PCDC101", fact, "", "check the path and its permissions")
    # What a build wrote is told as such however large it is.
    for opening, fact, use in _BUILT:
        if data.startswith(opening):
            help = f"{use}, or build the definition that it was compiled from"
            return None, refuse("PCDC105", fact, f"{kind}s are JSON", help)
    if len(data) > max_bytes:
        return None, refuse("PCDC102", "is too large", f"at most {max_bytes} bytes", f"{split} {kind}")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or _is_wide(data[:_WIDE]):
        return None, refuse("PCDC104", "is UTF-16 or UTF-32", f"{kind}s are UTF-8", "save the file as UTF-8")
    try:
        text = data.decode("utf-8").removeprefix("\ufeff")
        digest = hashlib.sha256(data).hexdigest()
        return SchemaSource(name, text, sha256=digest, json_lines=json_lines), []
    except UnicodeDecodeError as error:
        before = data[: error.start]
        if not json_lines:
            before = before.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        line_start = before.rfind(b"\n") + 1
        fact = f"has byte 0x{data[error.start]:02X} at offset {error.start}, which is not UTF-8"
        column = len(before[line_start:].decode("utf-8").removeprefix("\ufeff")) + 1
        line = before.count(b"\n") + 1
        help = "save the file as UTF-8"
        return None, refuse("PCDC104", fact, f"{kind}s are UTF-8", help, line, column)


def _is_wide(start: bytes) -> bool:
    """Whether bytes are UTF-16 or UTF-32 without a mark: there nearly every second byte is 0."""
    halves = start[0::2], start[1::2]
    return any(2 * half.count(0) > len(half) for half in halves)


def from_python(value: object, report: Report, subject: str = "definition") -> Node:
    """A Python value as a node without a place; what JSON cannot express is reported and becomes Unread.

    Mappings, lists, tuples, text, booleans, whole numbers, floats, None and enum members are taken.
    """
    try:
        return _node(value, report, subject, 1)
    except _TooDeep as deep:
        report.add("PCDC107", NOWHERE, str(deep), "is nested too deep", f"at most {MAX_DEPTH} levels")
        return Unread(NOWHERE)


class _TooDeep(Exception):
    """The value of this name; what holds itself is left at once, or it would multiply at every level."""


def _node(value: object, report: Report, subject: str, depth: int) -> Node:
    if isinstance(value, Enum):
        value = value.value
    if depth > MAX_DEPTH:
        raise _TooDeep(subject)
    if value is None or isinstance(value, bool):
        return Scalar(NOWHERE, value)
    if isinstance(value, str):
        text = str.__str__(value)
        return Scalar(NOWHERE, text) if _is_unicode(text, report, subject) else Unread(NOWHERE)
    if isinstance(value, Integral) and int(value).bit_length() <= MAX_DIGITS * 3:
        return Scalar(NOWHERE, int(value), str(int(value)))
    if isinstance(value, float) and isfinite(value):
        return Scalar(NOWHERE, float(value), float.__repr__(value))
    if isinstance(value, Mapping):
        return _mapping(value, report, subject, depth)
    if isinstance(value, list | tuple):
        items = (_node(item, report, f"item {i} of {subject}", depth + 1) for i, item in enumerate(value, 1))
        return Array(NOWHERE, tuple(items))
    kind = repr(value) if isinstance(value, float) else f"a {type(value).__name__}"
    help = "a set has no order; use a list" if isinstance(value, set | frozenset) else ""
    report.add("PCDC108", NOWHERE, subject, f"is {kind}", "definitions hold what JSON can express", help)
    return Unread(NOWHERE)


def _mapping(value: Mapping[object, object], report: Report, subject: str, depth: int) -> Object | Unread:
    members = dict[str, Member]()
    for key, item in value.items():
        if not isinstance(key, str):
            report.add("PCDC108", NOWHERE, subject, f"has the key {visible(repr(key))}", "keys are text")
            continue
        text = str.__str__(key)
        name = f"{quoted(text)} of {subject}" if depth > 1 else quoted(text)
        node = _node(item, report, name, depth + 1)
        if _is_unicode(text, report, f"key {name}"):
            members[text] = Member(NOWHERE, node)
    return Object(NOWHERE, members) if members or not value else Unread(NOWHERE)


def _is_unicode(text: str, report: Report, subject: str) -> bool:
    lone = next((c for c in text if "\ud800" <= c <= "\udfff"), None)
    if lone is None:
        return True
    limit, help = "text must be valid Unicode", "decode the input with errors='replace' first"
    report.add("PCDC228", NOWHERE, subject, f"has the lone surrogate U+{ord(lone):04X}", limit, help)
    return False
