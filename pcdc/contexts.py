"""Texts to answer, one a line: JSON in, contexts out, and every mistake in its place.

A line is `{"context": "...", "id": ...}`, with or without the id, or the text alone as a JSON string. Other
keys are not read, and named in one warning.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from pcdc_runtime.errors import PcdcError

from .diagnostics import Diagnostic, finding, quoted, sort_diagnostics
from .reader import Refused, each_json_line
from .source import Node, Object, Report, Scalar, SchemaSource, Unread, kind_of, read_source

MAX_BYTES = 512 * 1024 * 1024
MAX_FINDINGS = 1000
"""After so many a file is not read on, and none of it is answered."""

_CONTEXT, _ID = "context", "id"
_KEYS = (_CONTEXT, _ID, "expected")
"""What labelled texts are labelled with is no surprise."""
_SHAPE = 'a line is `{"context": "..."}`, may have an `id`, or is the text as a JSON string'
_NAMED = 8


@dataclass(frozen=True)
class Line:
    """One line: its text, or what is wrong with it; `given` holds its id where it has one.

    `said` decides its answer: its text, or, where something is wrong, all of the line.
    """

    number: int
    at: int
    context: str
    given: dict[str, Any]
    said: str
    mistake: Diagnostic | None = None


@dataclass(frozen=True)
class Contexts:
    """The lines of one file."""

    source: SchemaSource
    lines: tuple[Line, ...]

    def of_error(self, line: Line, error: PcdcError) -> Diagnostic:
        """Why a line's text has no answer, with the place of the line."""
        place, excerpt = self.source.locate(line.at), self.source.excerpt(line.at)
        return finding(error.code, place, error.subject, error.fact, error.limit, error.help, excerpt)


def read_contexts(path: Path, stream: BinaryIO | None = None) -> tuple[Contexts | None, list[Diagnostic]]:
    """All lines of a file, and all that is wrong with them; no lines where that are MAX_FINDINGS mistakes.

    Its name says nothing: it may be a pipe, which is read once. A `stream` is read in its
    place. Mistakes are in the order of the lines.
    """
    source, diagnostics = read_source(
        path, "JSON lines file", MAX_BYTES, "split the", stream, json_lines=True
    )
    if source is None:
        return None, diagnostics
    report = Report(source, diagnostics)
    lines, ignored = list[Line](), dict[str, int]()
    known = 0
    for node in each_json_line(report):
        at, context, given = _read(node, report, ignored)
        place = source.locate(at)
        mistake = diagnostics[known] if len(diagnostics) > known else None
        known = len(diagnostics)
        said = context if mistake is None else source.line(at)
        lines.append(Line(place.line if place else 0, at, context, given, said, mistake))
        if len(diagnostics) >= MAX_FINDINGS:
            return None, diagnostics
    if ignored:
        fact = f"has keys that are not read: {_listed(ignored)}"
        report.add("PCDC728", min(ignored.values()), path.name, fact, _SHAPE)
    return Contexts(source, tuple(lines)), sort_diagnostics(diagnostics)


def _read(node: Node | Refused, report: Report, ignored: dict[str, int]) -> tuple[int, str, dict[str, Any]]:
    """Where a line is, its text and its id; what is wrong is added to the report."""
    subject = "line"
    if isinstance(node, Refused):
        report.add(node.code, node.at, subject, node.fact, node.limit or _SHAPE, node.help)
        return node.at, "", {}
    if isinstance(node, Scalar) and isinstance(node.value, str):
        return node.at, node.value, {}
    if not isinstance(node, Object):
        report.add("PCDC720", node.at, subject, f"is {_kind(node)}", _SHAPE)
        return node.at, "", {}
    given = dict[str, Any]()
    others = {name: member.at for name, member in node.members.items() if name not in _KEYS}
    identifier = node.get(_ID)
    if isinstance(identifier, Scalar):
        given[_ID] = identifier.value
        if identifier.spelling and json.dumps(identifier.value) != identifier.spelling:
            fact = f"has an `{_ID}` that would be written as {identifier.value} again"
            report.add("PCDC720", identifier.at, subject, fact, "", "write it as text, in double quotes")
    elif identifier is not None:
        fact = f"has an `{_ID}` that is {_kind(identifier)}"
        report.add("PCDC720", identifier.at, subject, fact, "it is text, a number, a boolean or null")
    context = node.get(_CONTEXT)
    if isinstance(context, Scalar) and isinstance(context.value, str):
        for name, at in others.items():
            ignored.setdefault(name, at)
        return node.at, context.value, given
    if context is None:
        near = get_close_matches(_CONTEXT, others, n=1)
        help = f"rename {quoted(near[0])} to `{_CONTEXT}`" if near else ""
        report.add("PCDC720", node.at, subject, f"has no `{_CONTEXT}`", _SHAPE, help)
    else:
        report.add(
            "PCDC720", context.at, subject, f"has a `{_CONTEXT}` that is {_kind(context)}", "it is text"
        )
    return node.at, "", given


def _kind(node: Node) -> str:
    assert not isinstance(node, Unread)
    return kind_of(node)


def _listed(names: Iterable[str]) -> str:
    every = list(names)
    more = len(every) - _NAMED
    return ", ".join(map(quoted, islice(every, _NAMED))) + (f" and {more} more" if more > 0 else "")
