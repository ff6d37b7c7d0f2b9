"""Findings for machines that show them beside the source: GitHub workflow commands and SARIF 2.1.0."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pcdc_runtime.errors import sentence

from pcdc import __version__
from pcdc.diagnostics import RULES, Diagnostic, Location

from .linting import LintReport
from .pages import has_page, opening, page


def message(found: Diagnostic) -> str:
    """Subject, fact, limit and help as one text."""
    line = sentence(found.subject, found.fact, found.limit)
    return line + (f"\nhelp: {found.help}" if found.help else "")


def github(diagnostics: Iterable[Diagnostic]) -> str:
    """One workflow command a line, which GitHub shows beside the changed lines."""
    return "".join(_command(d) + "\n" for d in diagnostics)


def _command(found: Diagnostic) -> str:
    properties = {"title": f"{found.code} {RULES[found.code].title}"}
    place = found.location
    if place is not None and place.column:
        properties = {
            "file": place.path,
            "line": str(place.line),
            "col": str(place.column),
            **properties,
        }
    listed = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    return f"::{found.severity} {listed}::{_data(message(found))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def sarif(report: LintReport) -> dict[str, Any]:
    """A SARIF 2.1.0 log with one run; what definitions ignore is in it, suppressed with the reason."""
    told: list[tuple[Diagnostic, str | None]] = [(d, None) for d in report.diagnostics]
    told += [(i.diagnostic, i.reason) for i in report.ignored]
    codes = sorted({d.code for d, _ in told})
    number = {code: index for index, code in enumerate(codes)}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "pcdc",
                        "version": __version__,
                        "rules": [_rule(code) for code in codes],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "results": [_result(d, number[d.code], reason) for d, reason in told],
            }
        ],
    }


def _rule(code: str) -> dict[str, Any]:
    rule = RULES[code]
    described: dict[str, Any] = {
        "id": code,
        "shortDescription": {"text": rule.title},
        "defaultConfiguration": {"level": rule.severity},
    }
    if has_page(code):
        described["fullDescription"] = {"text": opening(code)}
        described["help"] = {"text": page(code), "markdown": page(code)}
    return described


def _result(found: Diagnostic, rule: int, reason: str | None) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": found.code,
        "ruleIndex": rule,
        "level": found.severity,
        "message": {"text": message(found)},
    }
    if found.location is not None and found.location.column:
        result["locations"] = [{"physicalLocation": _physical(found.location)}]
    if reason is not None:
        result["suppressions"] = [{"kind": "inSource", "justification": reason}]
    return result


def _physical(place: Location) -> dict[str, Any]:
    path = Path(place.path)
    uri = path.as_uri() if path.is_absolute() else quote(path.as_posix().encode("utf-8", "surrogateescape"))
    return {
        "artifactLocation": {"uri": uri},
        "region": {"startLine": place.line, "startColumn": place.column},
    }
