"""A strict JSON reader that keeps the place of every key and value.

It follows RFC 8259 and is stricter where two readings are possible: a repeated key, a lone surrogate, a
number too large for its type and a deep nest are errors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from math import isfinite
from typing import Any, NoReturn, TypeVar

from .diagnostics import code_points, quoted
from .source import (
    MAX_DEPTH,
    MAX_DIGITS,
    MAX_REPEATS,
    MAX_VALUES,
    Array,
    Member,
    Node,
    Object,
    Report,
    Scalar,
    kind_of,
    plain,
)

_BLANKS = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_NUMBER_REST = re.compile(r"[-+.0-9A-Za-z_]+")
_WORD = re.compile(r"-?[A-Za-z_$][A-Za-z0-9_$]*")
_SIMPLE = re.compile(r'"([^"\\\x00-\x1f]*)"')
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_LONE = re.compile("[\ud800-\udfff]")
_HALF = re.compile(r"\\u[dD][89a-fA-F]")
_DECODER = json.JSONDecoder()
T = TypeVar("T")
_HEX = re.compile(r"[0-9a-fA-F]{4}")
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
_LOOKALIKE_WORDS = {"True": "true", "False": "false", "None": "null", "undefined": "null"}


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _finite(spelling: str) -> float:
    value = float(spelling)
    if not isfinite(value):
        raise ValueError("a number out of range")
    return value


# What the reader below refuses this refuses too, but for half characters, and nests and whole numbers that
# are a little too large.
_STRICT = json.JSONDecoder(object_pairs_hook=_distinct, parse_float=_finite, parse_constant=_finite)

_FLAT = {
    "definition": "schemas are flat: a definition needs no more than a dozen levels",
    "catalog": "a catalog is an array of texts or flat objects",
    "line": "a line is a text or a flat object",
}
_SMALLEST = {"definition": '{"field": {"type": "boolean"}}', "catalog": '["yes", "no"]'}


def read_json(report: Report, kind: str = "definition") -> Node | None:
    """The source's JSON value, or None after a syntax error. Repeated keys are reported, the first stands."""
    try:
        return _Reader(report, kind).document()
    except Refused as refused:
        report.add(refused.code, refused.at, kind, refused.fact, refused.limit, refused.help)
        return None


def read_json_lines(report: Report) -> Iterator[Node | Refused]:
    """The values of a catalog with one a line; what is wrong with a line stands in its place."""
    reader = _Reader(report, "line")
    return reader.lines(reader.line_value)


def each_json_line(report: Report) -> Iterator[Node | Refused]:
    """The same one by one, for a file of any length: the limit on values is for each line."""
    reader = _Reader(report, "line")
    for value in reader.lines(reader.line_value):
        reader.values = 0
        yield value


def each_plain_line(report: Report) -> Iterator[tuple[int, Any] | Refused]:
    """Where each line starts and its value as plain data, read by the library unless something is wrong."""
    reader = _Reader(report, "line")
    return reader.lines(reader.plain_line)


def each_plain_item(report: Report) -> Iterator[tuple[int, Any]]:
    """Where each item of a catalog's array starts and its value as plain data. Raises Refused."""
    return _Reader(report, "catalog").items()


def value_at(report: Report, at: int) -> Node:
    """The value that stands at a place where one was read before."""
    reader = _Reader(Report(report.source), "catalog")
    reader.at = at
    reader.blanks()
    return reader.value(2)


class Refused(Exception):
    """Why a text is no JSON, as parts of a diagnostic; `at` is the place."""

    def __init__(self, code: str, at: int, fact: str, limit: str = "", help: str = "") -> None:
        super().__init__(fact)
        self.code, self.at, self.fact, self.limit, self.help = code, at, fact, limit, help


class _Reader:
    """One pass over the text; `at` is the offset of the next character."""

    def __init__(self, report: Report, kind: str) -> None:
        self.report, self.kind = report, kind
        self.text = report.source.text
        self.at = 0
        self.values = 0

    @cached_property
    def halves(self) -> bool:
        """Whether characters are spelled in halves anywhere, of which the library takes one for a whole."""
        return bool(_HALF.search(self.text))

    def whole(self, value: object) -> bool:
        return not self.halves or not _LONE.search(json.dumps(value, ensure_ascii=False))

    def document(self) -> Node:
        self.blanks()
        if self.at == len(self.text):
            self.refuse("is empty", help=f"the smallest {self.kind} is {_SMALLEST[self.kind]}")
        value = self.value(1)
        self.blanks()
        if self.at < len(self.text):
            self.refuse(f"goes on with {self.next()} after its end", help=f"a {self.kind} is one JSON value")
        return value

    def lines(self, read: Callable[[int, int], T]) -> Iterator[T | Refused]:
        done = 0
        for start, end in self.report.source.line_spans():
            # The rest of a value that went over its line is no entry of its own.
            if start < done:
                continue
            try:
                yield read(start, end)
            except Refused as refused:
                done = max(self.at, end)
                yield refused

    def line_value(self, start: int, end: int) -> Node:
        help, self.at = "a line holds one whole JSON value", start
        self.blanks()
        if self.at >= end:
            self.at = end
            self.refuse("is blank", start, "remove it; every line holds one JSON value")
        try:
            value = self.value(1)
        except Refused as refused:
            if refused.code != "PCDC105" or self.at < end:
                raise
            self.at = end
            self.refuse("ends before its value does", help=f"{help}; in text, `\\n` is a line break")
        if self.at > end:
            self.refuse("has a value of more than one line", start, help)
        self.blanks()
        if self.at < end:
            self.refuse(f"goes on with {self.next()} after the value", help=help)
        return value

    def plain_line(self, start: int, end: int) -> tuple[int, Any]:
        line = self.text[start:end]
        with suppress(ValueError, RecursionError):
            value, stop = _STRICT.raw_decode(line)
            if (stop == len(line) or not line[stop:].strip(" \t\r")) and self.whole(value):
                self.at = end
                return start, value
        self.values = 0
        return start, plain(self.line_value(start, end))

    def items(self) -> Iterator[tuple[int, Any]]:
        start = self.at
        if self.blanks() != "[":
            root = self.document()
            assert isinstance(root, Scalar | Object)
            limit = "a catalog is an array of texts or objects"
            raise Refused("PCDC105", root.at, f"is {kind_of(root)}", limit)
        start, self.at = self.at, self.at + 1
        if self.blanks() != "]":
            yield self.item()
            while self.blanks() == ",":
                self.comma("]")
                yield self.item()
        self.close("]", start)
        self.blanks()
        if self.at < len(self.text):
            self.refuse(f"goes on with {self.next()} after its end", help="a catalog is one JSON value")

    def item(self) -> tuple[int, Any]:
        start = self.at
        with suppress(ValueError, RecursionError):
            value, end = _STRICT.raw_decode(self.text, start)
            if self.whole(value):
                self.at = end
                return start, value
        self.values = 0
        return start, plain(self.value(2))

    def refuse(self, fact: str, at: int | None = None, help: str = "") -> NoReturn:
        raise Refused("PCDC105", self.at if at is None else at, fact, "", help)

    def next(self) -> str:
        """The next character as it may stand in a message."""
        return quoted(self.text[self.at]) if self.at < len(self.text) else "the end of the text"

    def line(self, at: int) -> int:
        place = self.report.source.locate(at)
        return place.line if place else 0

    def again(self, first: int, second: int) -> str:
        """Where a key stands that is there twice; lines alone tell two places of one line not apart."""
        lines = self.line(first), self.line(second)
        if lines[0] != lines[1]:
            return f"is declared on line {lines[0]} and again on line {lines[1]}"
        columns = [place.column if (place := self.report.source.locate(at)) else 0 for at in (first, second)]
        return f"is declared twice on line {lines[0]}, in column {columns[0]} and in column {columns[1]}"

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def blanks(self) -> str:
        """Skip blanks; gives the character after them."""
        at = self.at
        first = self.text[at : at + 1]
        if first > " ":
            return first
        match = _BLANKS.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return self.peek()

    def value(self, depth: int) -> Node:
        start, first = self.at, self.peek()
        self.values += 1
        if self.values > MAX_VALUES:
            help = "a field has at most 255 choices; split large lists before they reach a definition"
            raise Refused("PCDC102", start, "holds too many values", f"at most {MAX_VALUES}", help)
        if first == '"':
            return Scalar(start, self.string())
        if first and first in "{[":
            if depth > MAX_DEPTH:
                limit = f"at most {MAX_DEPTH} levels"
                raise Refused("PCDC107", start, "is nested too deep", limit, _FLAT[self.kind])
            return self.object(depth) if first == "{" else self.array(depth)
        number = _NUMBER.match(self.text, start)
        if number:
            return self.number(number)
        word = _WORD.match(self.text, start)
        if word:
            return self.word(word.group(), word.end())
        return self.unexpected("where a value belongs")

    def word(self, word: str, end: int) -> Scalar:
        if word not in _WORDS:
            if word in _LOOKALIKE_WORDS:
                help = f"write `{_LOOKALIKE_WORDS[word]}`"
            elif word.lstrip("-") in ("NaN", "Infinity"):
                help = "JSON has no such number"
            else:
                help = "write text in double quotes"
            self.refuse(f"has the bare word {quoted(word)}", help=help)
        start, self.at = self.at, end
        return Scalar(start, _WORDS[word])

    def number(self, match: re.Match[str]) -> Scalar:
        start, self.at = self.at, match.end()
        spelling = match.group()
        rest = _NUMBER_REST.match(self.text, self.at)
        if rest:
            whole = spelling + rest.group()
            zero = spelling in ("0", "-0") and rest.group()[0].isdigit()
            fact = f"has the number {quoted(whole)}, which {'has a leading zero' if zero else 'is not JSON'}"
            self.refuse(fact, start, "write codes as text, in double quotes")
        if match.group(1) is None and match.group(2) is None:
            if len(spelling) > MAX_DIGITS:
                self.refuse(
                    f"has a number of {len(spelling)} digits", start, "write it as text, in double quotes"
                )
            return Scalar(start, int(spelling), spelling)
        value = float(spelling)
        if not isfinite(value):
            self.refuse(f"has the number {quoted(spelling)}, which is out of range", start)
        return Scalar(start, value, spelling)

    def array(self, depth: int) -> Array:
        start, items = self.at, list[Node]()
        self.at += 1
        if self.blanks() != "]":
            items.append(self.value(depth + 1))
            while self.blanks() == ",":
                self.comma("]")
                items.append(self.value(depth + 1))
        self.close("]", start)
        return Array(start, tuple(items))

    def object(self, depth: int) -> Object:
        start, members = self.at, dict[str, Member]()
        self.at += 1
        if self.blanks() != "}":
            self.member(members, depth)
            while self.blanks() == ",":
                self.comma("}")
                self.member(members, depth)
        self.close("}", start)
        return Object(start, members)

    def member(self, members: dict[str, Member], depth: int) -> None:
        start = self.at
        if self.peek() != '"':
            self.unexpected("where a key in double quotes belongs")
        key = self.string()
        if self.blanks() != ":":
            self.refuse(f"has {self.next()} where the colon after a key belongs")
        self.at += 1
        self.blanks()
        value = self.value(depth + 1)
        if key in members:
            if len(self.report.diagnostics) == MAX_REPEATS:
                help = "remove the repeated keys; what follows was not read"
                raise Refused(
                    "PCDC106", start, "repeats many keys", f"the first {MAX_REPEATS} are named", help
                )
            fact = self.again(members[key].at, start)
            help = "remove or rename one of them; which of the two was meant cannot be told"
            self.report.add(
                "PCDC106", start, f"key {quoted(key)}", fact, "a key stands once in an object", help
            )
        else:
            members[key] = Member(start, value)

    def comma(self, closer: str) -> None:
        comma, self.at = self.at, self.at + 1
        if self.blanks() == closer:
            self.refuse(f"has a comma before {quoted(closer)}", comma, "remove the trailing comma")

    def close(self, closer: str, start: int) -> None:
        if self.peek() == closer:
            self.at += 1
            return
        help = f"a comma or {quoted(closer)} is missing; the bracket opened on line {self.line(start)}"
        self.unexpected(f"where a comma or {quoted(closer)} belongs", help)

    def unexpected(self, where: str, help: str = "") -> NoReturn:
        first = self.peek()
        if first in ("/", "#") and first:
            help = "JSON has no comments; put the text into a `$comment` or `description`"
        elif first == "'":
            help = "JSON text stands in double quotes"
        elif first in ("+", "."):
            help = "JSON numbers start with a digit or a minus sign"
        self.refuse(f"has {self.next()} {where}", help=help)

    def string(self) -> str:
        simple = _SIMPLE.match(self.text, self.at)
        if simple:
            self.at = simple.end()
            return simple.group(1)
        start, parts = self.at, list[str]()
        # The library reads long text with escapes fast; where it does not, or gives half a character, what
        # is wrong is found below.
        with suppress(ValueError):
            text, end = _DECODER.raw_decode(self.text, start)
            if not _LONE.search(text):
                self.at = end
                return str(text)
        self.at += 1
        while True:
            match = _PLAIN.match(self.text, self.at)
            if match:
                parts.append(match.group())
                self.at = match.end()
            stop = self.peek()
            if stop == '"':
                self.at += 1
                return "".join(parts)
            if stop == "\\":
                parts.append(self.escape())
            elif stop:
                help = "write it as an escape (`\\n`, `\\t`), or close the quote on the same line"
                self.refuse(f"has the raw control character {code_points(stop)} inside text", help=help)
            else:
                self.refuse("has text that is never closed", start, "add the closing double quote")

    def escape(self) -> str:
        start, letter = self.at, self.text[self.at + 1 : self.at + 2]
        if letter != "u":
            if letter not in _ESCAPES:
                help = "write a backslash as `\\\\`"
                self.refuse(f"has the unknown escape {quoted(chr(92) + letter)}", help=help)
            self.at += 2
            return _ESCAPES[letter]
        unit = self.unit()
        if 0xD800 <= unit < 0xDC00 and self.text.startswith("\\u", self.at):
            low = self.unit()
            if 0xDC00 <= low < 0xE000:
                return chr(0x10000 + (unit - 0xD800) * 0x400 + low - 0xDC00)
        if 0xD800 <= unit < 0xE000:
            self.refuse(
                f"has the lone surrogate U+{unit:04X}", start, "write the character itself, or both halves"
            )
        return chr(unit)

    def unit(self) -> int:
        match = _HEX.match(self.text, self.at + 2)
        if not match:
            self.refuse("has a `\\u` escape without four hexadecimal digits")
        self.at = match.end()
        return int(match.group(), 16)
