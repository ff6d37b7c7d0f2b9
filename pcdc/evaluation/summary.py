"""A report on the terminal: figures per field, methods side by side, and what was tried beside them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pcdc.diagnostics import visible
from pcdc.show import table

from .page import p_value
from .verdict import no_threshold, order_basis, remark, verdict

_NONE = "-"
_FEW = "- (too few texts)"


def summary(report: Mapping[str, Any], *, terminal: bool) -> str:
    """The text of a report as `report.json` has it."""
    parts = [_head(report), _verdict(report), _fields(report, terminal)]
    if report["run"]["calibration"]:
        parts.append(_applied(report, terminal))
    if report["fit"]:
        parts.append(_fits(report, terminal))
    parts += [_thresholds(report, terminal), _methods(report, terminal)]
    if "permutation" in report:
        parts.append(_permutation(report, terminal))
    parts.append(_latency(report, terminal))
    if "examples" in report:
        parts.append(_examples(report["examples"], terminal))
    return "\n".join(part for part in parts if part)


def _head(report: Mapping[str, Any]) -> str:
    run = report["run"]
    asides = [
        f"{run['labelled_texts']} labelled",
        *([f"{run['drawn_texts']} drawn by seed {report['seed']}"] if run["limit"] else []),
        *(
            [f"{run['shown_as_examples']} left out as examples of the schema"]
            if run["shown_as_examples"]
            else []
        ),
        *([f"{len(run['skipped'])} skipped as too long"] if run["skipped"] else []),
    ]
    split = (
        f"fitted on {report['held_in_texts']} texts, judged on the {report['held_out_texts']} others"
        if report["fit"]
        else "judged on all of them"
    )
    return (
        f"schema {visible(report['schema'])}, model {visible(report['model'])}, "
        f"scoring {report['scoring']}, artifact {report['artifact'][:12]}\n"
        f"{run['measured_texts']} texts measured ({', '.join(asides)}), {split}\n"
    )


def _verdict(report: Mapping[str, Any]) -> str:
    return "".join(f"{visible(sentence)}\n" for sentence in verdict(report))


def _fields(report: Mapping[str, Any], terminal: bool) -> str:
    """The method that a deployment would use, per field and over all of them."""
    main, scoring = report["main"], report["scoring"]
    rows = [
        [
            *_field_row(field["name"], field["methods"], main, field["legal_mass"][scoring]["spread"]),
            remark(report, field),
        ]
        for field in report["fields"]
        if field["methods"]
    ]
    if len(rows) > 1:
        rows.append([*_field_row("(all)", report["overall"], main, None), ""])
    header = [
        "field",
        "n",
        "accuracy",
        "95 % interval",
        "majority",
        "macro-F1",
        "log loss",
        "ECE",
        "legal mass",
        "note",
    ]
    return f"{main}, per field:\n" + table(header, rows, terminal=terminal)


def _field_row(name: str, methods: Mapping[str, Any], main: str, mass: Mapping[str, Any] | None) -> list[str]:
    figures = methods[main]
    return [
        visible(name),
        str(figures["rows"]),
        _share(figures["accuracy"]),
        _between(figures["intervals"]["accuracy"]),
        _share(methods["majority"]["accuracy"]),
        _share(figures["macro_f1"]),
        _share(figures["log_loss"]),
        _share(figures["ece"]),
        _NONE if mass is None else _share(_quantile(mass, 0.5)),
    ]


def _fits(report: Mapping[str, Any], terminal: bool) -> str:
    """What was fitted, and what it changed on the texts that were not used for it."""
    rows = []
    for field in report["fields"]:
        before, after = (field["methods"].get(report[name]) for name in ("scoring", "main"))
        selection = field["selection"]
        if selection is not None and before and after:
            changes = [
                f"{_share(before[figure])} -> {_share(after[figure])}"
                for figure in ("log_loss", "brier", "ece", "accuracy")
            ]
            rows.append([visible(field["name"]), str(selection["rows"]), selection["chosen"], *changes])
    header = ["field", "fitted on", "calibration", "log loss", "Brier", "ECE", "accuracy"]
    chosen = {field["selection"]["chosen"] for field in report["fields"] if field["selection"]}
    note = "nothing helps: the probabilities stay as they are\n" if chosen == {"nothing"} else ""
    return (
        "before -> after, on texts that were not fitted on:\n" + table(header, rows, terminal=terminal) + note
    )


def _applied(report: Mapping[str, Any], terminal: bool) -> str:
    """The calibration in use, by field."""
    found = report["run"]["calibration"]
    rows = [
        [visible(name), one["method"], one["id"], str(one["rows"])] for name, one in found["fields"].items()
    ]
    rows += [[visible(name), f"not applied: {why}", _NONE, _NONE] for name, why in found["dropped"].items()]
    title = f"calibration in use, {visible(found['file'])}:\n"
    return title + table(["field", "calibration", "id", "fitted on"], rows, terminal=terminal)


def _thresholds(report: Mapping[str, Any], terminal: bool) -> str:
    if not report["fit"]:
        return _checks(report, terminal)
    rows = []
    for field in report["fields"]:
        found = field["threshold"]
        passed = found["minimum"] is not None
        rows.append(
            [
                visible(field["name"]),
                f"{found['minimum']:.4f}" if passed else f"none: {no_threshold(field, report['main'])}",
                f"{found['share']:.0%}" if passed else _NONE,
                _distinct(found["texts"], found["rows"]),
            ]
        )
    title = (
        f"act on answers of {report['main']} from this probability on, for a precision of "
        f"{report['precision']:g} with confidence {report['confidence']:g}:\n"
    )
    return title + table(["field", "threshold", "share acted on", "tested on"], rows, terminal=terminal)


def _checks(report: Mapping[str, Any], terminal: bool) -> str:
    """How the thresholds in use do; nothing where there are none."""
    checks = {field["name"]: field["check"] for field in report["fields"] if field["check"]}
    rows = [
        [
            visible(name),
            f"{one['minimum']:.4f}",
            str(one["rows"]),
            f"{one['share']:.0%}",
            f"{one['right']} of {one['acted']}",
            _share(one["precision"]),
            _share(one["bound"]),
            _share(one["promised"]),
        ]
        for name, one in checks.items()
    ]
    at_least = f"at least, with confidence {report['confidence']:g}"
    header = ["field", "threshold", "n", "share acted on", "right", "precision", at_least, "promised"]
    return "thresholds in use, on these texts:\n" + table(header, rows, terminal=terminal) if rows else ""


def _distinct(texts: int, rows: int) -> str:
    """So many texts, and how many more rows repeat one of them."""
    return f"{texts} texts" + (f" and {rows - texts} copies" if rows > texts else "")


def _methods(report: Mapping[str, Any], terminal: bool) -> str:
    """All methods over all fields, each with its difference in accuracy from the one that would be used."""
    tests = {
        frozenset((c["first"], c["second"])): c
        for c in report["comparisons"]
        if c["figure"] == "accuracy" and (c["field"] is None or len(report["fields"]) == 1)
    }
    rows = []
    for name, figures in report["overall"].items():
        test = tests.get(frozenset((report["main"], name)))
        rows.append(
            [
                name,
                _share(figures["accuracy"]),
                _between(figures["intervals"]["accuracy"]),
                _share(figures["macro_f1"]),
                _share(figures["log_loss"]),
                _share(figures["ece"]),
                *_difference(test, report["main"]),
            ]
        )
    header = [
        "method",
        "accuracy",
        "95 % interval",
        "macro-F1",
        "log loss",
        "ECE",
        f"{report['main']} minus it",
        "p",
    ]
    return "methods, over all fields (p after Holm):\n" + table(header, rows, terminal=terminal)


def _difference(test: Mapping[str, Any] | None, main: str) -> tuple[str, str]:
    if test is None:
        return _NONE, _NONE
    sign = 1 if test["first"] == main else -1
    ends = sorted(sign * end for end in test["interval"]) if test["interval"] else None
    return f"{sign * test['difference']:+.3f} {_between(ends)}", p_value(test["holm"])


def _latency(report: Mapping[str, Any], terminal: bool) -> str:
    names = {
        "prefill_ms": "prefill, ms",
        "tree_ms": "tree pass, ms",
        "total_ms": "both, ms",
        "written_ms": "model's own JSON, ms",
        "context_tokens": "tokens of the text",
    }
    rows = [
        [shown, *(f"{_quantile(report['latency'][key], share):.1f}" for share in (0.5, 0.95))]
        for key, shown in names.items()
        if key in report["latency"]
    ]
    return "per text:\n" + table(["", "median", "95 % at most"], rows, terminal=terminal)


def _permutation(report: Mapping[str, Any], terminal: bool) -> str:
    found = report["permutation"]
    rows = [_flips_row(visible(name), flips) for name, flips in found["fields"].items()]
    if len(rows) > 1:
        rows.append(_flips_row("(all)", found["overall"]))
    title = f"in {found['orders']} other orders of fields and choices ({order_basis(report)}):\n"
    header = ["field", "answers that change", "in any order", "raw accuracy", "lowest", "highest"]
    return title + table(header, rows, terminal=terminal)


def _flips_row(name: str, flips: Mapping[str, Any]) -> list[str]:
    shares = [f"{flips['mean']:.1%}", f"{flips['any']:.1%}"]
    return [name, *shares, *(_share(flips[key]) for key in ("accuracy", "lowest", "highest"))]


def _examples(found: Mapping[str, Any], terminal: bool) -> str:
    rows = [_paired_row(visible(name), one) for name, one in found["fields"].items()]
    if len(rows) > 1:
        rows.append(_paired_row("(all)", found["overall"]))
    before, after = found["head_tokens"]
    source = f"{found['from_texts']} texts of {visible(found['from'])}"
    title = (
        f"{len(found['examples'])} worked examples from {source} "
        f"({found['shared_texts']} in the data left out), on {found['texts']} texts: {found['verdict']}\n"
        f"they make the prompt's head {after - before:+d} tokens longer, once, not per text\n"
    )
    header = ["field", "n", "accuracy without", "with", "difference", "95 % interval", "p", "majority"]
    paste = json.dumps(found["declaration"], ensure_ascii=False, indent=2)
    how = "to use them, merge into x-pcdc of the definition:\n"
    return f"{title}{table(header, rows, terminal=terminal)}{how}{paste}\n"


def _paired_row(name: str, one: Mapping[str, Any]) -> list[str]:
    shares = _share(one["without"]), _share(one["with_examples"]), f"{one['difference']:+.3f}"
    return [
        name,
        str(one["rows"]),
        *shares,
        _between(one["interval"]),
        p_value(one["p_value"]),
        _share(one["majority"]),
    ]


def _quantile(spread: Mapping[str, Any], share: float) -> float:
    return float(next(value for at, value in spread["quantiles"] if at == share))


def _share(value: float | None) -> str:
    return _NONE if value is None else f"{value:.3f}"


def _between(ends: Sequence[float] | None) -> str:
    return _FEW if not ends else f"{ends[0]:.3f} to {ends[1]:.3f}"
