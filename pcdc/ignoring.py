"""Warnings that a definition ignores: read from `x-pcdc`, and taken out of what is told."""

from __future__ import annotations

from collections.abc import Iterable

from .diagnostics import RULES, Diagnostic, quoted
from .indexing.definition import IndexDefinition
from .keywords import suggestion
from .schema import Ignored, Schema
from .source import Member, Node, Object, Report, Scalar

IGNORE = "ignore"
WARNINGS = frozenset(code for code, rule in RULES.items() if rule.severity == "warning")
_SUBJECT = f"`{IGNORE}`"


def read_ignored(node: Node | None, fields: Iterable[str], report: Report) -> tuple[Ignored, ...]:
    """The codes of an `ignore` object with their reasons, of all `fields` or of some."""
    found, known = list[Ignored](), frozenset(fields)
    for code, member in node.members.items() if isinstance(node, Object) else ():
        if not _is_warning(code, member, report):
            continue
        if not isinstance(member.value, Object):
            found += _reason(code, "", member, report)
            continue
        if not member.value.members:
            _no_reason(code, "", member.at, report)
        for name, of_field in member.value.members.items():
            # Where no field could be read, that is told.
            if name in known or not known:
                found += _reason(code, name, of_field, report)
            else:
                fact = f"names field {quoted(name)} under {code}, which is no field"
                report.add("PCDC239", of_field.at, _SUBJECT, fact, "", suggestion(name, known))
    return tuple(found)


def _is_warning(code: str, member: Member, report: Report) -> bool:
    if code in WARNINGS:
        return True
    if code in RULES:
        fact = f"names {code}, {RULES[code].title}, which is an error"
        report.add("PCDC239", member.at, _SUBJECT, fact, "only warnings can be ignored", "mend it instead")
    elif code.startswith("PCDC") and any(known.startswith(code) for known in WARNINGS):
        fact, limit = f"names {quoted(code)}, a family of codes", "a definition ignores single codes"
        help = f"name the codes that you mean; `pcdc lint --ignore {code}` takes a family"
        report.add("PCDC239", member.at, _SUBJECT, fact, limit, help)
    else:
        help = suggestion(code, WARNINGS) or "the codes are in README, under Diagnostics"
        report.add("PCDC239", member.at, _SUBJECT, f"names {quoted(code)}, which is no code", "", help)
    return False


def _reason(code: str, field: str, member: Member, report: Report) -> list[Ignored]:
    reason = member.value
    if not isinstance(reason, Scalar) or not isinstance(reason.value, str):
        return []
    if not reason.value.strip():
        _no_reason(code, field, reason.at, report)
    return [Ignored(code, reason.value.strip(), field, report.source.locate(member.at))]


def _no_reason(code: str, field: str, at: int, report: Report) -> None:
    fact = f"gives no reason for {code}" + (f" of field {quoted(field)}" if field else "")
    help = f'write {{"{code}": "why"}}, or {{"{code}": {{"the field": "why"}}}} for one field'
    report.add("PCDC239", at, _SUBJECT, fact, "a rule is ignored for a reason", help)


def ignored_by(definition: Schema | IndexDefinition | None, found: Diagnostic) -> Ignored | None:
    """What a definition ignores this under, if it does; one with errors ignores nothing."""
    return next((i for i in definition.ignored if _covers(i, found)), None) if definition else None


def _covers(ignored: Ignored, found: Diagnostic) -> bool:
    if ignored.code != found.code:
        return False
    field = f"field {quoted(ignored.field)}"
    # Also a choice of the field, or its catalog.
    return not ignored.field or found.subject == field or found.subject.endswith(f" of {field}")


def told(diagnostics: Iterable[Diagnostic], definition: Schema | IndexDefinition | None) -> list[Diagnostic]:
    """Without what a definition ignores."""
    return [d for d in diagnostics if ignored_by(definition, d) is None]
