"""Warnings that a definition ignores: read from `x-pcdc`, and taken out of what is told."""

from __future__ import annotations

from collections.abc import Iterable

from .diagnostics import RULES, Diagnostic, quoted
from .keywords import suggestion
from .schema import Ignored, Schema
from .source import Node, Object, Report, Scalar

IGNORE = "ignore"
WARNINGS = frozenset(code for code, rule in RULES.items() if rule.severity == "warning")


def read_ignored(node: Node | None, report: Report) -> tuple[Ignored, ...]:
    """The codes of an `ignore` object with their reasons."""
    found = list[Ignored]()
    for code, member in node.members.items() if isinstance(node, Object) else ():
        subject, reason = f"`{IGNORE}`", member.value
        if code not in RULES:
            help = suggestion(code, WARNINGS) or "the codes are in README, under Diagnostics"
            report.add("PCDC239", member.at, subject, f"names {quoted(code)}, which is no code", "", help)
        elif code not in WARNINGS:
            fact = f"names {code}, {RULES[code].title}, which is an error"
            report.add("PCDC239", member.at, subject, fact, "only warnings can be ignored", "mend it instead")
        elif isinstance(reason, Scalar) and isinstance(reason.value, str):
            if not reason.value.strip():
                limit, help = (
                    "a rule is ignored for a reason",
                    f'write {{"{code}": "why"}}',
                )
                report.add("PCDC239", reason.at, subject, f"gives no reason for {code}", limit, help)
            found.append(Ignored(code, reason.value.strip(), report.source.locate(member.at)))
    return tuple(found)


def told(diagnostics: Iterable[Diagnostic], schema: Schema | None) -> list[Diagnostic]:
    """Without what the schema ignores; a schema with errors ignores nothing."""
    ignored = frozenset(i.code for i in schema.ignored) if schema else frozenset[str]()
    return [d for d in diagnostics if d.code not in ignored]
