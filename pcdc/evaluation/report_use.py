"""What a report says first: every field in a line, what may be acted on, and the calibration in use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import page
from .methods import MAJORITY
from .page import Cell, Markup, between, count, number, plural, share, table
from .verdict import Report, no_threshold, overall, remark


def at_a_glance(report: Report) -> Markup:
    """Every field in one line."""
    main = report["main"]
    header = [
        "field", "choices", "texts", "accuracy", "95 % interval", "always the most frequent", "note",
    ]  # fmt: skip
    rows: list[list[Cell]] = []
    for position, field in enumerate(report["fields"], 1):
        figures = field["methods"].get(main)
        rows.append(
            [
                page.link(f"field-{position}", field["name"]),
                count(len(field["labels"])),
                *(_glance(figures, field["methods"].get(MAJORITY)) if figures else ["0", *["–"] * 3]),
                remark(report, field),
            ]
        )
    if len(report["fields"]) > 1 and main in overall(report):
        whole = _glance(overall(report)[main], overall(report).get(MAJORITY))
        rows.append([page.strong("all fields"), "", *whole, ""])
    return page.section("At a glance", [table(header, rows, numeric_from=1, text_from=6)])


def _glance(figures: Mapping[str, Any], majority: Mapping[str, Any] | None) -> list[Cell]:
    return [
        count(figures["rows"]),
        share(figures["accuracy"]),
        between(figures["intervals"]["accuracy"], share),
        share(majority["accuracy"]) if majority else "–",
    ]


def calibration_in_use(report: Report) -> Markup:
    """Which calibration the figures are of; nothing where there is none."""
    found = report.get("run", {}).get("calibration")
    if not found:
        return Markup("")
    rows: list[list[Cell]] = [
        [name, one["method"], one["id"], count(one["rows"])] for name, one in found["fields"].items()
    ]
    rows += [[name, f"not applied: {why}", "–", "–"] for name, why in found["dropped"].items()]
    note = f"{found['file']} is applied by the runtime, so it is applied here."
    if report["run"]["fitted_on_this_data"]:
        note += " It was fitted on texts of this very file: the figures are optimistic."
    body = [page.paragraph(note), table(["field", "calibration", "id", "fitted on"], rows)]
    return page.section("The calibration in use", body)


def thresholds(report: Report) -> Markup:
    """From which probability on each field may be acted on."""
    return _found(report) if report["fit"] else _checked(report)


def _found(report: Report) -> Markup:
    claim = (
        f"With {100 * report['confidence']:g} % confidence, at least {100 * report['precision']:g} % of the "
        "answers at or above a field's threshold are right. Thresholds were tested from the strictest down, "
        "each by an exact binomial bound on its precision, and the last one before the first failure is "
        "kept. A text that the data repeats is one trial, right only if all its answers there are."
    )
    none = (
        f"No field qualifies: for none was a precision of {100 * report['precision']:g} % shown with "
        f"{100 * report['confidence']:g} % confidence, at any threshold that was tested."
    )
    rows: list[list[Cell]] = []
    for field in report["fields"]:
        found = field["threshold"]
        last = next((one for one in reversed(found["tested"]) if one["passed"]), None)
        if found["minimum"] is not None and last:
            seen = f"{last['texts'] - last['errors']} of {last['texts']} right{_copies(found)}"
            least, acted = number(found["minimum"], 4), share(found["share"])
            rows.append([field["name"], least, acted, share(last["bound"]), seen])
        else:
            why = no_threshold(field, report["main"]) + _copies(found)
            rows.append([field["name"], "none", "0 %", "–", why])
    passed = any(field["threshold"]["minimum"] is not None for field in report["fields"])
    header = ["field", "act from", "share acted on", "precision at least", "seen"]
    body = [page.paragraph(claim if passed else none), table(header, rows, numeric_from=1, text_from=4)]
    return page.section("What may be acted on unseen", body)


def _checked(report: Report) -> Markup:
    """How the thresholds in use do."""
    checks = {field["name"]: field["check"] for field in report["fields"] if field["check"]}
    if not checks:
        words = "No threshold is in use. With --fit half of the texts look for one in each field."
        return page.section("What may be acted on unseen", [page.paragraph(words)])
    note = (
        "How the thresholds of the calibration in use do on these texts. Precision is the share of right "
        "answers among those acted on; at least: its lower end with "
        f"{100 * report['confidence']:g} % confidence, where a text that the data repeats counts once. "
        "Promised: what the threshold was found for."
    )
    rows: list[list[Cell]] = [
        [
            name,
            number(one["minimum"], 4),
            count(one["rows"]),
            share(one["share"]),
            f"{one['right']} of {one['acted']}",
            share(one["precision"]),
            share(one["bound"]),
            share(one["promised"]),
        ]
        for name, one in checks.items()
    ]
    header = ["field", "act from", "texts", "share acted on", "right", "precision", "at least", "promised"]
    body = [page.paragraph(note), table(header, rows, numeric_from=1)]
    return page.section("What may be acted on unseen", body)


def mistakes(field: Mapping[str, Any]) -> list[Markup]:
    """The surest wrong answers, with the beginnings of their texts."""
    found = [one for one in field["mistakes"] if "context" in one]
    if not found:
        return []
    rows: list[list[Cell]] = [
        [
            count(one["line"]),
            page.shortened(one["expected"]),
            page.shortened(one["answered"]),
            number(one["probability"], 3),
            one["context"],
        ]
        for one in found
    ]
    header = ["line", "label", "answered", "probability", "text"]
    title = f"The {plural(len(rows), 'wrong answer')} with the highest probability"
    if len(rows) == 1:
        title = "The wrong answer with the highest probability"
    note = "Quoted from the data: with these the report holds texts. Leave them out with --no-texts."
    return [page.details(title, [page.paragraph(note), table(header, rows)])]


def label_counts(field: Mapping[str, Any], counts: list[int], most: int) -> Markup:
    """How often each label occurs among the judged texts, the most frequent first."""
    whole = sum(counts)
    ranked = sorted(range(len(counts)), key=lambda label: (-counts[label], label))
    rows: list[list[Cell]] = [
        [page.shortened(field["labels"][n]), count(counts[n]), share(counts[n] / whole)]
        for n in ranked[:most]
    ]
    if len(ranked) > most:
        rest = sum(counts[n] for n in ranked[most:])
        rows.append([f"{len(ranked) - most} more", count(rest), share(rest / whole)])
    missing = sum(not one for one in counts)
    title = f"How often each label occurs ({plural(whole, 'text')})"
    words = f"{plural(missing, 'choice')} of {len(counts)} occur in no label." if missing else ""
    body = [table(["label", "texts", "share"], rows, numeric_from=1)]
    return page.details(title, [*([page.paragraph(words)] if words else []), *body])


def _copies(found: Mapping[str, Any]) -> str:
    """How many rows repeat another's text, where some do."""
    copies = found["rows"] - found["texts"]
    return f" ({'1 copy' if copies == 1 else f'{count(copies)} copies'} not counted)" if copies else ""
