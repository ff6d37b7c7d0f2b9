"""The tables of a report: methods, tests, calibration, thresholds, time, robustness, examples."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from . import page
from .bootstrap import SIGNIFICANT
from .methods import APPLIED, CHOSEN, MAJORITY, WRITTEN
from .page import Cell, Markup, between, count, number, p_value, plural, share, table
from .verdict import Report, order_basis, overall

METHODS = {
    MAJORITY: "always the most frequent label: what an answer that reads nothing would reach",
    WRITTEN: "the same model writing the JSON itself, held to the schema by llguidance",
    "joint": "the probability that the model writes exactly this answer",
    "identify": "the same, only up to the token that tells an answer from all others",
    "trie": "a softmax at each token, multiplied: the published method",
}
CALIBRATIONS = {
    "nothing": "probabilities as they are",
    "temperature": "one temperature, fitted",
    "bias": "a temperature and a bias for each choice, fitted",
    "prior": "a bias for each choice, from texts without content: needs no labels",
    CHOSEN: "the calibration that was chosen for each field",
    APPLIED: "the calibration in use",
}
FIGURES = {"accuracy": "accuracy", "log_loss": "log loss", "ece": "calibration error"}


def methods(report: Report) -> Markup:
    """The figures of every method, and what each is."""
    body: list[Markup] = [method_table(overall(report), report["main"])]
    if len(report["fields"]) > 1:
        body.insert(0, page.paragraph("All fields together; each field has the same table below."))
    body.append(page.pairs(_legend(list(overall(report)))))
    return page.section("Methods side by side", body)


def _legend(names: Sequence[str]) -> list[tuple[str, str]]:
    """Every method that stands alone, and every calibration of one, once."""
    alone = [(name, METHODS.get(name, name)) for name in names if "+" not in name]
    added = dict.fromkeys(name.partition("+")[2] for name in names if "+" in name)
    return [*alone, *((f"… +{name}", CALIBRATIONS.get(name, name)) for name in added)]


def method_table(methods: Mapping[str, Any], main: str) -> Markup:
    """Every method's figures; AUROC where there is one."""
    ranked = any(figures["auroc"] is not None for figures in methods.values())
    header = [
        "method", "accuracy", "95 % interval", "macro-F1", "no valid answer", "log loss", "Brier", "ECE",
        "95 % interval", "by chance up to", *(["AUROC"] if ranked else []),
    ]  # fmt: skip
    rows: list[list[Cell]] = []
    for name, figures in methods.items():
        band, spans = figures["ece_band"], figures["intervals"]
        rows.append(
            [
                page.strong(name) if name == main else name,
                share(figures["accuracy"]),
                between(spans["accuracy"], share),
                number(figures["macro_f1"]),
                count(figures["unanswered"]),
                number(figures["log_loss"], 3),
                number(figures["brier"], 3),
                number(figures["ece"], 3),
                between(spans["ece"], lambda value: number(value, 3)) if "ece" in spans else page.MISSING,
                number(band[1] if band else None, 3),
                *([number(figures["auroc"])] if ranked else []),
            ]
        )
    return table(header, rows, numeric_from=1)


def comparisons(report: Report) -> Markup:
    """The paired tests between methods."""
    one_field = len(report["fields"]) == 1
    overall = [one for one in report["comparisons"] if one["field"] is None or one_field]
    single = [one for one in report["comparisons"] if one["field"] is not None and not one_field]
    if not overall and not single:
        return Markup("")
    note = (
        "The same texts are answered by both methods and compared text by text. The difference is the first "
        "minus the second: for accuracy more is better, for the other two less. The corrected p-value allows "
        "for the number of tests of this figure; below .05 counts as a difference."
    )
    body = [page.paragraph(note)]
    if overall:
        body.append(_comparison_table(overall, with_field=False))
    if single:
        tests = _comparison_table(single, with_field=True)
        body.append(page.details(f"{plural(len(single), 'test')} of single fields", [tests]))
    return page.section("Which differences are real", body)


def _comparison_table(comparisons: Sequence[Mapping[str, Any]], *, with_field: bool) -> Markup:
    rows: list[list[Cell]] = []
    for one in comparisons:
        shape = partial(share, signed=True) if one["figure"] == "accuracy" else _signed
        rows.append(
            [
                *([one["field"]] if with_field else []),
                FIGURES.get(one["figure"], one["figure"]),
                one["first"],
                one["second"],
                shape(one["difference"]),
                between(one["interval"], shape),
                p_value(one["p"]),
                p_value(one["holm"]),
                _different(one["holm"]),
                one["test"],
            ]
        )
    field = ["field"] if with_field else []
    header = [
        *field, "figure", "first", "second", "difference", "95 % interval", "p", "corrected p", "different?",
        "test",
    ]  # fmt: skip
    return table(header, rows, numeric_from=len(field) + 3)


def _different(p: float | None) -> Cell:
    if p is None:
        return page.FEW
    return page.strong("yes") if p < SIGNIFICANT else "not shown"


def calibration(report: Report) -> Markup:
    """What was fitted and what it changed."""
    if not report["fit"]:
        return Markup("")
    rows: list[list[Cell]] = []
    for field in report["fields"]:
        selection = field["selection"]
        before, after = field["methods"].get(report["scoring"]), field["methods"].get(report["main"])
        if selection is None or before is None or after is None:
            continue
        rows.append(
            [
                field["name"],
                count(selection["rows"]),
                selection["chosen"],
                number(selection["fits"][selection["chosen"]]["temperature"]),
                *(
                    f"{number(before[figure], 3)} → {number(after[figure], 3)}"
                    for figure in ("log_loss", "brier", "ece")
                ),
                number(after["ece_band"][1], 3) if after["ece_band"] else "–",
                f"{share(before['accuracy'])} → {share(after['accuracy'])}",
            ]
        )
    header = [
        "field", "fitted on", "chosen", "temperature", "log loss", "Brier", "ECE", "ECE by chance up to",
        "accuracy",
    ]  # fmt: skip
    note = "Before → after, on the texts that nothing was fitted on. " + " ".join(
        f"{name.capitalize()}: {meaning}."
        for name, meaning in CALIBRATIONS.items()
        if name not in (CHOSEN, APPLIED)
    )
    return page.section("Calibration", [page.paragraph(note), table(header, rows, numeric_from=1)])


def latency(report: Report) -> Markup:
    """What a text took."""
    names = {
        "prefill_ms": "reading the text (prefill), ms",
        "tree_ms": "answering all fields (tree pass), ms",
        "total_ms": "both, ms",
        "written_ms": "the model writing the JSON itself, ms",
        "context_tokens": "length of the text, tokens",
    }
    rows: list[list[Cell]] = []
    for key, spread in report["latency"].items():
        quantiles = {round(q, 3): value for q, value in spread["quantiles"]}
        wanted = [quantiles.get(q) for q in (0.05, 0.5, 0.95, 1.0)]
        rows.append([names.get(key, key), *(count(v) for v in (spread["mean"], *wanted))])
    note = (
        "At the lengths of these texts, on the machine that ran this. Reading grows with the text, answering "
        "with the schema."
    )
    header = ["per text", "mean", "5 %", "median", "95 %", "longest"]
    return (
        page.section("Time", [page.paragraph(note), table(header, rows, numeric_from=1)])
        if rows
        else Markup("")
    )


def permutation(report: Report) -> Markup:
    """Whether answers depend on the order of the schema; nothing where that was not asked."""
    found = report.get("permutation")
    if not found:
        return Markup("")
    note = (
        f"Asked again with fields and choices in {found['orders']} other orders: {order_basis(report)}. So "
        "accuracy here is not that of the tables above where a calibration is in use. A flip is an answer "
        "that changes with the order alone."
    )
    named = [
        *found["fields"].items(),
        *([("all fields", found["overall"])] if len(found["fields"]) > 1 else []),
    ]
    rows: list[list[Cell]] = [
        [
            name,
            share(flips["mean"]),
            share(flips["any"]),
            share(flips["accuracy"]),
            f"{share(flips['lowest'])} to {share(flips['highest'])}" if flips["lowest"] is not None else "–",
        ]
        for name, flips in named
    ]
    header = [
        "field",
        "flips per order",
        "flips in any order",
        "raw accuracy as declared",
        "accuracy over all orders",
    ]
    return page.section("Does the order matter?", [page.paragraph(note), table(header, rows, numeric_from=1)])


def examples(report: Report) -> Markup:
    """Whether the proposed examples help; nothing where none were."""
    found = report.get("examples")
    if not found:
        return Markup("")
    tokens = found["head_tokens"]
    verdict = found["verdict"] or "not judged"
    note = (
        f"{plural(len(found['examples']), 'worked example')} from {plural(found['from_texts'], 'text')} of "
        f"{found['from']}, tried on {found['texts']} others: {verdict}. The prompt's head grows from "
        f"{tokens[0]} to {tokens[1]} tokens, computed once and not per request."
    )
    judged = {name: one for name, one in found["fields"].items() if one}
    named = [
        *judged.items(),
        *([("all fields", found["overall"])] if found["overall"] and len(judged) > 1 else []),
    ]
    rows: list[list[Cell]] = [
        [
            name,
            count(one["rows"]),
            f"{share(one['without'])} → {share(one['with_examples'])}",
            share(one["difference"], signed=True),
            between(one["interval"], lambda value: share(value, signed=True)),
            p_value(one["p_value"]),
            share(one["majority"]),
        ]
        for name, one in named
    ]
    shown = [
        page.preformatted(f"{one['context']}\n\n{json.dumps(one['answers'], ensure_ascii=False)}")
        for one in found["examples"]
    ]
    header = ["field", "texts", "accuracy without → with", "difference", "95 % interval", "p", "majority"]
    body = [page.paragraph(note), table(header, rows, numeric_from=1), page.details("The examples", shown)]
    return page.section("Do examples help?", body)


def _signed(value: float) -> str:
    return number(value, 3, signed=True)


def meaning(method: str) -> str:
    """What a method is, in words."""
    rule, _, calibration = method.partition("+")
    words = METHODS.get(rule, rule)
    return f"{words}; {CALIBRATIONS.get(calibration, calibration)}" if calibration else words


def median(spread: Mapping[str, Any]) -> float | None:
    """The median of a spread."""
    return next((value for q, value in spread["quantiles"] if q == 0.5), None)
