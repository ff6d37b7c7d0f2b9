"""What a report comes to, in sentences that the terminal and the page share."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from pcdc.diagnostics import visible

from .bootstrap import SIGNIFICANT
from .methods import MAJORITY
from .page import between, count, plural, share

Report: TypeAlias = Mapping[str, Any]
"""A report as `report.json` has it."""

MANY_FLIPS = 0.1
"""From which share of answers on the order of a schema is said to matter at once."""
LEAST_SUREST = 10
"""Among fewer of the surest answers no share of right ones is looked at."""
NAMED = 4


def overall(report: Report) -> Mapping[str, Any]:
    """The figures of all fields together; those of the only field where there is one, which has more."""
    fields = report["fields"]
    found: Mapping[str, Any] = fields[0]["methods"] if len(fields) == 1 else report["overall"]
    return found


def verdict(report: Report) -> list[str]:
    """What the report says to somebody who has to decide, the most important first."""
    main, figures = report["main"], overall(report).get(report["main"])
    if figures is None:
        return ["No labelled text was left to judge on."]
    texts = plural(report["held_out_texts"], "text")
    lead = f"On {texts} that nothing was fitted on, " if report["fit"] else f"On {texts}, "
    base = overall(report)[MAJORITY]
    first = (
        f"{lead}{share(figures['accuracy'])} of {count(figures['rows'])} answers were right (95 % interval "
        f"{between(figures['intervals']['accuracy'], share)}); always giving the most frequent label would "
        f"reach {share(base['accuracy'])}."
    )
    judged = [field for field in report["fields"] if main in field["methods"]]
    parts = [first, _ends(judged, main), automation(report), _gain(report, judged), _order(report)]
    return [*(part for part in parts if part), *_optimistic(report)]


def remark(report: Report, field: Mapping[str, Any]) -> str:
    """What is wrong with one field's answers as a whole, or nothing."""
    figures = field["methods"].get(report["main"])
    if figures is None:
        return "no labelled text left to judge"
    constant = constant_answer(field["labels"], figures["confusion"])
    if constant is not None:
        return f"always answers {_quoted(constant)}"
    return "" if is_better(report, field["name"]) else "not shown to be better than always the same answer"


def constant_answer(labels: Sequence[str], confusion: Sequence[Sequence[int]]) -> str | None:
    """The one answer that every text got, where there is just one, else None."""
    answered = [n for n, counts in enumerate(zip(*confusion, strict=True)) if any(counts)]
    return labels[answered[0]] if len(answered) == 1 and answered[0] < len(labels) else None


def is_better(report: Report, field: str | None) -> bool:
    """Whether the method in use is shown to be right more often than always the same answer."""
    test = next(
        (
            one
            for one in report["comparisons"]
            if (one["first"], one["second"], one["figure"]) == (report["main"], MAJORITY, "accuracy")
            if one["field"] == field
        ),
        None,
    )
    return (
        test is not None
        and test["holm"] is not None
        and test["difference"] > 0
        and test["holm"] < SIGNIFICANT
    )


def no_threshold(field: Mapping[str, Any], main: str) -> str:
    """Why a field has no threshold: what more texts could mend, or what they could not."""
    found, figures = field["threshold"], field["methods"].get(main)
    surest = None if figures is None else _surest(figures)
    if surest is not None and surest[0] < found["precision"]:
        return f"precision not reached: at best {share(surest[0])} right, of the surest {count(surest[1])}"
    if found["texts"] < found["needed"]:
        return f"too few texts ({found['texts']}, at least {found['needed']} needed in the judged part)"
    if not found["tested"]:
        return "too many answers are equally sure to tell some from others"
    first = found["tested"][0]
    return f"precision not shown: {first['errors']} of the surest {first['texts']} texts wrong"


def automation(report: Report) -> str:
    """Whether anything may be acted on without review."""
    fields, promise = report["fields"], f"{100 * report['precision']:g} % precision"
    if report["fit"]:
        passed = [field for field in fields if field["threshold"]["minimum"] is not None]
        if not passed:
            return f"Nothing may be acted on unseen: no field has a threshold with {promise}."
        acted = ", ".join(
            f"{visible(one['name'])} ({share(one['threshold']['share'], 0)} of answers)" for one in passed
        )
        return f"May be acted on unseen, above its threshold for {promise}: {acted}."
    checks = [field for field in fields if field["check"]]
    if not checks:
        return "No threshold is in use; --fit looks for them."
    kept = ", ".join(f"{visible(one['name'])} ({check_words(one['check'])})" for one in checks)
    return f"Above the thresholds in use: {kept}."


def check_words(check: Mapping[str, Any]) -> str:
    """How a threshold in use did."""
    if not check["acted"]:
        return f"none of {count(check['rows'])} answers reaches it"
    return f"{count(check['right'])} of {count(check['acted'])} right, {share(check['promised'], 0)} promised"


def flips_much(report: Report) -> bool:
    """Whether the order of the schema decides so many answers that it must be said first."""
    found = report.get("permutation")
    return found is not None and found["overall"]["mean"] > MANY_FLIPS


def order_basis(report: Report) -> str:
    """What the order test was measured on."""
    found = report["permutation"]
    texts = f"{found['texts']} of {found['of_texts']} texts"
    return f"raw probabilities of {report['scoring']}, without any calibration, on {texts}, fitted on or not"


def _ends(judged: Sequence[Mapping[str, Any]], main: str) -> str:
    if len(judged) < 2:
        return ""
    ranked = sorted(judged, key=lambda field: -field["methods"][main]["accuracy"])
    best, worst = (
        f"{visible(field['name'])} ({share(field['methods'][main]['accuracy'])})"
        for field in (ranked[0], ranked[-1])
    )
    return f"Most often right: {best}, least often: {worst}."


def _gain(report: Report, judged: Sequence[Mapping[str, Any]]) -> str:
    """Whether reading the text gains anything over an answer that reads nothing."""
    constant = {
        field["name"]: found
        for field in judged
        if (found := constant_answer(field["labels"], field["methods"][report["main"]]["confusion"]))
        is not None
    }
    unshown = [
        field["name"]
        for field in judged
        if field["name"] not in constant and not is_better(report, field["name"])
    ]
    words = []
    if len(constant) + len(unshown) == len(judged):
        words.append("Reading the text is not shown to gain anything")
        words[0] += ":" if constant or len(judged) > 1 else "."
    told = [f"{visible(name)} always answers {_quoted(answer)}" for name, answer in constant.items()]
    if unshown and (constant or len(judged) > 1):
        told.append(f"{_names(unshown)} not shown to be better than always giving the most frequent label")
    if not told and not words:
        return "Reading the text gains over always the same answer" + (
            " in every field." if len(judged) > 1 else "."
        )
    return " ".join(
        [*words, "; ".join(told[:NAMED]) + (_more(len(told) - NAMED) if told else "")]
    ).strip() + ("." if told else "")


def _order(report: Report) -> str:
    if not flips_much(report):
        return ""
    flips = share(report["permutation"]["overall"]["mean"])
    return (
        f"{flips} of the answers change when nothing but the order of fields and choices does "
        f"({order_basis(report)})."
    )


def _optimistic(report: Report) -> list[str]:
    if not report.get("run", {}).get("fitted_on_this_data"):
        return []
    return ["These figures are optimistic: the calibration in use was fitted on texts of this very file."]


def _surest(figures: Mapping[str, Any]) -> tuple[float, float] | None:
    """The highest share of right answers among so many of the surest, as far as these are enough to tell."""
    curve, rows = figures["risk_coverage"], figures["rows"]
    if curve is None or not rows:
        return None
    least = min(LEAST_SUREST, rows)
    points = [
        (1 - risk, part * rows)
        for part, risk in zip(curve["coverage"], curve["risk"], strict=True)
        if round(part * rows) >= least
    ]
    return max(points, key=lambda point: point[0], default=None)


def _quoted(label: str) -> str:
    return json.dumps(visible(label), ensure_ascii=False)


def _names(names: Sequence[str]) -> str:
    return ", ".join(map(visible, names[:NAMED])) + _more(len(names) - NAMED)


def _more(left: int) -> str:
    return f" and {left} more" if left > 0 else ""
