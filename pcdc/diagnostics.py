"""What is wrong with a user's input: one value per mistake, one registry of codes, two renderings.

A code's hundreds digit names the stage that found it. Severity belongs to the code, never to the place
that reports it, so a code means one thing wherever it is printed.
"""

from __future__ import annotations

import inspect
import json
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from pcdc_runtime import errors
from pcdc_runtime.errors import PcdcError, sentence

Severity = Literal["error", "warning"]

_STAGES = {
    "1": "source",
    "2": "schema",
    "3": "compile",
    "4": "model",
    "5": "lint",
    "6": "artifact",
    "7": "request",
}
_COLORS: Mapping[str, str] = {"error": "\x1b[1;31m", "warning": "\x1b[1;33m"}
_RESET = "\x1b[0m"
_SHOWN = 60


@dataclass(frozen=True)
class Rule:
    """One row of the registry.

    An error is `in_content` where a schema or a context is at fault by what it holds, and not the call, a
    file that cannot be read or written, an artifact or a model.
    """

    code: str
    title: str
    stage: str
    severity: Severity
    in_content: bool


def _rules() -> dict[str, Rule]:
    rows: list[tuple[str, str, Severity, bool]] = [(*row, "error", True) for row in _CONTENT_ERRORS]
    rows += [(*row, "error", False) for row in _CALL_ERRORS]
    rows += [(*row, "warning", False) for row in _WARNINGS]
    runtime = inspect.getmembers(errors, lambda m: inspect.isclass(m) and issubclass(m, PcdcError))
    rows += [(kind.code, kind.title, "error", kind.in_content) for _, kind in runtime]
    return {row[0]: Rule(row[0], row[1], _STAGES[row[0][4]], *row[2:]) for row in sorted(rows)}


# What a definition says is wrong.
_CONTENT_ERRORS = (
    ("PCDC102", "file too large"),
    ("PCDC103", "YAML is not a definition format"),
    ("PCDC104", "file is not UTF-8"),
    ("PCDC105", "not valid JSON"),
    ("PCDC106", "key or field declared twice"),
    ("PCDC107", "nested too deep"),
    ("PCDC108", "Python value has no JSON form"),
    ("PCDC109", "catalog row cannot be read"),
    ("PCDC200", "schema refused"),
    ("PCDC201", "keyword has a value of the wrong kind"),
    ("PCDC202", "no fields"),
    ("PCDC203", "too many fields"),
    ("PCDC204", "field name not usable"),
    ("PCDC205", "misspelt keyword"),
    ("PCDC206", "keyword not supported"),
    ("PCDC207", "nested field"),
    ("PCDC208", "free text or open number"),
    ("PCDC209", "field depends on another field"),
    ("PCDC210", "unknown type"),
    ("PCDC211", "choices missing or declared in two ways"),
    ("PCDC212", "too few choices"),
    ("PCDC213", "too many choices"),
    ("PCDC214", "choice is an object or array"),
    ("PCDC215", "choice does not fit the type"),
    ("PCDC216", "empty or blank choice"),
    ("PCDC217", "choice too long"),
    ("PCDC218", "invisible or control character"),
    ("PCDC219", "choice declared twice"),
    ("PCDC220", "two choices with one label"),
    ("PCDC221", "choices canonically equal"),
    ("PCDC222", "number would lose its spelling"),
    ("PCDC223", "reference leads nowhere"),
    ("PCDC224", "reference cycle"),
    ("PCDC225", "references expand too far"),
    ("PCDC226", "catalog where none can be"),
    ("PCDC227", "`required` names no field"),
    ("PCDC228", "text is not valid Unicode"),
    ("PCDC230", "catalog declared wrongly"),
    ("PCDC231", "catalog has no such column"),
    ("PCDC232", "catalog value is not text"),
    ("PCDC233", "text too long"),
    ("PCDC234", "too many choices in all"),
    ("PCDC235", "example names no field"),
    ("PCDC236", "example answers with no choice of its field"),
    ("PCDC237", "example declared wrongly"),
    ("PCDC238", "examples too many or too long"),
    ("PCDC239", "rule ignored wrongly"),
    ("PCDC240", "definition of an index where none can be"),
    ("PCDC241", "not the definition of an index"),
    ("PCDC242", "index with more than one field"),
    ("PCDC243", "keyword not for an index"),
    ("PCDC244", "id declared twice"),
    ("PCDC245", "label declared twice without ids"),
    ("PCDC246", "id not usable"),
    ("PCDC303", "name or choice spells a control token"),
    ("PCDC304", "two choices with the same tokens"),
    ("PCDC305", "choice changed by the tokenizer"),
    ("PCDC306", "field too large for one tree pass"),
    ("PCDC307", "schema longer than the model's window"),
    ("PCDC720", "data row cannot be read"),
    ("PCDC721", "data names an unknown field"),
    ("PCDC722", "expected value is no answer of its field"),
    ("PCDC723", "no data to measure"),
)
# The call is wrong, or a file or a model that it names.
_CALL_ERRORS = (
    ("PCDC101", "file cannot be read"),
    ("PCDC110", "database cannot be read"),
    ("PCDC111", "environment variable not set"),
    ("PCDC229", "field not compiled yet"),
    ("PCDC301", "template not supported"),
    ("PCDC308", "model without a chat template"),
    ("PCDC611", "artifact cannot be written"),
    ("PCDC612", "no definition to build"),
    ("PCDC710", "input not readable"),
    ("PCDC711", "output not writable"),
    ("PCDC712", "report cannot be written"),
    ("PCDC713", "output belongs to another run"),
)
_WARNINGS = (
    ("PCDC251", "field without a description"),
    ("PCDC252", "choices hard to tell apart"),
    ("PCDC253", "unknown keyword ignored"),
    ("PCDC254", "catalog without an order"),
    ("PCDC309", "labels with the same tokens"),
    ("PCDC501", "description asks nothing"),
    ("PCDC502", "two fields with one description"),
    ("PCDC503", "two fields with one description and the same choices"),
    ("PCDC504", "field looks dependent on another"),
    ("PCDC511", "no choice for an absent answer"),
    ("PCDC512", "very many choices"),
    ("PCDC513", "code before meaning"),
    ("PCDC514", "choice is a token prefix of another"),
    ("PCDC515", "choices share a first token"),
    ("PCDC516", "choice merges with a delimiter"),
    ("PCDC517", "choices of very different length in tokens"),
    ("PCDC518", "choice of many tokens"),
    ("PCDC521", "prompt takes most of the window"),
    ("PCDC522", "more than one tree pass"),
    ("PCDC523", "examples take most of the prompt"),
    ("PCDC524", "index without a question"),
    ("PCDC525", "index without worked examples"),
    ("PCDC531", "artifact never evaluated"),
    ("PCDC532", "evaluation made for something else"),
    ("PCDC533", "field without a threshold"),
    ("PCDC534", "artifact out of date"),
    ("PCDC535", "artifact not built"),
    ("PCDC536", "field evaluated on few texts"),
    ("PCDC537", "threshold of low precision or confidence"),
    ("PCDC541", "nothing to ignore"),
    ("PCDC610", "damaged artifact replaced"),
    ("PCDC613", "build log cannot be written"),
    ("PCDC615", "artifact of another schema replaced"),
    ("PCDC616", "artifact left under its earlier name"),
    ("PCDC614", "no file system events"),
    ("PCDC619", "question of an earlier index dropped"),
    ("PCDC724", "field without labels in the data"),
    ("PCDC725", "text skipped, longer than the model's window"),
    ("PCDC726", "calibration in use does not hold for a field"),
    ("PCDC727", "figures on texts that a calibration was fitted on"),
    ("PCDC728", "data that is not read"),
)

RULES: Mapping[str, Rule] = MappingProxyType(_rules())


@dataclass(frozen=True)
class Location:
    """A place in a file; line and column count from 1, columns in characters.

    A row of a database has no columns: the path is the database, the line is the row, the column is 0.
    """

    path: str
    line: int
    column: int


@dataclass(frozen=True)
class Diagnostic:
    """One mistake: what it is about, what is wrong, what was expected, what to do about it."""

    code: str
    severity: Severity
    location: Location | None
    subject: str
    fact: str
    limit: str = ""
    help: str = ""
    excerpt: str = ""


def finding(
    code: str,
    location: Location | None,
    subject: str,
    fact: str,
    limit: str = "",
    help: str = "",
    excerpt: str = "",
) -> Diagnostic:
    """A diagnostic of the severity that its code's rule has."""
    return Diagnostic(code, RULES[code].severity, location, subject, fact, limit, help, excerpt)


class SchemaError(PcdcError):
    """A schema was refused; `diagnostics` holds every mistake, warnings included."""

    code = "PCDC200"
    title = "schema refused"

    def __init__(self, diagnostics: Sequence[Diagnostic]) -> None:
        self.diagnostics = tuple(sort_diagnostics(diagnostics))
        count = sum(d.severity == "error" for d in self.diagnostics)
        super().__init__("schema", f"has {count} error{'' if count == 1 else 's'}")
        self.args = (self.diagnostics,)

    def __str__(self) -> str:
        return render_text(self.diagnostics).rstrip("\n")


def from_error(error: PcdcError) -> Diagnostic:
    """A runtime exception as a diagnostic, so that both print alike."""
    return finding(error.code, None, error.subject, error.fact, error.limit, error.help)


def has_errors(diagnostics: Iterable[Diagnostic]) -> bool:
    """Whether any of them is more than a warning."""
    return any(d.severity == "error" for d in diagnostics)


def sort_diagnostics(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """By file, line and column; those of one place, or of none, keep their order."""

    def place(d: Diagnostic) -> tuple[str, int, int]:
        return (d.location.path, d.location.line, d.location.column) if d.location else ("", 0, 0)

    return sorted(diagnostics, key=place)


def render_text(diagnostics: Iterable[Diagnostic], color: bool = False) -> str:
    """For people: `file:line:col: error[CODE]: subject fact; limit`, the excerpt, the help."""
    return "".join(_block(d, color) for d in diagnostics)


def _block(d: Diagnostic, color: bool) -> str:
    tag = f"{d.severity}[{d.code}]"
    if color:
        tag = f"{_COLORS[d.severity]}{tag}{_RESET}"
    line = f"{_where(d.location)}{tag}: {visible(sentence(d.subject, d.fact, d.limit))}"
    parts = [line, *([d.excerpt] if d.excerpt else []), *([f"  help: {visible(d.help)}"] if d.help else [])]
    return "\n".join(parts) + "\n"


def _where(place: Location | None) -> str:
    if place is None:
        return ""
    at = f":{place.line}:{place.column}" if place.column else f" row {place.line}"
    return f"{visible(place.path)}{at}: "


def render_json(diagnostics: Iterable[Diagnostic]) -> str:
    """For programs: an array of objects, ASCII only, so that any output encoding carries it."""
    return json.dumps([_record(d) for d in diagnostics], indent=2) + "\n"


def json_text(data: object, indent: int | None = None) -> str:
    """Strict JSON that any UTF-8 file takes."""
    text = json.dumps(data, ensure_ascii=False, indent=indent, allow_nan=False)
    # What is no Unicode comes only from file names; this is how JSON spells it.
    return text.encode("utf-8", "backslashreplace").decode()


def _record(d: Diagnostic) -> dict[str, object]:
    place = d.location
    return {
        "code": d.code,
        "severity": d.severity,
        "path": place.path if place else None,
        "line": place.line if place else None,
        "column": place.column if place else None,
        "subject": d.subject,
        "fact": d.fact,
        "limit": d.limit,
        "help": d.help,
    }


def registry_table() -> str:
    """The registry as a Markdown table: code, title, stage, severity."""
    rows = ["| Code | Title | Stage | Severity |", "| --- | --- | --- | --- |"]
    rows += [f"| {r.code} | {r.title} | {r.stage} | {r.severity} |" for r in RULES.values()]
    return "\n".join(rows) + "\n"


def visible(text: str) -> str:
    """Text that a terminal shows as it is: a tab is a blank, what does not print is `<U+202E>`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c == "\t" else f"<U+{ord(c):04X}>" for c in text)


def quoted(text: str) -> str:
    """A user's text as it may stand in a message: in quotes, escaped, cut after 60 characters."""
    cut = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    return visible(json.dumps(cut, ensure_ascii=False))


def code_points(text: Iterable[str]) -> str:
    """Characters by number and name: `U+200B ZERO WIDTH SPACE, U+202E ...`."""
    return ", ".join(f"U+{ord(c):04X} {unicodedata.name(c, '')}".rstrip() for c in text)
