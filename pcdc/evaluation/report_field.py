"""One field of a report: its charts, what is taken for what, and how many tokens its choices take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import charts, page
from .charts import Curve
from .page import Cell, Markup, count, number, plural, share, table, text
from .report_tables import median, method_table
from .report_use import label_counts, mistakes
from .verdict import Report, remark

MATRIX_CHOICES = 25
"""Up to so many choices a confusion matrix is readable; beyond, the most frequent confusions are listed."""
TOP_CONFUSIONS = 15
SHOWN_LABELS = 4

_READ_RELIABILITY = (
    "On the dotted line, answers are right as often as their probability says; below it they are "
    "overconfident. Each point holds about as many texts (bars below: how many), with its 95 % interval."
)
_READ_RISK = (
    "From the left, the surest answers; to the right, more texts are answered and more of them wrongly."
)
_READ_MASS = (
    "Far right: the model wanted one of the choices anyway. Far left: it wanted to say something else."
)


def field_section(report: Report, position: int, field: Mapping[str, Any]) -> Markup:
    note = remark(report, field)
    body = [
        page.paragraph(
            f"{field['type']}, {len(field['labels'])} choices, {plural(field['held_out'], 'text')} judged."
            + (f" {note[0].upper()}{note[1:]}." if note and field["methods"] else "")
        )
    ]
    figures = field["methods"].get(report["main"])
    if figures is None:
        body.append(page.paragraph("No labelled text was left to judge this field on."))
    else:
        body += [
            page.grid(_charts(report, field, figures)),
            *_confusion(field["labels"], figures["confusion"]),
            *mistakes(field),
            label_counts(field, [sum(counts) for counts in figures["confusion"]], MATRIX_CHOICES),
            page.details("All methods on this field", [method_table(field["methods"], report["main"])]),
        ]
    body.append(_tokens(field))
    return page.section(field["name"], body, anchor=f"field-{position}")


def _charts(report: Report, field: Mapping[str, Any], figures: Mapping[str, Any]) -> list[Markup]:
    name, scoring = field["name"], report["scoring"]
    raw = field["methods"].get(scoring) if report["main"] != scoring else None
    found = []
    if figures["reliability"]:
        ece = number(figures["ece"], 3)
        alt = f"Reliability diagram of {name}: {len(figures['reliability'])} bins, calibration error {ece}"
        bins = charts.reliability(figures["reliability"], raw["reliability"] if raw else None, text(alt))
        found.append(page.figure("Are the probabilities right?", _READ_RELIABILITY, bins))
    if figures["risk_coverage"]:
        found_share = field["threshold"] or field["check"]
        kept = found_share["share"] if found_share else None
        wrong = share(1 - figures["accuracy"])
        alt = f"Risk-coverage curve of {name}: {wrong} wrong when every text is answered"
        curves = [_curve("in use" if raw is None else "calibrated", figures)]
        curves += [_curve("as it was", raw)] if raw else []
        found.append(
            page.figure(
                "What acting on the surest costs", _READ_RISK, charts.risk_coverage(curves, kept, text(alt))
            )
        )
    mass = field["legal_mass"].get(scoring)
    if mass:
        alt = f"Histogram of the legal mass of {name}: median {number(median(mass['spread']))}"
        told = plural(mass["spread"]["rows"], "text")
        judged = ", those fitted on too" if report["fit"] else ""
        note = f"{told}{judged}. {_READ_MASS}" + (
            " Under identify it is an upper bound." if scoring == "identify" else ""
        )
        found.append(
            page.figure(
                "Did the model want these answers?", note, charts.legal_mass(mass["histogram"], text(alt))
            )
        )
    return found


def _curve(label: str, figures: Mapping[str, Any]) -> Curve:
    found = figures["risk_coverage"]
    return Curve(label, list(zip(found["coverage"], found["risk"], strict=True)))


def _confusion(labels: Sequence[str], confusion: Sequence[Sequence[int]] | None) -> list[Markup]:
    if confusion is None:
        return []
    body = [page.heading("What is taken for what")]
    if len(labels) <= MATRIX_CHOICES:
        body.append(page.matrix(labels, confusion))
    top = sorted(
        (
            (counts[answer], label, answer)
            for label, counts in enumerate(confusion)
            for answer in range(len(counts))
            if counts[answer] and answer != label
        ),
        key=lambda found: (-found[0], found[1], found[2]),
    )
    names = [*map(page.shortened, labels), "no valid answer"]
    rows: list[list[Cell]] = [
        [names[label], names[answer], count(n), share(n / sum(confusion[label]))]
        for n, label, answer in top[:TOP_CONFUSIONS]
    ]
    header = ["label", "answered", "texts", "of this label's texts"]
    if not rows:
        body.append(page.paragraph("Nothing: every answer was right."))
    elif len(labels) > MATRIX_CHOICES:
        shown = sum(n for n, _, _ in top[:TOP_CONFUSIONS])
        all_wrong = sum(n for n, _, _ in top)
        note = f"The {len(rows)} most frequent confusions: {shown} of {all_wrong} wrong answers."
        body += [page.paragraph(note), table(header, rows, numeric_from=2)]
    elif len(labels) > 2:
        body.append(page.details("The most frequent confusions", [table(header, rows, numeric_from=2)]))
    return body


def _tokens(field: Mapping[str, Any]) -> Markup:
    by_length: dict[int, list[str]] = {}
    for label, tokens in zip(field["labels"], field["tokens"], strict=True):
        by_length.setdefault(tokens, []).append(label)
    rows: list[list[Cell]] = []
    for tokens, labels in sorted(by_length.items()):
        more = f" and {len(labels) - SHOWN_LABELS} more" if len(labels) > SHOWN_LABELS else ""
        named = ", ".join(map(page.shortened, labels[:SHOWN_LABELS])) + more
        rows.append([count(tokens), count(len(labels)), named])
    note = "Choices of very different lengths are compared fairly by joint, less so by trie."
    body = [page.paragraph(note), table(["tokens", "choices", "which"], rows)]
    title = f"How many tokens each choice takes ({min(by_length)} to {max(by_length)})"
    return page.details(title, body)
