"""From tallies to figures: medians with quartiles, ratios to the default of the same round, agreement."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pcdc_runtime.artifact import Artifact

from .measured import Answer
from .methods import ORACLE, Entry
from .rounds import Tally


def figures(tally: Tally, entries: Sequence[Entry]) -> dict[str, Any]:
    """One place as plain data, the default's row first.

    Times are in milliseconds, `ratio` is a method's time over the default's in the same round, counts are
    medians of whole numbers. None stands for what was not measured.
    """
    default = tally.taken.get(entries[0].key, [])
    beside = {one.round: one.answer.ms for one in default}
    judged = {one.text: one.answer for one in tally.taken.get(ORACLE, [])}
    place, scenario = tally.place, tally.scenario
    return {
        "name": place.name,
        "title": place.title,
        "axes": list(place.axes),
        "point": None if place.point is None else asdict(place.point),
        "schema": None if scenario is None else _size(scenario.artifact),
        "methods": [entry.key for entry in entries],
        "budget_seconds": tally.budget,
        "seconds": tally.seconds,
        "rounds": len(default),
        "rows": [_row(entry, tally, beside, judged) for entry in entries if entry.key in tally.taken],
        "missing": [
            {**_named(entry, tally), "reason": tally.missing[entry.key]}
            for entry in entries
            if entry.key in tally.missing
        ],
        "left_out": [
            {
                **_named(entry, tally),
                "reason": why.reason,
                "needed_seconds": why.needed,
                "left_seconds": why.left,
            }
            for entry in entries
            if (why := tally.left_out.get(entry.key))
        ],
        "refused": None if tally.refused is None else str(tally.refused),
    }


def _size(artifact: Artifact) -> dict[str, Any]:
    return {
        "name": artifact.name,
        "digest": artifact.digest,
        "fields": len(artifact.fields),
        "choices": sum(len(field.candidates) for field in artifact.fields),
        "nodes": len(artifact.nodes.token),
        "head_tokens": len(artifact.prompt.head),
        "tail_tokens": len(artifact.prompt.tail),
    }


def _named(entry: Entry, tally: Tally) -> dict[str, str]:
    return {"key": entry.key, "title": tally.titles.get(entry.key, entry.title)}


def _row(
    entry: Entry, tally: Tally, beside: Mapping[int, float], judged: Mapping[str, Answer]
) -> dict[str, Any]:
    key, taken = entry.key, tally.taken[entry.key]
    pairs = [(one.answer, judged[one.text]) for one in taken if one.text in judged]
    answers = [one.answer for one in taken]
    ratios = [one.answer.ms / beside[one.round] for one in taken if one.round in beside]
    ms = spread([answer.ms for answer in answers])
    counts = ("passes", "forwards", "positions", "kv_bytes", "kv_copied", "tokens")
    return {
        "key": key,
        "title": tally.titles[key],
        "rounds": len(taken),
        "ms": ms,
        "ratio": spread(ratios) if ratios else None,
        **{name: statistics.median_low(getattr(answer, name) for answer in answers) for name in counts},
        "peak_bytes": statistics.median_low(one.peak_bytes for one in taken),
        "valid": {"yes": sum(answer.values is not None for answer in answers), "of": len(answers)},
        "agreement": _agreement(pairs, scores=not entry.own_scores),
        "per_second": {"one": 1000 / ms["median"], "many": tally.many.get(key)},
    }


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median and quartiles, all alike for a single value."""
    if len(values) == 1:
        return dict.fromkeys(("median", "lower", "upper"), values[0])
    lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": median, "lower": lower, "upper": upper}


def _agreement(pairs: Sequence[tuple[Answer, Answer]], *, scores: bool) -> dict[str, Any] | None:
    """How often a method and the oracle name the same winner of a field, and how far their `scores` differ.

    An answer that is not valid agrees in no field.
    """
    if not pairs:
        return None
    same = of = 0
    differences: list[float] = []
    for answer, right in pairs:
        expected = right.values or {}
        of += len(expected)
        given = answer.values or {}
        same += sum(_same(given, name, value) for name, value in expected.items())
        if scores and answer.log_scores is not None and right.log_scores is not None:
            differences += [
                _difference(one, other)
                for name, own in answer.log_scores.items()
                for one, other in zip(own, right.log_scores[name], strict=True)
            ]
    largest = max(differences, default=None)
    finite = largest is not None and math.isfinite(largest)
    return {"same": same, "of": of, "largest_difference": largest if finite else None}


def _same(given: Mapping[str, object], name: str, value: object) -> bool:
    # True is 1 to Python, and not to JSON.
    return name in given and type(given[name]) is type(value) and given[name] == value


def _difference(one: float, other: float) -> float:
    return 0.0 if one == other else abs(one - other)
